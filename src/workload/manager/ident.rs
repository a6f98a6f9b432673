use crate::error::{Retry, excerpt};
use crate::model::BreadcrumbId;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Identifier of a workload. Its kind depends on the string alone, and not on the files that exist.
///
/// | string | meaning |
/// |---|---|
/// | `name` | the workload with this name: a file without its extension, or a workload registered in code |
/// | `./path`, `../path`, `~/path`, `/path` | this file, where paths are [allowed](crate::workload::WorkloadManagerBuilder::allow_paths) |
/// | `store:<id>` | the definition in this breadcrumb |
///
/// Each kind may end with `#` and the flow or agent that a run starts with. A breadcrumb whose definition names a
/// `flow` starts only this flow. Otherwise the identifier can start any flow or agent, also one that other flows run as
/// a step: do not take the part after `#` from users.
///
/// An identifier has at most 4,096 bytes, and no control characters.
/// [`WorkloadManager::load`](super::WorkloadManager::load) parses it.
///
/// ```
/// use universal_executor::workload::Ident;
///
/// let ident: Ident = "writer#review".parse()?;
/// assert_eq!(ident, Ident::Name { name: "writer".into(), entry: Some("review".into()) });
/// assert!(matches!("./writer.json".parse()?, Ident::Path { .. }));
/// assert!("agents/writer".parse::<Ident>().is_err());
/// # Ok::<(), universal_executor::workload::IdentError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ident {
    /// Identifier of a workload by its name.
    Name {
        /// The name of the workload.
        name: String,
        /// The flow or agent with which a run of the workload starts. `None` if the identifier names neither.
        entry: Option<String>,
    },
    /// Identifier of a workload by the path of its file.
    Path {
        /// The path of the workload's file. A path that starts with `~/` is below the home folder.
        path: PathBuf,
        /// The flow or agent with which a run of the workload starts. `None` if the identifier names neither.
        entry: Option<String>,
    },
    /// Identifier of a workload by the breadcrumb with its definition.
    Store {
        /// ID of the breadcrumb with the workload definition.
        id: BreadcrumbId,
        /// The flow or agent with which a run of the workload starts. `None` if the identifier names neither.
        entry: Option<String>,
    },
}

/// Error returned when a string is not a valid [`Ident`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("invalid workload identifier {ident:?}: {reason}")]
#[non_exhaustive]
pub struct IdentError {
    /// The invalid workload identifier, at most 80 bytes of it.
    pub ident: String,
    /// The problem of the workload identifier, with the expected form.
    pub reason: &'static str,
}

impl IdentError {
    /// Returns [`Retry::Never`]: the workload identifier has to change.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        Retry::Never
    }
}

/// Maximum length of a workload identifier in bytes.
const MAX_BYTES: usize = 4_096;

impl FromStr for Ident {
    type Err = IdentError;

    fn from_str(text: &str) -> Result<Self, IdentError> {
        let refused = |reason| IdentError {
            ident: excerpt(text, 80).into_owned(),
            reason,
        };
        if text.len() > MAX_BYTES {
            return Err(refused("longer than 4,096 bytes"));
        }
        if text.chars().any(char::is_control) {
            return Err(refused("contains control characters"));
        }
        let (target, entry) = match text.split_once('#') {
            Some((_, "")) => return Err(refused("expected a flow or an agent after #")),
            Some((target, entry)) => (target, Some(entry.to_owned())),
            None => (text, None),
        };
        if ["./", "../", "~/", "/"]
            .iter()
            .any(|prefix| target.starts_with(prefix))
        {
            let path = target.into();
            return Ok(Self::Path { path, entry });
        }
        if let Some(id) = target.strip_prefix("store:") {
            let id = id.parse();
            let id = id.map_err(|_| refused("expected the UUID of a breadcrumb after store:"))?;
            return Ok(Self::Store { id, entry });
        }
        if target.is_empty() {
            return Err(refused("the name is empty"));
        }
        if target.contains(['/', '\\', ':']) {
            return Err(refused(
                "a path must start with ./, ../, ~/ or /, and a name must not contain / \\ :",
            ));
        }
        let name = target.to_owned();
        Ok(Self::Name { name, entry })
    }
}

impl Ident {
    pub(super) fn entry(&self) -> Option<&str> {
        match self {
            Self::Name { entry, .. } | Self::Path { entry, .. } | Self::Store { entry, .. } => {
                entry.as_deref()
            }
        }
    }
}

impl fmt::Display for Ident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { name, .. } => f.write_str(name)?,
            Self::Path { path, .. } => write!(f, "{}", path.display())?,
            Self::Store { id, .. } => write!(f, "store:{id}")?,
        }
        match self.entry() {
            Some(entry) => write!(f, "#{entry}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_its_beginning_makes_a_path() {
        for path in ["./a", "../a.json", "~/a#b", "/etc/a"] {
            let ident: Ident = path.parse().unwrap();

            assert!(matches!(ident, Ident::Path { .. }), "{path}");
        }
        assert!(matches!("reviewer".parse(), Ok(Ident::Name { .. })));
        assert!(matches!("a.json".parse(), Ok(Ident::Name { .. })));
    }

    #[test]
    fn an_invalid_identifier_is_an_error() {
        for text in ["", "#x", "a#", "a/b", "store:x", "store", "c:\\a", "a\nb"] {
            let parsed = text.parse::<Ident>();

            assert_eq!(parsed.is_err(), text != "store", "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(crate::fuzz::config())]

        #[test]
        fn a_name_that_is_written_is_read_as_the_same(text in "\\PC{0,40}") {
            if let Ok(ident) = text.parse::<Ident>() {
                prop_assert_eq!(ident.to_string().parse::<Ident>().unwrap(), ident);
            }
        }
    }
}
