use super::FallbackModel;
use super::driver::{Core, Entry};
use super::policy::ModelPolicy;
use super::shared::{SharedLimits, SharedUsage};
use super::states::ModelStates;
use crate::agent::ChatModel;
use crate::error::Retry;
use std::fmt;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// Builder of a [`FallbackModel`], from [`FallbackModel::builder`].
///
/// # Examples
/// ```
/// use universal_executor::agent::{FallbackError, FallbackModel, ModelPolicy, ScriptedModel};
///
/// let twice = FallbackModel::builder()
///     .model("large", ScriptedModel::new(["Hello!"]))
///     .model_with("large", ScriptedModel::new(["Hello!"]), ModelPolicy::new())
///     .build();
/// assert!(matches!(twice, Err(FallbackError::DuplicateName { name }) if name == "large"));
/// ```
#[derive(Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct FallbackModelBuilder {
    models: Vec<(String, Arc<dyn ChatModel>, ModelPolicy)>,
    shared: Option<SharedLimits>,
}

/// Maximum size of a model name or of a group in bytes.
const MAX_NAME_BYTES: usize = 64;

impl FallbackModelBuilder {
    /// Adds a model with the default [`ModelPolicy`] to the end of the list.
    ///
    /// The name identifies the model in the run, in errors and in logs. It has 1 to 64 bytes and no control characters.
    pub fn model(self, name: impl Into<String>, model: impl ChatModel + 'static) -> Self {
        self.model_with(name, model, ModelPolicy::default())
    }

    /// Adds a model with its policy to the end of the list.
    ///
    /// See [`model`](Self::model) for the name.
    pub fn model_with(
        mut self,
        name: impl Into<String>,
        model: impl ChatModel + 'static,
        policy: ModelPolicy,
    ) -> Self {
        self.models.push((name.into(), Arc::new(model), policy));
        self
    }

    /// Shares the rate limits with other processes, through a store. Defaults to limits of this process only.
    pub fn shared_limits(mut self, limits: SharedLimits) -> Self {
        self.shared = Some(limits);
        self
    }

    /// Creates the model.
    ///
    /// # Errors
    /// [`FallbackError`] if the list is empty or has more than [`FallbackModel::MAX_MODELS`] models, if a name or a policy is invalid, or if
    /// two models have the same name.
    pub fn build(self) -> Result<FallbackModel, FallbackError> {
        self.check()?;
        let now = Instant::now();
        let entries = self.models.into_iter().map(|(name, model, policy)| Entry {
            name: name.into(),
            model,
            policy,
        });
        let entries: Vec<Entry> = entries.collect();
        let names = entries.iter().map(|entry| Arc::clone(&entry.name));
        let names = names.collect();
        let shared = self
            .shared
            .map(|limits| SharedUsage::new(limits, names, now));
        let policies = entries.iter().map(|entry| entry.policy);
        let states = Mutex::new(ModelStates::new(policies, now));
        Ok(FallbackModel {
            core: Arc::new(Core {
                entries,
                states,
                shared,
            }),
        })
    }

    fn check(&self) -> Result<(), FallbackError> {
        let limit = FallbackModel::MAX_MODELS;
        if self.models.is_empty() {
            return Err(FallbackError::NoModels);
        }
        if self.models.len() > limit {
            return Err(FallbackError::TooManyModels { limit });
        }
        let group = self.shared.as_ref().map(|shared| shared.group.as_str());
        let names = self.models.iter().map(|(name, _, _)| name.as_str());
        for name in names.chain(group) {
            if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(char::is_control) {
                let name = crate::error::excerpt(name, MAX_NAME_BYTES).into_owned();
                return Err(FallbackError::BadName { name });
            }
        }
        for (index, (name, _, policy)) in self.models.iter().enumerate() {
            let name = name.clone();
            if let Some(problem) = policy.problem() {
                return Err(FallbackError::BadPolicy { name, problem });
            }
            let mut earlier = self.models.iter().take(index);
            if earlier.any(|(earlier, _, _)| *earlier == name) {
                return Err(FallbackError::DuplicateName { name });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for FallbackModelBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.models.iter().map(|(name, _, _)| name).collect();
        f.debug_struct("FallbackModelBuilder")
            .field("models", &names)
            .finish_non_exhaustive()
    }
}

/// Error returned when a [`FallbackModel`] cannot be built.
///
/// Correct the configuration; a retry cannot succeed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FallbackError {
    /// The list has no models.
    #[error("a FallbackModel needs at least one model; add one with FallbackModelBuilder::model")]
    NoModels,
    /// The list has too many models.
    #[error("a FallbackModel has more than {limit} models; remove some of them")]
    TooManyModels {
        /// The maximum number of models in a list.
        limit: usize,
    },
    /// The name of a model, or the group of the shared limits, is empty, longer than 64 bytes, or contains a control character.
    #[error("the model name or group {name:?} must have 1 to 64 bytes and no control characters")]
    BadName {
        /// The invalid name, cut to 64 bytes.
        name: String,
    },
    /// Two models of the list have the same name.
    #[error("two models of a FallbackModel have the name {name:?}; rename one of them")]
    DuplicateName {
        /// The name that two models of the list share.
        name: String,
    },
    /// The policy of a model is invalid.
    #[error("the policy of the model {name:?} has {problem}")]
    BadPolicy {
        /// The name of the model with the invalid policy.
        name: String,
        /// The problem with the policy, and the correction.
        problem: &'static str,
    },
}

impl FallbackError {
    /// Returns [`Retry::Never`], because the configuration must change first.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::NoModels
            | Self::TooManyModels { .. }
            | Self::BadName { .. }
            | Self::DuplicateName { .. }
            | Self::BadPolicy { .. } => Retry::Never,
        }
    }
}
