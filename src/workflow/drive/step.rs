//! Executes one step of a flow run until the step ends or has to wait for a breadcrumb.

use super::checkpoint::{Agents, Saver};
use super::event::Emitter;
use super::outcome::{failed_with, of_answer, of_error};
use super::step_breadcrumbs::{StepBreadcrumb, StepBreadcrumbs};
use super::waiting::{Awaited, Wait};
use super::{Assembly, Conversations};
use crate::error::BoxError;
use crate::executor::{ExecutionContext, WriteRestriction};
use crate::machine::{Deferral, MachineCall, ToolOutcome};
use crate::model::{Json, NewBreadcrumb, Timestamp, request_tag};
use crate::request::human;
use crate::store::{BreadcrumbStoreExt as _, Wake};
use crate::tool::{self, NeededApproval, Tool, ToolSettings};
use crate::workflow::{Ready, StepOutcome, StepTask};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Default maximum time for which a step of a flow waits for a person or an event.
pub(super) const DEFAULT_WAIT_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A running step of a flow run, with the data that its work needs.
pub(super) struct Step<'d> {
    pub(super) assembly: &'d Assembly,
    pub(super) context: &'d ExecutionContext,
    pub(super) emitter: Arc<Emitter>,
    pub(super) ready: Arc<Ready>,
    /// If `true`, a worker that failed may have done part of the step's work already.
    pub(super) again: bool,
    /// Digest of the tool call that a person approved for the step.
    pub(super) approved: Option<String>,
    /// Changed input for the step's tool call, written by the approver. Replaces the input of the step.
    pub(super) changed: Option<Json>,
    /// Number of earlier approvals of the step's tool call, which gives each repeated approval request a new ID.
    pub(super) approvals: u32,
    /// Time after which a breadcrumb must be updated to end the wait of the step, if it is a `wait_for` step.
    pub(super) since: Timestamp,
    /// Time at which the timeout of the step ends, if it has one.
    pub(super) until: Option<Timestamp>,
    pub(super) agents: Agents,
    /// Breadcrumbs that this attempt at the step has written or received.
    pub(super) breadcrumbs: StepBreadcrumbs,
    pub(super) saver: Saver,
    pub(super) conversations: Option<Arc<dyn Conversations>>,
    /// Text of the user's chat message that the flow run processes, or `None` if the input is not from a user.
    pub(super) user_message: Option<Arc<str>>,
}

/// Result of executing a flow step: the step's outcome, or the breadcrumb or time for which the step waits.
pub(super) enum StepResult {
    /// The step ended with this outcome.
    Ended(StepOutcome),
    /// The step waits for a breadcrumb, such as an answer or an event.
    Waits(Wait),
    /// The agents of the step are suspended until one of the breadcrumbs or the time in `wake`.
    AgentsWait { ticket: String, wake: Wake },
}

impl Step<'_> {
    /// Executes the task of the flow step until the step ends or has to wait for a breadcrumb or a time.
    ///
    /// # Errors
    /// Returns errors of the store and the run. A failure of the step itself is an outcome.
    pub(super) async fn work(self) -> Result<StepResult, BoxError> {
        match &self.ready.task {
            StepTask::Agent { agent, input } => self.agent(agent, input).await,
            StepTask::Tool { tool, input } => self.tool(tool, input.clone()).await,
            StepTask::Model {
                model,
                prompt,
                input,
                output,
            } => {
                let asked = self.model(model, prompt.as_deref(), input, output.as_deref());
                asked.await.map(StepResult::Ended)
            }
            StepTask::WaitFor { .. } => {
                let now = self.context.now();
                Ok(self.wait(
                    "event",
                    Awaited::Event,
                    (self.since, now),
                    DEFAULT_WAIT_TIMEOUT,
                ))
            }
            StepTask::Ask {
                question,
                of,
                output,
            } => {
                // The schema of the definition applies to the answer of an `ask` step.
                let on = Awaited::Person {
                    of: of.clone(),
                    schema: None,
                };
                let fields = self.question(question, of, output.as_deref());
                self.ask_person("question", on, fields, None).await
            }
            StepTask::Emit { breadcrumb } => match self.emit(breadcrumb.clone(), "").await {
                Ok(_) => Ok(StepResult::Ended(StepOutcome::success(Value::Null))),
                Err(error) => failed_with(error).map(StepResult::Ended),
            },
        }
    }

    async fn tool(&self, name: &str, input: Json) -> Result<StepResult, BoxError> {
        let assembly = self.assembly;
        let input = self.changed.clone().unwrap_or(input);
        let input = match assembly.guardrails.tool_call(name, input).await {
            Ok(input) => input,
            Err(answer) => return Ok(StepResult::Ended(of_error(answer, None))),
        };
        let Some(settings) = assembly.tools.get(name).map(Tool::settings) else {
            let failure = StepOutcome::failure("unknown_tool", "the workflow has no such tool");
            return Ok(StepResult::Ended(failure));
        };
        let digest = assembly.digest_of(name, &input);
        let is_approved = self.approved.as_ref() == Some(&digest);
        let needed = NeededApproval::by_rules(&settings.approvals, &[], &input);
        if let Some(needed) = needed.filter(|_| !is_approved) {
            return self.ask_approval(name, &input, digest, needed).await;
        }
        if settings.over_breadcrumbs {
            return self.request_tool(name, input, settings.timeout).await;
        }
        if self.again && !settings.retry.allows_repeat() {
            return Ok(StepResult::Ended(of_error(tool::unknown_outcome(), None)));
        }
        self.call(name, input, settings, is_approved).await
    }

    async fn call(
        &self,
        name: &str,
        input: Json,
        settings: &ToolSettings,
        is_approved: bool,
    ) -> Result<StepResult, BoxError> {
        let Assembly {
            tools,
            store,
            guardrails,
            ..
        } = self.assembly;
        let call = MachineCall::new(self.ready.path.as_str(), name, input);
        let by = self.assembly.workflow().name.as_deref();
        // Otherwise a tool that writes its input could send requests and answers in the name of the workflow.
        let context = &self.context.writing_only(WriteRestriction::Unreserved);
        let outcome = match is_approved {
            true => tools.call_approved(call, by, context, store).await,
            false => tools.call(call, by, context, store).await,
        };
        match outcome {
            ToolOutcome::Answered(answer) => {
                let answer = guardrails.tool_result(name, answer).await;
                Ok(StepResult::Ended(of_answer(answer, settings)))
            }
            ToolOutcome::Deferred(Deferral::Other { kind, payload }) if kind == "question" => {
                let asked = human::question_of_tool(&payload);
                let schema = human::QuestionSchema::of(&asked, "schema");
                let on = Awaited::Person {
                    of: Vec::new(),
                    schema,
                };
                self.ask_person("question", on, asked, None).await
            }
            ToolOutcome::Deferred(
                Deferral::Handoff { .. } | Deferral::PlannerOutput(_) | Deferral::Other { .. },
            ) => {
                let message = "the tool deferred its result, which only agents support; use the tool in an agent";
                Ok(StepResult::Ended(StepOutcome::failure(
                    "cannot_defer",
                    message,
                )))
            }
        }
    }

    async fn request_tool(
        &self,
        name: &str,
        input: Json,
        time: Duration,
    ) -> Result<StepResult, BoxError> {
        if let Err(answer) = self.assembly.tools.check_input(name, &input) {
            return Ok(StepResult::Ended(of_error(answer, None)));
        }
        let ticket = self.ticket("tool");
        let by = self.assembly.workflow().name.as_deref();
        let request = tool::request(name, input.into_value(), &ticket, by);
        let asked = self.post(request, &request_tag(&ticket)).await;
        match asked {
            Ok(at) => Ok(self.wait("tool", Awaited::Tool, (at, at), time)),
            Err(error) => failed_with(error).map(StepResult::Ended),
        }
    }

    /// Returns the JSON content of the question that an `ask` step puts to people. The content includes the people and the schema
    /// of the answer, because the service that shows the question cannot see the definition.
    fn question(&self, question: &str, of: &[String], output: Option<&str>) -> Value {
        let mut asked = Map::from_iter([("question".to_owned(), Value::from(question))]);
        if !of.is_empty() {
            asked.insert("of".to_owned(), of.into());
        }
        let schemas = &self.assembly.workflow().schemas;
        if let Some(schema) = output.and_then(|name| schemas.get(name)) {
            asked.insert("schema".to_owned(), (**schema).clone());
        }
        human::question(&Value::Object(asked).into())
    }

    /// Writes a question to a person and waits for the answer. The question expires with the timeout of the step, or earlier after
    /// `expires_in`. The ticket depends on the fields: a flow that starts again can ask with other fields, and an answer counts only for
    /// the question that the person saw.
    pub(super) async fn ask_person(
        &self,
        what: &str,
        on: Awaited,
        fields: Value,
        expires_in: Option<Duration>,
    ) -> Result<StepResult, BoxError> {
        let of_fields = human::fingerprint_of_question(&fields);
        let ticket = self.ticket(&format!("{what} {of_fields}"));
        let until = self.end_of_question(self.context.now(), expires_in);
        let by = self
            .assembly
            .workflow()
            .name
            .as_deref()
            .unwrap_or("workflow");
        let request = human::request(fields, &ticket, by, until);
        match self.post(request, &request_tag(&ticket)).await {
            Ok(at) => Ok(StepResult::Waits(Wait {
                ticket,
                since: at,
                until: match self.context.correlation_id() {
                    // An earlier attempt may have written the question, with an earlier end.
                    Some(_) => until.min(self.end_of_question(at, expires_in)),
                    // `at` is a time of the store's clock, and the wait ends by the machine's clock.
                    None => until,
                },
                on,
            })),
            Err(error) => failed_with(error).map(StepResult::Ended),
        }
    }

    /// Returns the time at which a question to a person expires. `asked` is the time when the step wrote the question.
    fn end_of_question(&self, asked: Timestamp, expires_in: Option<Duration>) -> Timestamp {
        let expires = expires_in.map(|time| asked + time);
        let ends = self.until.into_iter().chain(expires).min();
        ends.unwrap_or(asked + DEFAULT_WAIT_TIMEOUT)
    }

    /// Returns the step result that suspends the step until an answer or event arrives: a breadcrumb that is updated after
    /// `since`. The wait ends with the timeout of the step, or `timeout` after `begins`.
    fn wait(
        &self,
        what: &str,
        on: Awaited,
        (since, begins): (Timestamp, Timestamp),
        timeout: Duration,
    ) -> StepResult {
        StepResult::Waits(Wait {
            ticket: self.ticket(what),
            since,
            until: self.until.unwrap_or(begins + timeout),
            on,
        })
    }

    /// Returns the ticket of this attempt at the step: an ID that connects the step's request, if there is one, with the answer
    /// to this request. Both contain the ID.
    pub(super) fn ticket(&self, what: &str) -> String {
        let (key, attempt) = (&self.ready.idempotency_key, self.ready.attempt.to_string());
        human::hash(&[key, &attempt, what])
    }

    /// Writes a breadcrumb of the step or of one of its agents, unless an earlier execution of the step has already written it,
    /// perhaps on another worker. `of` distinguishes the breadcrumbs of one step.
    pub(super) async fn emit(&self, new: NewBreadcrumb, of: &str) -> Result<Timestamp, BoxError> {
        let id = human::hash(&[&self.ready.idempotency_key, "emit", of]);
        let tag = format!("step:{id}");
        self.post(new.tag(&*tag), &tag).await
    }

    /// Writes a breadcrumb, unless an earlier execution of the step has written one with the same identifying tag, perhaps on
    /// another worker. Returns the time when the breadcrumb was written.
    pub(super) async fn post(&self, new: NewBreadcrumb, tag: &str) -> Result<Timestamp, BoxError> {
        let schema = new.schema_name.clone().unwrap_or_default();
        let written = match self.may_have_begun() && !tag.is_empty() {
            true => {
                let store = &*self.assembly.store;
                self.context.find_own(store, &schema, tag).await?
            }
            false => None,
        };
        let written = match written {
            Some(written) => written,
            None => {
                let store = Arc::clone(&self.assembly.store);
                let store = self.context.bound_store(store);
                store.create(new).await?
            }
        };
        self.breadcrumbs.add(
            &schema,
            written.id,
            StepBreadcrumb::written(written.created_at),
        );
        Ok(written.created_at)
    }

    /// Returns `true` if the step was started before, so that its breadcrumbs may exist. An attempt that timed out or lost its
    /// worker may have written them.
    fn may_have_begun(&self) -> bool {
        self.again || self.ready.attempt > 1
    }
}
