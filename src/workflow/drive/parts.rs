use crate::agent::guardrail::Guardrail;
use crate::agent::{ChatModel, Provider};
use crate::tool::ToolRegistry;
use crate::workflow::Limits;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What a service lets workflows use. A definition can name nothing else.
#[derive(Clone, Default)]
pub struct Parts {
    pub(super) tools: ToolRegistry,
    pub(super) models: BTreeMap<String, Registered>,
    pub(super) default_model: Option<Registered>,
    pub(super) guardrails: BTreeMap<String, Arc<dyn Guardrail>>,
    pub(super) limits: Limits,
}

/// What thinks.
#[derive(Clone)]
pub(super) enum Registered {
    Model(Arc<dyn ChatModel>),
    Provider(Arc<dyn Provider>),
}

impl Parts {
    /// Nothing at all.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the tools that `tools` of a definition may name.
    #[must_use]
    pub fn tools(mut self, tools: ToolRegistry) -> Self {
        self.tools = tools;
        self
    }

    /// Lets `models` of a definition name a model as their `provider`.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>, model: Arc<dyn ChatModel>) -> Self {
        self.models.insert(name.into(), Registered::Model(model));
        self
    }

    /// Lets `models` of a definition name a provider, which only agents can have: steps that ask a model need a
    /// [`model`](Self::model).
    #[must_use]
    pub fn provider(mut self, name: impl Into<String>, provider: Arc<dyn Provider>) -> Self {
        let provider = Registered::Provider(provider);
        self.models.insert(name.into(), provider);
        self
    }

    /// Sets the model of `models` that name no provider, and of agents that name no model.
    #[must_use]
    pub fn default_model(mut self, model: Arc<dyn ChatModel>) -> Self {
        self.default_model = Some(Registered::Model(model));
        self
    }

    /// Lets `policies.guardrails` of a definition name a guardrail, by the name that it has.
    #[must_use]
    pub fn guardrail(mut self, guardrail: impl Guardrail + 'static) -> Self {
        let name = guardrail.name().to_owned();
        self.guardrails.insert(name, Arc::new(guardrail));
        self
    }

    /// Sets the most that `policies.limits` of a definition may be; by default what [`Limits`] are by default. One that says
    /// nothing of a limit has its default, so where less is let here each definition has to say how little it needs.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("tools", &self.tools)
            .field("models", &self.models.keys())
            .field("has_default_model", &self.default_model.is_some())
            .field("guardrails", &self.guardrails.keys())
            .field("limits", &self.limits)
            .finish()
    }
}
