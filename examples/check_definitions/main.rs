//! Checks definitions before they run: agents, tools, schemas, workflows and workloads in files, folders, SQLite stores and RCRT
//! (Right Context Right Time) servers. Changes nothing. Exit status 1 if a definition does not load or a source cannot be read.
//!
//! ```text
//! cargo run --features rcrt,sqlite,yaml --example check_definitions -- [--json] [--rcrt] [--strict | --lenient] [--owner <id>] <source>..
//! ```
//!
//! `--features workflows` is sufficient for JSON files. A source is one of these:
//! - A file: `.json`, or `.yaml` with the feature `yaml`.
//! - A folder with such files.
//! - A SQLite store file, with the feature `sqlite`. `--owner` is the tenant. A file of an older version of the crate is rejected,
//!   because it needs a migration.
//! - The URL of a server, with the feature `rcrt`. The token is in `RCRT_TOKEN`, and `--owner` is the owner.
//!
//! Files are checked in strict mode, in which an unknown field is an error. Records of stores and servers are checked in lenient mode, in
//! which it is a warning. `--strict` and `--lenient` set one mode for both. `--rcrt` checks by the rules of an RCRT server.

#![expect(
    clippy::print_stdout,
    reason = "the report is the output of the program"
)]

pub(crate) mod arguments;
pub(crate) mod print;
pub(crate) mod read;

use arguments::Arguments;
use std::process::ExitCode;
use universal_executor::check::{Check, Report};
use universal_executor::{BoxError, Secret};

/// The report, and the sources that cannot be read, one message each.
pub(crate) type Checked = (Report, Vec<String>);

/// Reads all sources and checks them together.
pub(crate) async fn check(arguments: &Arguments) -> Checked {
    let mut check = Check::new();
    if arguments.rcrt {
        check = check.rcrt();
    }
    if let Some(is_strict) = arguments.strict {
        check = check.strict(is_strict);
    }
    let (sources, unread) = read::all(arguments).await;
    (check.all(sources), unread)
}

/// Returns 1 if a definition does not load or a source cannot be read, otherwise 0.
pub(crate) fn exit_code((report, unread): &Checked) -> ExitCode {
    match report.has_errors() || !unread.is_empty() {
        true => ExitCode::from(1),
        false => ExitCode::SUCCESS,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, BoxError> {
    let mut arguments = Arguments::parse(std::env::args().skip(1))?;
    arguments.token = std::env::var("RCRT_TOKEN").ok().map(Secret::new);
    let checked = check(&arguments).await;
    match arguments.json {
        true => println!("{}", print::json(&checked)?),
        false => println!("{}", print::text(&checked)),
    }
    Ok(exit_code(&checked))
}
