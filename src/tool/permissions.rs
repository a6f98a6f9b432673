use super::Tool;
use std::collections::BTreeSet;

/// Which tools somebody may call. Nothing, unless it is said.
///
/// A tool that carries [permission tags](super::ToolSettings::permission_tags) says what a call can do. A list of tags
/// allows the tools that carry tags, and only such as are on it.
///
/// ```
/// use serde_json::json;
/// use universal_executor::tool::{ToolPermissions, ToolRegistry, json_tool};
///
/// let tool = |name| json_tool(name, "For the example.", json!({"type": "object"}), |input, _| async move { Ok(input) });
/// let registry = ToolRegistry::default()
///     .with(tool("read").permission_tags(["disk"]))?
///     .with(tool("send").permission_tags(["disk", "egress"]))?;
///
/// let local = registry.allowed(&ToolPermissions::tags(["disk"]));
/// assert_eq!(local.names(), ["read"]);
/// assert_eq!(registry.allowed(&ToolPermissions::names(["send"])).names(), ["send"]);
/// assert!(registry.allowed(&ToolPermissions::none()).names().is_empty());
/// # Ok::<(), universal_executor::tool::ToolError>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ToolPermissions {
    tools: Tools,
    /// The only tags that a tool may carry; any if absent.
    granted: Option<BTreeSet<String>>,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
enum Tools {
    #[default]
    None,
    Tagged,
    Named(BTreeSet<String>),
    All,
}

impl ToolPermissions {
    /// No tool.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Every tool.
    #[must_use]
    pub fn all() -> Self {
        Self::of(Tools::All)
    }

    /// The tools of these names, to the letter, whatever they can do.
    #[must_use]
    pub fn names<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        Self::of(Tools::Named(names.into_iter().map(Into::into).collect()))
    }

    /// The tools that carry some of these tags and no others.
    #[must_use]
    pub fn tags<T: Into<String>>(tags: impl IntoIterator<Item = T>) -> Self {
        Self::of(Tools::Tagged).and_only_tags(tags)
    }

    /// Of these tools only those that carry no other tags than these.
    #[must_use]
    pub fn and_only_tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.granted = Some(tags.into_iter().map(Into::into).collect());
        self
    }

    fn of(tools: Tools) -> Self {
        Self {
            tools,
            granted: None,
        }
    }

    /// Whether a tool may be called: the one place that decides it.
    pub(super) fn allow(&self, tool: &dyn Tool) -> bool {
        let tags = &tool.settings().permission_tags;
        let meant = match &self.tools {
            Tools::None => false,
            Tools::Tagged => !tags.is_empty(),
            Tools::Named(names) => names.contains(tool.name()),
            Tools::All => true,
        };
        let granted = self.granted.as_ref();
        meant && granted.is_none_or(|granted| tags.iter().all(|tag| granted.contains(tag)))
    }
}
