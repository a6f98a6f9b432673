//! What is done for one step: a future that ends with what is told of it.

use super::Assembly;
use super::asked::{Came, result_of};
use super::event::{Emitter, StepEventKind};
use super::heard::Listener;
use super::kept::{Agents, AtWork, Saver};
use super::waiting::{Awaited, Wait};
use crate::agent::guardrail::Denied;
use crate::agent::{
    AgentRunError, ChatModel as _, ChatRequest, Message, ModelError, Output, ResponseSchema, human,
};
use crate::error::{BoxError, Retry, excerpt, unmarked};
use crate::executor::{ContextError, ExecutionContext, Verdict, verdict};
use crate::machine::{Answer, Deferral, ToolCall, ToolOutcome};
use crate::model::{Json, NewBreadcrumb, Selector, Timestamp};
use crate::store::{BreadcrumbStoreExt as _, Query, StoreError, Wake};
use crate::tool::{self, Tool, ToolSettings};
use crate::workflow::{MayRetry, Outcome, Ready, StepFailure, Task};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// How long people and events are waited for if the step does not say.
pub(super) const PATIENCE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A step at work.
pub(super) struct Step<'d> {
    pub(super) assembly: &'d Assembly,
    pub(super) context: &'d ExecutionContext,
    pub(super) emitter: Arc<Emitter>,
    pub(super) ready: Arc<Ready>,
    /// Whether a worker that is gone may have done some of it.
    pub(super) again: bool,
    /// The digest of the call that a person agreed to.
    pub(super) approved: Option<String>,
    /// When its time is up, if it has a time.
    pub(super) until: Option<Timestamp>,
    pub(super) agents: Agents,
    pub(super) saver: Saver,
}

/// How the work on a step ended.
pub(super) enum Worked {
    Told(Outcome),
    /// It goes on with a breadcrumb.
    Waits(Wait),
    /// Its agents go on with a breadcrumb, and say which.
    Asleep {
        ticket: String,
        wake: Wake,
    },
}

impl Step<'_> {
    /// Does it.
    ///
    /// # Errors
    /// What is wrong with the store or the run. What is wrong with the step is an outcome of it.
    pub(super) async fn work(self) -> Result<Worked, BoxError> {
        match &self.ready.task {
            Task::Agent { agent, input } => self.agent(agent, input).await,
            Task::Tool { tool, input } => self.tool(tool, input.clone()).await,
            Task::Model {
                model,
                prompt,
                input,
                output,
            } => {
                let asked = self.model(model, prompt.as_deref(), input, output.as_deref());
                asked.await.map(Worked::Told)
            }
            Task::WaitFor { .. } => {
                Ok(self.wait("event", Awaited::Event, self.context.now(), PATIENCE))
            }
            Task::Ask { question, of, .. } => {
                let on = Awaited::Person { of: of.clone() };
                let fields = human::question(&Value::from(question.as_str()).into());
                self.ask_person("question", on, fields).await
            }
            Task::Emit { breadcrumb } => match self.emit(breadcrumb.clone()).await {
                Ok(()) => Ok(Worked::Told(Outcome::success(Value::Null))),
                Err(error) => failed_with(error).map(Worked::Told),
            },
        }
    }

    async fn agent(&self, agent: &str, input: &Json) -> Result<Worked, BoxError> {
        let at_work = AtWork {
            agent: agent.to_owned(),
            input: input.clone(),
            state: None,
            asked_by: None,
            answer: None,
        };
        self.agents.add("", at_work);
        let path = self.ready.path.clone();
        Ok(match self.work_of_agent(String::new(), path).await? {
            Came::Answer(answer) => Worked::Told(result_of(&answer)),
            Came::Failed(outcome) => Worked::Told(outcome),
            Came::Waits(wake) => Worked::Asleep {
                ticket: self.ticket("agent"),
                wake,
            },
        })
    }

    async fn tool(&self, name: &str, input: Json) -> Result<Worked, BoxError> {
        let assembly = self.assembly;
        let input = match assembly.guardrails.tool_call(name, input).await {
            Ok(input) => input,
            Err(answer) => return Ok(Worked::Told(of_error(answer, None))),
        };
        let Some(settings) = assembly.tools.get(name).map(Tool::settings) else {
            let failure = Outcome::failure("unknown_tool", "there is no such tool");
            return Ok(Worked::Told(failure));
        };
        let digest = human::digest(name, &input, assembly.workflow().hash());
        let is_approved = self.approved.as_ref() == Some(&digest);
        if settings.requires_approval && !is_approved {
            let call = ToolCall::new(self.ready.path.as_str(), name, input.clone());
            let fields = human::approval(&call, &input, &digest);
            return self
                .ask_person("approval", Awaited::Approval { digest }, fields)
                .await;
        }
        if settings.over_breadcrumbs {
            return self.request_tool(name, input, settings.timeout).await;
        }
        if self.again && !settings.retry.may_be_made_again() {
            return Ok(Worked::Told(of_error(tool::unknown_outcome(), None)));
        }
        self.call(name, input, settings, is_approved).await
    }

    async fn call(
        &self,
        name: &str,
        input: Json,
        settings: &ToolSettings,
        is_approved: bool,
    ) -> Result<Worked, BoxError> {
        let Assembly {
            tools,
            store,
            guardrails,
            ..
        } = self.assembly;
        let call = ToolCall::new(self.ready.path.as_str(), name, input);
        let by = self.assembly.workflow().name.as_deref();
        let outcome = match is_approved {
            true => tools.call_approved(call, by, self.context, store).await,
            false => tools.call(call, by, self.context, store).await,
        };
        match outcome {
            ToolOutcome::Answered(answer) => {
                let answer = guardrails.tool_result(name, answer).await;
                Ok(Worked::Told(of_answer(answer, settings)))
            }
            ToolOutcome::Deferred(Deferral::Other { kind, payload }) if kind == "question" => {
                let on = Awaited::Person { of: Vec::new() };
                self.ask_person("question", on, human::question(&payload))
                    .await
            }
            ToolOutcome::Deferred(
                Deferral::Handoff { .. } | Deferral::PlannerOutput(_) | Deferral::Other { .. },
            ) => {
                let message = "the tool leaves its result to somebody else, and a step has nobody who would give it";
                Ok(Worked::Told(Outcome::failure("cannot_defer", message)))
            }
        }
    }

    async fn request_tool(
        &self,
        name: &str,
        input: Json,
        time: Duration,
    ) -> Result<Worked, BoxError> {
        if let Err(answer) = self.assembly.tools.check_input(name, &input) {
            return Ok(Worked::Told(of_error(answer, None)));
        }
        let ticket = self.ticket("tool");
        let by = self.assembly.workflow().name.as_deref();
        let request = tool::request(name, input.into_value(), &ticket, by);
        let asked = self.post(request, &tool::request_tag(&ticket)).await;
        match asked {
            Ok(at) => Ok(self.wait("tool", Awaited::Tool, at, time)),
            Err(error) => failed_with(error).map(Worked::Told),
        }
    }

    async fn ask_person(&self, what: &str, on: Awaited, fields: Value) -> Result<Worked, BoxError> {
        let ticket = self.ticket(what);
        let until = self.until.unwrap_or_else(|| self.context.now() + PATIENCE);
        let by = self
            .assembly
            .workflow()
            .name
            .as_deref()
            .unwrap_or("workflow");
        let request = human::request(fields, &ticket, by, until);
        match self.post(request, &tool::request_tag(&ticket)).await {
            Ok(at) => Ok(self.wait(what, on, at, PATIENCE)),
            Err(error) => failed_with(error).map(Worked::Told),
        }
    }

    fn wait(&self, what: &str, on: Awaited, since: Timestamp, lasts: Duration) -> Worked {
        Worked::Waits(Wait {
            ticket: self.ticket(what),
            since,
            until: self.until.unwrap_or(since + lasts),
            on,
        })
    }

    /// What names a request of this attempt, and what it waits for.
    fn ticket(&self, what: &str) -> String {
        let (key, attempt) = (&self.ready.idempotency_key, self.ready.attempt.to_string());
        human::hash(&[key, &attempt, what])
    }

    async fn model(
        &self,
        name: &str,
        prompt: Option<&str>,
        input: &Json,
        output: Option<&str>,
    ) -> Result<Outcome, BoxError> {
        let workflow = self.assembly.workflow();
        let by = Listener {
            emitter: Arc::clone(&self.emitter),
            path: self.ready.path.clone(),
        };
        let Some(model) = self.assembly.model(name, Some(by.clone())) else {
            return Ok(Outcome::failure("unknown_model", "there is no such model"));
        };
        let output = output.and_then(|name| self.assembly.outputs.get(name));
        let spec = workflow.models.get(name);
        let mut messages = Vec::new();
        if let Some(prompt) = prompt.and_then(|prompt| workflow.prompts.get(prompt)) {
            messages.push(Message::system(&**prompt));
        }
        messages.push(Message::user(question(input, output)));
        // A model that answers otherwise is told once what is wrong.
        for repairs in [1, 0] {
            let shown = match self.assembly.guardrails.input(messages.clone()).await {
                Ok(shown) => shown,
                Err(denied) => return Ok(Outcome::failure("denied", denied.to_string())),
            };
            let mut request = ChatRequest::new(shown);
            request.model = spec.and_then(|spec| spec.model.clone());
            request.temperature = spec.and_then(|spec| spec.temperature);
            request.response_schema =
                output.map(|output| ResponseSchema::new("answer", output.schema.clone()).lenient());
            let said = match model.chat(&request).await {
                Ok(response) => response.text,
                Err(error) => return failed_with(error.into()),
            };
            let problem = match self.examine(&said, output).await {
                Ok(result) => return Ok(Outcome::success(result)),
                Err(Objection::Denied(denied)) => {
                    return Ok(Outcome::failure("denied", denied.to_string()));
                }
                Err(Objection::Mend(problem)) => problem,
            };
            if repairs == 0 {
                return Ok(bad_output(&problem, &said));
            }
            by.tell(StepEventKind::Repaired {
                problem: problem.clone(),
            });
            messages.push(Message::assistant(said));
            messages.push(Message::user(format!(
                "That is not the output that was asked for: {problem}. Answer again."
            )));
        }
        Ok(Outcome::failure("bad_output", "the model has no answer"))
    }

    /// What a model wrote, as the guardrails let it pass and the schema asks for.
    async fn examine(&self, said: &str, output: Option<&Output>) -> Result<Value, Objection> {
        let text = match self.assembly.guardrails.output(said.to_owned()).await {
            Ok(text) => text,
            Err(denied) if denied.try_again => return Err(Objection::Mend(denied.reason)),
            Err(denied) => return Err(Objection::Denied(denied)),
        };
        match output {
            None => Ok(text.into()),
            Some(output) => {
                let read = output.read(&text);
                read.map(Json::into_value).map_err(Objection::Mend)
            }
        }
    }

    /// Writes a breadcrumb of the step once, whoever works on it.
    pub(super) async fn emit(&self, new: NewBreadcrumb) -> Result<(), BoxError> {
        let schema = new.schema_name.as_deref().unwrap_or_default();
        let tag = format!("step:{}", self.ticket(schema));
        self.post(new.tag(&*tag), &tag).await?;
        Ok(())
    }

    /// Writes a breadcrumb that is known by a tag, unless a worker that is gone has written it. Says when it was written.
    pub(super) async fn post(&self, new: NewBreadcrumb, tag: &str) -> Result<Timestamp, BoxError> {
        let store = &self.assembly.store;
        if self.again && !tag.is_empty() {
            let schema = new.schema_name.clone().unwrap_or_default();
            let query = Query::new(Selector::schema(schema).all_tags([tag])).limit(1);
            if let Some(written) = store.search(&query).await?.first() {
                return Ok(written.created_at);
            }
        }
        let store = self.context.bound_store(Arc::clone(store));
        Ok(store.create(new).await?.created_at)
    }
}

enum Objection {
    Denied(Denied),
    Mend(String),
}

fn question(input: &Json, output: Option<&Output>) -> String {
    let text = match input.as_str() {
        Some(text) => text.to_owned(),
        None => input.to_string(),
    };
    match output {
        None => text,
        Some(output) => format!(
            "{text}\nAnswer with nothing but JSON that fits this schema: {}",
            output.schema
        ),
    }
}

/// An answer that is not what was asked for, with what was written instead.
fn bad_output(problem: &str, raw: &str) -> Outcome {
    const RAW: usize = 2_048;
    let raw = excerpt(raw, RAW);
    let message =
        format!("the answer is not the output that was asked for: {problem}; it was: {raw}");
    Outcome::transient("bad_output", message)
}

/// What a call of a tool came to.
fn of_answer(answer: Answer, settings: &ToolSettings) -> Outcome {
    match answer {
        Answer::Success(output) => Outcome::Succeeded(output),
        answer @ Answer::Error { .. } => of_error(answer, Some(settings)),
    }
}

/// An error, and whether the step may be tried again: a tool that failed may be called again, unless it runs at most once;
/// where nobody knows whether it has done its work only one that is idempotent may.
pub(super) fn of_error(answer: Answer, settings: Option<&ToolSettings>) -> Outcome {
    let Answer::Error { code, message } = answer else {
        return Outcome::success(Value::Null);
    };
    let retry = settings.map(|settings| settings.retry);
    let may = match (&*code, retry) {
        (_, None | Some(tool::RetrySafety::AtMostOnce)) => false,
        ("failed" | "busy" | "rate_limited", Some(_)) => true,
        ("timeout" | "panic", Some(retry)) => retry.may_be_made_again(),
        (_, Some(_)) => false,
    };
    let retry = match may {
        true => MayRetry::After(Duration::ZERO),
        false => MayRetry::Never,
    };
    let failure = StepFailure::new(code, message);
    Outcome::Failed { failure, retry }
}

/// The outcome of a step that an error ends. What the error of a model or tool that is not of this crate says stays out
/// of it, since variables and results are read by many.
///
/// # Errors
/// What is wrong with the store or the run, and not with the step.
pub(super) fn failed_with(error: BoxError) -> Result<Outcome, BoxError> {
    let retried = |code: &str, message: String, retry: Retry| match retry {
        Retry::Never => Outcome::failure(code, message),
        Retry::After(after) => Outcome::Failed {
            failure: StepFailure::new(code, message),
            retry: MayRetry::After(after),
        },
    };
    if let Some(failed) = find::<ModelError>(&error) {
        return Ok(retried("model", failed.to_string(), failed.retry()));
    }
    if let Some(AgentRunError::BadOutput { problem, raw }) = find(&error) {
        return Ok(bad_output(problem, raw));
    }
    if let Some(failed) = find::<AgentRunError>(&error) {
        return Ok(retried("agent", failed.to_string(), failed.retry()));
    }
    if let Some(denied) = find::<Denied>(&error) {
        return Ok(Outcome::failure("denied", denied.to_string()));
    }
    match find::<StoreError>(&error).map(StoreError::retry) {
        Some(Retry::Never) => return Ok(Outcome::failure("rejected", error.to_string())),
        Some(Retry::After(_)) => return Err(error),
        None => {}
    }
    if find::<ContextError>(&error).is_some() {
        return Err(error);
    }
    let may = matches!(
        verdict(error.as_ref()),
        Verdict::Transient(_) | Verdict::RateLimited(_)
    );
    let message = "the agent failed, and what its provider says of it is kept out of here";
    Ok(match may {
        true => Outcome::transient("agent", message),
        false => Outcome::failure("agent", message),
    })
}

/// An error of a type among an error and its sources.
fn find<E: std::error::Error + 'static>(error: &BoxError) -> Option<&E> {
    let mut link: Option<&(dyn std::error::Error + 'static)> = Some(error.as_ref());
    for _ in 0..16 {
        let current = unmarked(link?);
        if let Some(found) = current.downcast_ref() {
            return Some(found);
        }
        link = current.source();
    }
    None
}

/// How a step ends whose time is up while it is at work.
pub(super) fn timed_out(task: &Task, assembly: &Assembly) -> Outcome {
    let Task::Tool { tool, .. } = task else {
        return Outcome::TimedOut;
    };
    let settings = assembly.tools.get(tool).map(Tool::settings);
    match settings.is_some_and(|settings| settings.retry.may_be_made_again()) {
        true => Outcome::TimedOut,
        false => Outcome::failure(
            "timed_out",
            "the step took longer than its timeout; its tool may have done its work, and is not called again",
        ),
    }
}
