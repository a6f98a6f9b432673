use crate::error::BoxError;
use crate::workflow::Workflow;
use crate::workload::{Definition, EntryPolicy, FlowDefinition};
use std::sync::Arc;

/// Reads definitions of one format.
pub trait Loader: Send + Sync {
    /// What the format is called.
    fn format(&self) -> &str;

    /// How names of files of this format end, without the dot.
    fn extensions(&self) -> &[&str];

    /// Reads one. It runs nothing of what it reads.
    ///
    /// # Errors
    /// Says what to mend, and where.
    fn load(&self, source: &LoaderSource<'_>) -> Result<Arc<dyn Definition>, BoxError>;
}

/// What a [`Loader`] reads.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LoaderSource<'s> {
    /// What the workload is called.
    pub name: &'s str,
    /// The text.
    pub text: &'s str,
    /// The flow or agent to begin with, if one is named.
    pub entry: Option<&'s str>,
    /// What to begin with if neither that nor the definition says.
    pub policy: EntryPolicy,
}

impl LoaderSource<'_> {
    /// A workflow that was read from the text, as a workload.
    ///
    /// # Errors
    /// [`EntryError`](crate::workload::EntryError).
    pub fn flow(&self, workflow: Workflow) -> Result<Arc<dyn Definition>, BoxError> {
        let made = FlowDefinition::with_entry(self.name, workflow, self.entry, self.policy)?;
        Ok(Arc::new(made))
    }
}

/// Reads workflows in JSON: files that end with `.json`.
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

/// Reads workflows in YAML: files that end with `.yaml` or `.yml`.
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
            // Whatever it says, it says it.
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
