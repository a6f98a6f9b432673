//! Prints the JSON Schema of workflow definitions, which is the content of `docs/workflow.schema.json`:
//!
//! ```text
//! cargo run --quiet --features workflows --example workflow_schema > docs/workflow.schema.json
//! ```

use std::io::Write as _;
use universal_executor::workflow::Workflow;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = serde_json::to_string_pretty(&Workflow::json_schema())?;
    writeln!(std::io::stdout(), "{schema}")?;
    Ok(())
}
