//! Model configurations that agent definitions for RCRT (Right Context Right Time) servers name in `llm_config_id`.

use crate::error::excerpt;
use crate::model::{Breadcrumb, BreadcrumbId};
use crate::store::{BreadcrumbStore, StoreError};

/// The schema of breadcrumbs that configure the model of an agent.
const SCHEMA: &str = "tool.config.v1";

/// Error returned if the model configuration breadcrumb that an agent definition names in `llm_config_id` is missing or
/// malformed.
///
/// The agent definition is rejected, and a `definition.rejected.v1` breadcrumb has this message. The runtime reads
/// `llm_config_id` only with the option `rcrt` of [`DefinitionOptions`](crate::model::DefinitionOptions) and
/// services with tools registered by `Services::model_tool`. The definition loads once the breadcrumb is fixed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BadModelConfig {
    /// The breadcrumb with the model configuration does not exist.
    #[error(
        "model configuration {id} of agent {agent:?} is missing; create a tool.config.v1 breadcrumb and set llm_config_id to its ID, \
         or set llm_config_id to null"
    )]
    Missing {
        /// ID of the agent whose model configuration is missing.
        agent: String,
        /// ID of the missing model configuration breadcrumb, as given in `llm_config_id`.
        id: BreadcrumbId,
    },
    /// The breadcrumb that `llm_config_id` names is not a usable model configuration.
    #[error("model configuration {id} of agent {agent:?} is malformed: {problem}")]
    Malformed {
        /// ID of the agent whose model configuration is malformed.
        agent: String,
        /// The breadcrumb ID of the malformed model configuration.
        id: BreadcrumbId,
        /// The problem of the model configuration, and how to fix it.
        problem: String,
    },
}

/// The model configuration that an agent definition names, as read from the store.
#[derive(Debug)]
pub(super) enum ModelConfig {
    /// The agent definition names no model configuration.
    None,
    /// The breadcrumb that the agent definition names as its model configuration is missing or malformed.
    Invalid(BadModelConfig),
    /// The agent calls its model through this tool, which the agent's model configuration names.
    Tool { tool: String, id: BreadcrumbId },
}

/// Reads the model configuration that an agent definition names. The definition itself is checked elsewhere.
///
/// # Errors
/// A [`StoreError`] if the store cannot be read.
pub(super) async fn read(
    store: &dyn BreadcrumbStore,
    definition: &Breadcrumb,
) -> Result<ModelConfig, StoreError> {
    let id = definition.context.text("llm_config_id");
    let Some(id) = id.and_then(|id| id.parse().ok()) else {
        return Ok(ModelConfig::None);
    };
    let agent = definition.context.text("agent_id").unwrap_or_default();
    let agent = excerpt(agent, 80).into_owned();
    Ok(match store.get(id).await {
        Err(StoreError::NotFound { .. }) => {
            ModelConfig::Invalid(BadModelConfig::Missing { agent, id })
        }
        Err(error) => return Err(error),
        Ok(config) => match tool_name(&config) {
            Ok(tool) => ModelConfig::Tool { tool, id },
            Err(problem) => ModelConfig::Invalid(BadModelConfig::Malformed { agent, id, problem }),
        },
    })
}

/// Returns the name of the tool through which an agent calls its model, from a model configuration.
fn tool_name(config: &Breadcrumb) -> Result<String, String> {
    let schema = config.schema_name.as_deref().unwrap_or_default();
    if schema != SCHEMA {
        let schema = excerpt(schema, 80);
        return Err(format!("its schema is {schema:?} instead of {SCHEMA:?}"));
    }
    if !config
        .context
        .get("config")
        .is_some_and(serde_json::Value::is_object)
    {
        return Err("\"config\" must be an object".to_owned());
    }
    match config.context.text("toolName") {
        Some(tool) if !tool.is_empty() => Ok(tool.to_owned()),
        Some(_) | None => {
            Err("\"toolName\" must be the name of a model tool, such as \"openrouter\"".to_owned())
        }
    }
}
