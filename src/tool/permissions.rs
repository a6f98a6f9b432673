use super::Tool;
use std::collections::BTreeSet;

/// Set of tools that a caller, such as an agent, may call. Defaults to no tool.
///
/// The [permission tags](super::ToolSettings::permission_tags) of a tool name the capabilities of a call. Permission by
/// [tags](Self::tags) allows the tools that have tags and whose tags are all in the list.
///
/// [`ToolRegistry::allowed`](super::ToolRegistry::allowed) applies the permissions once: its result
/// has only the allowed tools, so a model does not even see the others.
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
    /// The only permission tags that an allowed tool may have, or `None` for any tags.
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
    /// Creates permissions that allow no tool.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Creates permissions that allow every tool.
    #[must_use]
    pub fn all() -> Self {
        Self::of(Tools::All)
    }

    /// Creates permissions for the tools with exactly these names, regardless of their permission tags.
    ///
    /// A name without a tool allows nothing and is not an error.
    #[must_use]
    pub fn names<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        Self::of(Tools::Named(names.into_iter().map(Into::into).collect()))
    }

    /// Creates permissions for the tools that have at least one permission tag and whose tags are all in this list.
    #[must_use]
    pub fn tags<T: Into<String>>(tags: impl IntoIterator<Item = T>) -> Self {
        Self::of(Tools::Tagged).and_only_tags(tags)
    }

    /// Restricts the allowed tools to tools whose permission tags are all in this list. Tools without tags remain allowed. A second
    /// call replaces the list of the first.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::tool::{ToolPermissions, ToolRegistry, json_tool};
    ///
    /// let tool = |name| json_tool(name, "", json!({}), |input, _| async move { Ok(input) });
    /// let registry = ToolRegistry::default()
    ///     .with(tool("add"))?
    ///     .with(tool("read").permission_tags(["disk"]))?
    ///     .with(tool("send").permission_tags(["egress"]))?;
    ///
    /// let offline = ToolPermissions::all().and_only_tags(["disk"]);
    /// assert_eq!(registry.allowed(&offline).names(), ["add", "read"]);
    /// # Ok::<(), universal_executor::tool::ToolError>(())
    /// ```
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

    /// Returns `true` if the permissions allow a call of a tool. No other function makes this decision.
    pub(super) fn allow(&self, tool: &dyn Tool) -> bool {
        let tags = &tool.settings().permission_tags;
        let is_selected = match &self.tools {
            Tools::None => false,
            Tools::Tagged => !tags.is_empty(),
            Tools::Named(names) => names.contains(tool.name()),
            Tools::All => true,
        };
        let granted = self.granted.as_ref();
        is_selected && granted.is_none_or(|granted| tags.iter().all(|tag| granted.contains(tag)))
    }
}
