//! The JSON Schema of workflow definitions.

use super::definition::Definition;
use super::{Workflow, syntax};

impl Workflow {
    /// Returns the JSON Schema (draft 2020-12) of workflow definitions, for editors and for programs that write definitions.
    ///
    /// The schema has the fields of each object and the form of their values. Every definition that [`from_json`](Self::from_json)
    /// accepts is valid. The schema does not find problems between parts of a definition: unknown names, cycles, variables that no
    /// step sets, and equal IDs in one list. It also does not check `${..}`, JSONPaths and the values of operators.
    ///
    /// The file `docs/workflow.schema.json` of the crate contains the same schema.
    ///
    /// ```
    /// use universal_executor::workflow::Workflow;
    ///
    /// let schema = Workflow::json_schema();
    ///
    /// let agent = schema.pointer("/$defs/AgentSpec/properties/instruction/description");
    /// assert_eq!(agent.and_then(|text| text.as_str()), Some("Instructions of the agent to its model."));
    /// ```
    #[must_use]
    pub fn json_schema() -> schemars::Schema {
        syntax::json_schema::<Definition>()
    }
}
