use crate::error::BoxError;
use crate::workflow::Workflow;
use crate::workload::{Definition, EntryPolicy, FlowDefinition};
use std::sync::Arc;

/// A reader for workload definition files of one format.
///
/// Implement it for a format other than JSON and YAML, and register it with
/// [`loader`](super::WorkloadManagerBuilder::loader).
///
/// # Examples
/// A format in which a file is the instruction of one agent:
///
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::BoxError;
/// use universal_executor::workflow::Workflow;
/// use universal_executor::workload::{Definition, Loader, LoaderSource, WorkloadManager};
///
/// struct Instruction;
///
/// impl Loader for Instruction {
///     fn format(&self) -> &str {
///         "instruction"
///     }
///
///     fn extensions(&self) -> &[&str] {
///         &["txt"]
///     }
///
///     fn load(&self, source: &LoaderSource<'_>) -> Result<Arc<dyn Definition>, BoxError> {
///         let agents = json!({"main": {"instruction": source.text}});
///         source.flow(Workflow::from_json(&json!({"agents": agents}))?)
///     }
/// }
///
/// let manager = WorkloadManager::builder().root("agents").loader(Instruction).build()?;
/// # drop(manager);
/// # Ok::<(), universal_executor::workload::ManagerError>(())
/// ```
pub trait Loader: Send + Sync {
    /// Returns the name of the loader's file format, for example `json`.
    fn format(&self) -> &str;

    /// Returns the file extensions of the loader's file format, without the dot.
    fn extensions(&self) -> &[&str];

    /// Reads a workload definition. Must not execute any part of it.
    ///
    /// # Errors
    /// Returns an error that names the problem and its position.
    fn load(&self, source: &LoaderSource<'_>) -> Result<Arc<dyn Definition>, BoxError>;
}

/// The input of a [`Loader`]: the text of a workload definition, and its name.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LoaderSource<'s> {
    /// The name of the workload to load.
    pub name: &'s str,
    /// The text of the workload definition.
    pub text: &'s str,
    /// The flow or agent that a run starts with, or `None` if the workload identifier names neither.
    pub entry: Option<&'s str>,
    /// The rule that selects the flow or agent that starts a run if neither the identifier nor the definition of the
    /// workload names one.
    pub policy: EntryPolicy,
}

impl LoaderSource<'_> {
    /// Returns the workload definition for a workflow that the loader has read.
    ///
    /// # Errors
    /// Returns an [`EntryError`](crate::workload::EntryError) if the start of a run cannot be determined.
    pub fn flow(&self, workflow: Workflow) -> Result<Arc<dyn Definition>, BoxError> {
        let definition = FlowDefinition::with_entry(self.name, workflow, self.entry, self.policy)?;
        Ok(Arc::new(definition))
    }
}

/// Loader for workload definitions that are workflows in JSON (`.json`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JsonLoader;

impl Loader for JsonLoader {
    fn format(&self) -> &str {
        "json"
    }

    fn extensions(&self) -> &[&str] {
        &["json"]
    }

    fn load(&self, source: &LoaderSource<'_>) -> Result<Arc<dyn Definition>, BoxError> {
        source.flow(Workflow::parse(source.text)?)
    }
}

/// Loader for workload definitions that are workflows in YAML (`.yaml` and `.yml`).
#[cfg(feature = "yaml")]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct YamlLoader;

#[cfg(feature = "yaml")]
impl Loader for YamlLoader {
    fn format(&self) -> &str {
        "yaml"
    }

    fn extensions(&self) -> &[&str] {
        &["yaml", "yml"]
    }

    fn load(&self, source: &LoaderSource<'_>) -> Result<Arc<dyn Definition>, BoxError> {
        source.flow(Workflow::from_yaml(source.text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(text: &str) {
        for entry in [None, Some("main")] {
            let policy = EntryPolicy::First;
            let source = LoaderSource {
                name: "x",
                text,
                entry,
                policy,
            };
            // Any result is allowed, but no panic.
            let is_ok = JsonLoader.load(&source).is_ok();
            #[cfg(feature = "yaml")]
            let is_ok = is_ok | YamlLoader.load(&source).is_ok();
            assert!(!is_ok || !text.is_empty());
        }
    }

    proptest! {
        #![proptest_config(crate::fuzz::config())]

        #[test]
        fn no_text_makes_a_loader_panic(text in "\\PC{0,200}") {
            load(&text);
        }

        #[test]
        fn no_piece_of_a_definition_makes_a_loader_panic(
            cut in 0_usize..200, from in 0_usize..200, with in "[{}\\[\\]\":,a-z0-9 \\n#&*!|>-]{0,8}",
        ) {
            let whole = r#"{"agents": {"main": {"instruction": "Help.", "tools": ["t"]}}, "tools": {"t": {}},
                "flows": {"f": {"steps": [{"parallel": [{"agent": "main"}]}, {"set": {"x": "${input.a}"}}]}}}"#;
            let text: String = whole.chars().take(from).chain(with.chars()).chain(whole.chars().skip(cut)).collect();
            load(&text);
        }
    }
}
