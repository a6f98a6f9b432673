//! Types that an agent accepts as its model.

use super::ChatModel;
use std::fmt;
use std::sync::Arc;

/// A type that [`Agent::new`](super::Agent::new) accepts as its model.
///
/// Every [`ChatModel`] implements it, and so does `&str`: the name of a model or provider in the [`Services`](crate::Services) with
/// which the agent is bound. Other types need not implement it.
///
/// # Examples
/// ```
/// use universal_executor::agent::{AgentModel, IntoModel, ScriptedModel};
///
/// assert!(matches!("small".into_model(), AgentModel::Named(name) if name == "small"));
/// assert!(matches!(ScriptedModel::new(["Hello!"]).into_model(), AgentModel::Model(_)));
/// ```
pub trait IntoModel {
    /// Converts the value to the model of an agent, or to the name of a registered model.
    fn into_model(self) -> AgentModel;
}

impl<M: ChatModel + 'static> IntoModel for M {
    fn into_model(self) -> AgentModel {
        AgentModel::Model(Arc::new(self))
    }
}

impl IntoModel for &str {
    fn into_model(self) -> AgentModel {
        AgentModel::Named(self.to_owned())
    }
}

/// The model of an [`Agent`](super::Agent), as [`IntoModel`] returns it.
///
/// Ordinary programs do not need this type, because [`Agent::new`](super::Agent::new) accepts
/// models and names directly.
#[derive(Clone)]
#[non_exhaustive]
pub enum AgentModel {
    /// A model that the agent calls.
    Model(Arc<dyn ChatModel>),
    /// The name of a model or provider in the [`Services`](crate::Services).
    ///
    /// Binding the agent without such an entry is [`AgentError::Model`](super::AgentError::Model),
    /// and without services [`AgentError::NamedModel`](super::AgentError::NamedModel).
    Named(String),
}

impl fmt::Debug for AgentModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(_) => f.debug_tuple("Model").finish_non_exhaustive(),
            Self::Named(name) => f.debug_tuple("Named").field(name).finish(),
        }
    }
}
