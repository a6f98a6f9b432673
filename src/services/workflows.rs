//! Registry entries that only workflows can name: guardrails and limits.

use super::{Services, WorkflowLimits};
use crate::agent::guardrail::Guardrail;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Services {
    /// Registers a guardrail under its own name, which workflows list in `policies.guardrails`. Replaces a guardrail
    /// with the same name.
    ///
    /// A guardrail has no effect on workflows that do not list it.
    #[must_use]
    pub fn guardrail(mut self, guardrail: impl Guardrail + 'static) -> Self {
        let name = guardrail.name().to_owned();
        let guardrails = &mut self.entries_mut().guardrails;
        guardrails.insert(name, Arc::new(guardrail));
        self
    }

    /// Sets the maximum for each limit in `policies.limits` of a workflow. Defaults to [`WorkflowLimits::default`].
    ///
    /// A workflow without a limit has the default limit. If the maximum is lower than the default, each workflow must
    /// set a limit within the maximum.
    #[must_use]
    pub fn limits(mut self, limits: WorkflowLimits) -> Self {
        self.entries_mut().limits = limits;
        self
    }

    /// Returns the registered guardrails by name.
    pub(crate) fn guardrails(&self) -> &BTreeMap<String, Arc<dyn Guardrail>> {
        &self.entries.guardrails
    }

    /// Returns the maximum for each limit of a workflow.
    pub(crate) fn max_limits(&self) -> &WorkflowLimits {
        &self.entries.limits
    }
}
