use crate::error::excerpt;
use crate::model::nearest;

/// Error returned when an agent or a definition needs a model or a tool that is not registered for it.
///
/// Register the missing entry, or change the name in the definition. The message has the nearest
/// known name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NotRegistered {
    /// A model or a tool that an agent or a definition names is not registered.
    #[error(
        "{what} {name:?} is not registered; {}add it with Services::{what}; registered: {known}",
        suggestion(nearest.as_deref())
    )]
    Name {
        /// Kind of the missing entry, `model` or `tool`.
        what: &'static str,
        /// The name of the missing model or tool.
        name: String,
        /// The registered model or tool with the nearest name, if one is close.
        nearest: Option<String>,
        /// The names of the registered models or tools, truncated to 500 bytes.
        known: String,
    },
    /// A `tool.v1` definition names a tool that [`StoredDefinitions::tools`](crate::runtime::definitions::StoredDefinitions::tools)
    /// does not list.
    #[error(
        "no tool.v1 definition can run tool {name:?}; {}add the name with StoredDefinitions::tools; listed there: {known}",
        suggestion(nearest.as_deref())
    )]
    NotServed {
        /// The tool name in the `tool.v1` definition.
        name: String,
        /// The nearest tool name that `StoredDefinitions::tools` lists, if one is close.
        nearest: Option<String>,
        /// The tool names that `StoredDefinitions::tools` lists, truncated to 500 bytes.
        known: String,
    },
    /// A model configuration names a tool through which to call the model, and this tool is not registered with
    /// `Services::model_tool`.
    #[error(
        "model tool {name:?} is not registered in the services; add it with Services::model_tool, or name another tool in the model \
         configuration; registered: {known}"
    )]
    ModelTool {
        /// The name of the unregistered tool in the model configuration.
        name: String,
        /// The names of the registered tools through which agents can call a model, truncated to 500 bytes.
        known: String,
    },
    /// A definition names no model, and no default model is registered.
    #[error(
        "the agent definition names no model, and the services have no default model; name a model in the definition, or register a \
         default model with Services::default_model"
    )]
    NoDefaultModel,
}

impl NotRegistered {
    /// Returns the error for an unknown name of a model or tool.
    pub(crate) fn of<'n>(
        what: &'static str,
        name: &str,
        known: impl IntoIterator<Item = &'n str>,
    ) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        Self::Name {
            what,
            name: excerpt(name, 80).into_owned(),
            nearest: nearest(name, known.iter().copied()).map(str::to_owned),
            known: listed(&known),
        }
    }

    /// Returns the error for a tool that no `tool.v1` definition can run.
    pub(crate) fn not_served<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        Self::NotServed {
            name: excerpt(name, 80).into_owned(),
            nearest: nearest(name, known.iter().copied()).map(str::to_owned),
            known: listed(&known),
        }
    }

    pub(super) fn model_tool<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        Self::ModelTool {
            name: excerpt(name, 80).into_owned(),
            known: listed(&known),
        }
    }
}

fn listed(names: &[&str]) -> String {
    match names.is_empty() {
        true => "none".to_owned(),
        false => excerpt(&names.join(", "), 500).into_owned(),
    }
}

fn suggestion(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!("did you mean {name:?}? "),
        None => String::new(),
    }
}
