//! Implementation of [`UniversalExecutor`] for [`AgentExecutor`], which executes one run of an agent from the trigger to the
//! response.

use super::turns::Run;
use super::{AgentExecutor, AgentRunError};
use crate::error::{BoxError, permanent};
use crate::executor::{
    ExecutionContext, ExecutorError, Failure, Profile, Response, UniversalExecutor,
};
use crate::model::{Breadcrumb, Subscriptions};
use crate::store::BreadcrumbStore;
use async_trait::async_trait;
use serde_json::{Value, json};

#[async_trait]
impl UniversalExecutor for AgentExecutor {
    fn id(&self) -> &str {
        &self.definition.agent_id
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.definition.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &*self.store
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        if self.definition.requests_tools && self.is_awaited_result(trigger).await? {
            return Ok(Value::Null);
        }
        Run::new(self, context)?.finish().await
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        // The trigger is a result that another run of this agent waits for.
        if output.is_null() {
            return Ok(Response::none());
        }
        // The output of a tool or of another agent is an answer, and never an action.
        let is_own = output.get("results").is_none() && output.get("delegated").is_none();
        let text = output.get("message").and_then(Value::as_str);
        let text = text.filter(|_| is_own && self.output.is_none());
        match self.permitted_action(text.unwrap_or_default()).await? {
            Ok(Some(permitted)) => Ok(self.action_response(trigger, permitted, output)),
            Ok(None) => Ok(Self::response(trigger, output)),
            // The action was permitted when the model wrote it, and the model cannot correct it after the run.
            Err(problem) => Err(permanent(problem)),
        }
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        if !self.may_answer() {
            return Ok(Response::none());
        }
        let mut context = json!({"status": "error", "message": failure.message});
        if let (Value::Object(fields), Some(raw)) = (&mut context, bad_output(failure)) {
            fields.insert("raw".to_owned(), raw.into());
        }
        Ok(Self::response(trigger, context))
    }
}

impl AgentExecutor {
    fn response(trigger: &Breadcrumb, context: Value) -> Response {
        Response::create(Self::answer_breadcrumb(trigger, context))
    }
}

/// Returns the answer of the model if the run failed because the answer does not match the output schema.
fn bad_output(failure: &Failure) -> Option<&str> {
    let error: &ExecutorError = failure.error.as_ref()?.downcast_ref()?;
    let ExecutorError::Execute(error) = error else {
        return None;
    };
    match error.downcast_ref()? {
        AgentRunError::BadOutput { raw, .. } => Some(raw),
        AgentRunError::TurnsUsedUp { .. }
        | AgentRunError::BudgetUsedUp { .. }
        | AgentRunError::Broken { .. }
        | AgentRunError::StateTooLarge { .. }
        | AgentRunError::UnreadableState(_) => None,
    }
}
