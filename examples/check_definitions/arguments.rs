//! Command line arguments.

use universal_executor::{BoxError, Secret};

/// Arguments of the program.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub(crate) sources: Vec<String>,
    /// If `true`, the output is one JSON document.
    pub(crate) json: bool,
    /// If `true`, definitions are checked by the rules of an RCRT server.
    pub(crate) rcrt: bool,
    /// The strict mode of all sources, or `None` for the default of each kind of source.
    pub(crate) strict: Option<bool>,
    /// The owner on a server, or the tenant in a store file.
    pub(crate) owner: Option<String>,
    /// The token for a server, from the environment and never from the command line, which other users of the machine can read.
    pub(crate) token: Option<Secret>,
}

impl Arguments {
    /// Parses the arguments. Without a source, the sources are the definitions of this example.
    ///
    /// # Errors
    /// Returns the first unknown option.
    pub(crate) fn parse(given: impl IntoIterator<Item = String>) -> Result<Self, BoxError> {
        let mut read = Self::default();
        let mut given = given.into_iter();
        while let Some(argument) = given.next() {
            match &*argument {
                "--json" => read.json = true,
                "--rcrt" => read.rcrt = true,
                "--strict" => read.strict = Some(true),
                "--lenient" => read.strict = Some(false),
                "--owner" => read.owner = Some(given.next().ok_or("--owner needs an ID")?),
                option if option.starts_with("--") => {
                    let known = "--json, --rcrt, --strict, --lenient and --owner";
                    return Err(
                        format!("unknown option {option:?}; the options are {known}").into(),
                    );
                }
                _ => read.sources.push(argument),
            }
        }
        if read.sources.is_empty() {
            let own = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/definitions");
            read.sources.push(own.to_owned());
        }
        Ok(read)
    }
}
