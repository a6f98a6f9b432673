//! Checks of an agent's final answer, and the breadcrumb writes that the answer requests as an action.

use super::AgentExecutor;
use super::action::{Action, MAX_TAGS, PermittedWrite, Rules};
use crate::clock;
use crate::error::BoxError;
use crate::executor::{PagedSearch, Response};
use crate::model::{
    Breadcrumb, BreadcrumbId, NewBreadcrumb, REQUEST_TAG, Selector, Timestamp, request_tag,
};
use crate::store::{StoreError, WrittenBy};
use crate::tool::{self, ToolExecutor};
use serde_json::{Value, json};
use std::sync::Arc;

impl AgentExecutor {
    /// Checks an agent's final answer with the output guardrails, and then against the output schema or the rules for actions. Returns the
    /// answer, possibly changed by the guardrails, and the problem with the answer, if any.
    ///
    /// # Errors
    /// [`Denied`](super::guardrail::Denied) by a guardrail, or the error of the store when it reads the target of an action.
    pub(super) async fn check_final_answer(
        &self,
        text: String,
    ) -> Result<(String, Option<AnswerProblem>), BoxError> {
        let text = match self.apply_output_guardrails(text).await? {
            Ok(text) => text,
            Err(problem) => {
                let may_be_shown = false;
                return Ok((
                    String::new(),
                    Some(AnswerProblem {
                        problem,
                        may_be_shown,
                    }),
                ));
            }
        };
        let problem = match &self.output {
            Some(output) => output.read(&text).err(),
            None => match self.permitted_action(&text).await? {
                Ok(Some(_)) => None,
                Ok(None) if self.may_answer() => None,
                Ok(None) => Some("the answer must be an action; text is not permitted".to_owned()),
                Err(problem) => Some(problem),
            },
        };
        let may_be_shown = true;
        let answer_problem = problem.map(|problem| AnswerProblem {
            problem,
            may_be_shown,
        });
        Ok((text, answer_problem))
    }

    /// Checks the final text of an agent's model with the agent's output guardrails. Returns the text, possibly changed, or the reason why
    /// the model must answer again.
    ///
    /// # Errors
    /// [`Denied`](super::guardrail::Denied) if a guardrail denies the text and does not permit another answer.
    pub(super) async fn apply_output_guardrails(
        &self,
        text: String,
    ) -> Result<Result<String, String>, BoxError> {
        match self.guardrails.output(text).await {
            Ok(text) => Ok(Ok(text)),
            Err(denied) if denied.try_again => Ok(Err(denied.reason)),
            Err(denied) => Err(denied.into()),
        }
    }

    /// Returns `true` if the agent may answer with text, which requires the schema `agent.response.v1` in `responds_with`.
    pub(super) fn may_answer(&self) -> bool {
        let mut written = self.definition.responds_with.iter();
        written.any(|schema| schema == Self::RESPONSE)
    }

    /// Returns the breadcrumb write that a model answer requests as an action, or `None` if the answer is not an action. If the action is
    /// malformed or not permitted, the inner error is the reason, as text for the model.
    pub(super) async fn permitted_action(
        &self,
        text: &str,
    ) -> Result<Result<Option<PermittedWrite>, String>, BoxError> {
        let Some(capabilities) = &self.definition.capabilities else {
            return Ok(Ok(None));
        };
        let action = match Action::read(text) {
            Ok(Some(action)) => action,
            Ok(None) => return Ok(Ok(None)),
            Err(problem) => return Ok(Err(problem)),
        };
        let own = match action.target() {
            Some(id) => self.own_breadcrumb(id).await?,
            None => None,
        };
        let rules = Rules {
            capabilities,
            responds_with: &self.definition.responds_with,
            creates_any_schema: self.definition.creates_any_schema,
        };
        let permitted = action.permit(&rules, own.as_deref());
        Ok(permitted.map(Some).map_err(|error| error.to_string()))
    }

    /// Returns the breadcrumb with this ID from the agent's store, or `None` if it is missing or this agent did not write its current
    /// version. If the store records writers, only the records count, because a `creator` can be forged.
    async fn own_breadcrumb(
        &self,
        id: BreadcrumbId,
    ) -> Result<Option<Arc<Breadcrumb>>, StoreError> {
        let found = match self.store.get(id).await {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_own = self.has_written(&found).await?;
        let agent = &*self.definition.agent_id;
        let is_own = is_own && found.created_by.as_deref().is_none_or(|by| by == agent);
        Ok(is_own.then_some(found))
    }

    /// Returns `true` if the trigger breadcrumb answers a tool request that a run of this agent wrote. The requesting run receives the
    /// response, so the response does not need another run.
    pub(super) async fn is_awaited_result(&self, trigger: &Breadcrumb) -> Result<bool, StoreError> {
        if trigger.schema_name.as_deref() != Some(ToolExecutor::RESPONSE) {
            return Ok(false);
        }
        let Some(id) = tool::answered_request(trigger) else {
            return Ok(false);
        };
        let requests = Selector::schema(ToolExecutor::REQUEST).all_tags([request_tag(id)]);
        let mut pages = PagedSearch::new(&*self.store, requests);
        while let Some(page) = pages.next().await? {
            for request in &page {
                if self.has_written(request).await? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns `true` if this agent wrote the current version of a breadcrumb.
    async fn has_written(&self, found: &Breadcrumb) -> Result<bool, StoreError> {
        let agent = &*self.definition.agent_id;
        let records = self.store.capabilities().lineage;
        Ok(match self.store.ledger().filter(|_| records) {
            Some(ledger) => {
                let writers = ledger.written_by(&[(found.id, found.version)]).await?;
                writers.first() == Some(&WrittenBy::Executor(agent.into()))
            }
            None => {
                let creator = found.context.get("creator");
                let named = creator.and_then(|creator| creator.get("agent_id")?.as_str());
                named == Some(agent)
            }
        })
    }

    /// Converts a permitted action of an agent's model to the response of the run, which writes the breadcrumbs. If the trigger
    /// is a request, the response also contains an answer to the requester.
    pub(super) fn action_response(
        &self,
        trigger: &Breadcrumb,
        permitted: PermittedWrite,
        context: Value,
    ) -> Response {
        let requests = || request_tags(trigger, MAX_TAGS);
        let response = match permitted {
            PermittedWrite::Nothing => Response::none(),
            PermittedWrite::Create(new) if new.schema_name.as_deref() == Some(Self::RESPONSE) => {
                let new = with_fields(new, context);
                return Response::create(new.tags(requests()));
            }
            PermittedWrite::Create(new) => Response::create(new),
            PermittedWrite::Update { id, version, patch } => {
                Response::none().and_update(id, version, patch)
            }
            PermittedWrite::Delete { id, .. } => Response::none().and_delete(id),
        };
        if requests().next().is_none() || !self.may_answer() {
            return response;
        }
        response.and_create(Self::answer_breadcrumb(trigger, context))
    }

    /// Returns the `agent.response.v1` breadcrumb with the agent's answer to a trigger.
    pub(super) fn answer_breadcrumb(trigger: &Breadcrumb, mut context: Value) -> NewBreadcrumb {
        let now = Timestamp::from_micros(clock::wall_micros());
        if let Value::Object(fields) = &mut context {
            fields.insert("trigger_event_id".to_owned(), json!(trigger.id));
            fields.insert("timestamp".to_owned(), json!(now));
        }
        NewBreadcrumb::new(Self::RESPONSE)
            .title("Agent Response")
            .tag("agent:response")
            .tags(request_tags(trigger, 1))
            .context(context)
    }
}

/// The reason why an agent run rejects the final answer of the agent's model.
#[derive(Debug)]
pub(super) struct AnswerProblem {
    /// The problem with the model's answer. The model receives this text to correct the answer.
    pub(super) problem: String,
    /// If `true`, errors of the run may quote the model's answer; `false` if a guardrail rejected the answer.
    pub(super) may_be_shown: bool,
}

/// Adds the fields of an agent run, such as `status`, `usage` and `outputs`, to a response that an action creates.
fn with_fields(new: NewBreadcrumb, run: Value) -> NewBreadcrumb {
    let (mut context, Value::Object(fields)) = (new.context.clone().into_value(), run) else {
        return new;
    };
    if let Value::Object(own) = &mut context {
        for (name, value) in fields.into_iter().filter(|(name, _)| name != "message") {
            own.entry(name).or_insert(value);
        }
    }
    new.context(context)
}

/// Returns the request tags (`request:<id>`) of a trigger breadcrumb, for the breadcrumb that answers the trigger.
/// `other_tag_count` is the number of other tags on the answer.
pub(crate) fn request_tags(
    trigger: &Breadcrumb,
    other_tag_count: usize,
) -> impl Iterator<Item = String> {
    let requests = trigger
        .tags
        .iter()
        .filter(|tag| tag.starts_with(REQUEST_TAG));
    requests
        .take(Breadcrumb::MAX_TAGS.saturating_sub(other_tag_count))
        .cloned()
}
