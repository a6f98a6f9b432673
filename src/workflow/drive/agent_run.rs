//! Executes the agent of a step within the flow run. Other workflow agents that this agent calls are executed in the same run.
//!
//! An agent calls another agent with a request breadcrumb, and is suspended until the response arrives. If both agents belong to the
//! workflow, the request is not written: the other agent runs here, and its answer is passed to the caller in the form of the
//! response. An agent therefore behaves the same in a flow and on its own, and one mechanism saves its state.

use super::checkpoint::{AgentState, AgentStateSaver};
use super::conversations::Answered;
use super::model_tap::Listener;
use super::outcome::{failed_after, failed_with, refused};
use super::step::{Step, StepResult};
use super::yielding::wait_for_all;
use crate::agent::{AgentExecutor, provider_session_in};
use crate::error::{BoxError, permanent};
use crate::executor::{InnerRun, Resumed, StateStorage, Suspension, UniversalExecutor as _};
use crate::model::{
    Breadcrumb, BreadcrumbId, Json, NewBreadcrumb, REQUEST_TAG, Selector, request_tag,
};
use crate::request::{agents, answers_to, human};
use crate::store::{Wake, Write};
use crate::workflow::{StepOutcome, StepPath};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::Arc;

/// Result of running an agent in a flow step: an answer, a failure, or the wake condition of the suspended agent.
enum AgentOutcome {
    /// The agent answered. The value is the context of the agent's response breadcrumb.
    Answer(Json),
    Failed(StepOutcome),
    /// The agent waits for breadcrumbs, for example for tool responses, and not for an answer of an agent of this workflow.
    Waits(Wake),
}

impl Step<'_> {
    /// Runs the agent of a flow step, and the agents that it calls, until the step's agent answers, fails or is suspended.
    pub(super) async fn agent(&self, agent: &str, input: &Json) -> Result<StepResult, BoxError> {
        let agent_state = AgentState {
            agent: agent.to_owned(),
            input: input.clone(),
            state: None,
            asked_by: None,
            answer: None,
        };
        self.agents.add("", agent_state);
        let path = self.ready.path.clone();
        Ok(match self.run_agent(String::new(), path).await? {
            AgentOutcome::Answer(answer) => StepResult::Ended(result_of(&answer)),
            AgentOutcome::Failed(outcome) => StepResult::Ended(outcome),
            AgentOutcome::Waits(wake) => {
                let question = question_in(&wake.selectors);
                let ticket = question.map_or_else(|| self.ticket("agent"), str::to_owned);
                StepResult::AgentsWait { ticket, wake }
            }
        })
    }

    /// Runs one agent of a flow step until the agent answers, fails or is suspended. The agent is the agent of the step, or an
    /// agent that another agent called.
    ///
    /// The function recurses for each agent that an agent calls. These calls form no cycles, so the depth is at most the number of
    /// agents.
    fn run_agent(
        &self,
        key: String,
        path: StepPath,
    ) -> BoxFuture<'_, Result<AgentOutcome, BoxError>> {
        async move {
            let Some(agent_state) = self.agents.get(&key) else {
                return Ok(AgentOutcome::Failed(StepOutcome::failure(
                    "misfit",
                    "the saved state of the step has no such agent",
                )));
            };
            let conversations = self.conversations.as_deref();
            let listener = Listener {
                emitter: Arc::clone(&self.emitter),
                path: path.clone(),
            };
            let compactor = self.assembly.compactor(Some(listener.clone()));
            let compaction = compactor.clone().map(|own| (own, listener.clone()));
            let agent =
                self.assembly
                    .agent(&agent_state.agent, Some(listener), conversations, compactor);
            let agent = agent.map_err(permanent)?;
            let state_storage: Arc<dyn StateStorage> = Arc::new(AgentStateSaver {
                agents: self.agents.clone(),
                key: key.clone(),
                saver: self.saver.clone(),
                compaction,
            });
            let trigger = Arc::new(self.trigger_for(&agent_state));
            let for_user = key.is_empty() && self.is_user_message(&agent_state.input);
            let mut with = None;
            loop {
                let (fed, answer): (Option<String>, _) = with.take().unzip();
                let turn = self.turn(&agent, &trigger, &key, &state_storage, answer, for_user);
                let suspension = match turn.await {
                    Ok(output) => {
                        let of = (&*key, &path, &agent_state.input);
                        return self.finish_agent(&agent, &trigger, of, output.into()).await;
                    }
                    Err(error) => match error.downcast::<Suspension>() {
                        Ok(suspension) => *suspension,
                        Err(error) if conversations.is_some_and(|all| all.is_over(&error)) => {
                            return Err(error);
                        }
                        Err(error) => return failed_with(error).map(AgentOutcome::Failed),
                    },
                };
                let mut wake = match self.save_turn(&key, &path, suspension, fed).await? {
                    Ok(wake) => wake,
                    Err(failed) => return Ok(AgentOutcome::Failed(failed)),
                };
                let called = self.agents.called_by(&key);
                let runs = called.iter().map(|child| self.run_callee(child, &path));
                for wake_of_called in wait_for_all(runs).await?.into_iter().flatten() {
                    wake.selectors.extend(wake_of_called.selectors);
                    wake.until = wake.until.into_iter().chain(wake_of_called.until).min();
                }
                // The agent receives one answer at a time, because a run continues with one breadcrumb.
                with = called.iter().find_map(|child| self.response_of(child));
                if with.is_none() {
                    return Ok(AgentOutcome::Waits(wake));
                }
            }
        }
        .boxed()
    }

    /// Saves the answer of an agent in the conversation store of the flow run, or does nothing if the run has no such store.
    async fn save_conversation(
        &self,
        key: &str,
        path: &StepPath,
        asked: &Json,
        answer: &Json,
    ) -> Result<(), BoxError> {
        let Some(conversations) = self.conversations.as_deref() else {
            return Ok(());
        };
        let state = self
            .agents
            .get(key)
            .and_then(|agent_state| agent_state.state);
        let session = state.as_ref().and_then(provider_session_in);
        let answered = Answered {
            request: key,
            asked,
            answer,
            session: session.as_ref(),
        };
        conversations.answered(path, answered).await
    }

    /// Continues an agent from its saved state. `with` is the response of another agent that this agent called, if there is one.
    async fn turn(
        &self,
        agent: &AgentExecutor,
        trigger: &Arc<Breadcrumb>,
        key: &str,
        state_storage: &Arc<dyn StateStorage>,
        with: Option<Arc<Breadcrumb>>,
        for_user: bool,
    ) -> Result<Value, BoxError> {
        let state = self
            .agents
            .get(key)
            .and_then(|agent_state| agent_state.state);
        let resumed = state.map(|state| Resumed { state, with });
        let inner = InnerRun {
            key: self.key_of(key),
            resumed,
            state_storage: Arc::clone(state_storage),
            for_user,
        };
        let context = self.context.inner(Arc::clone(trigger), inner);
        agent.execute(trigger, &context).await
    }

    /// Saves the state of a suspended agent, and writes the breadcrumbs with which the agent requests tool calls, or answers of
    /// people and other agents. Returns the condition that wakes the agent. A request to an agent of this workflow is added to
    /// `agents` instead.
    ///
    /// `fed` is the called agent whose answer this agent has received. Its removal is part of the same save: an agent that fails before
    /// the save receives the answer again, and an agent ignores an answer that it has processed.
    ///
    /// Returns the outcome of the step as the inner error if the store refuses a request.
    async fn save_turn(
        &self,
        key: &str,
        path: &StepPath,
        suspension: Suspension,
        fed: Option<String>,
    ) -> Result<Result<Wake, StepOutcome>, BoxError> {
        let (mut wake, state, response) = suspension.into_parts();
        for write in response.into_writes() {
            let Write::Create(new) = write else { continue };
            match self.request_of(&new, key) {
                Some((id, called)) => self.agents.add(id, called),
                None => {
                    let tag = new
                        .tags
                        .iter()
                        .find(|tag| tag.starts_with(REQUEST_TAG))
                        .cloned();
                    let posted = self.post(new, tag.as_deref().unwrap_or_default()).await;
                    if let Err(error) = posted {
                        return refused(error).map(Err);
                    }
                }
            }
        }
        self.agents.set_state(key, state);
        if let Some(fed) = fed {
            self.agents.remove(&fed);
        }
        self.saver.save().await?;
        let own: Vec<_> = self
            .agents
            .called_by(key)
            .iter()
            .map(|id| answers_to(id, agents::RESPONSE))
            .collect();
        wake.selectors.retain(|selector| !own.contains(selector));
        tracing::debug!(
            path = path.as_str(),
            "an agent is suspended until its requests are answered"
        );
        Ok(Ok(wake))
    }

    /// Returns the ID and the content of an agent's request to another agent of this workflow. Returns `None` if the agent's new breadcrumb
    /// is not such a request.
    fn request_of(&self, new: &NewBreadcrumb, caller: &str) -> Option<(String, AgentState)> {
        if new.schema_name.as_deref() != Some(agents::REQUEST) {
            return None;
        }
        let agent = new.context.text("agent")?;
        let known = self.assembly.workflow().agents.contains_key(agent);
        let called = AgentState {
            agent: agent.to_owned(),
            input: new
                .context
                .get("prompt")
                .cloned()
                .unwrap_or_default()
                .into(),
            state: None,
            asked_by: Some(caller.to_owned()),
            answer: None,
        };
        known.then(|| Some((new.context.text("requestId")?.to_owned(), called)))?
    }

    /// Runs an agent that another agent of the step called, if the called agent has not answered yet. Returns the wake condition of the
    /// called agent if the called agent waits.
    async fn run_callee(&self, key: &str, path: &StepPath) -> Result<Option<Wake>, BoxError> {
        let Some(agent_state) = self
            .agents
            .get(key)
            .filter(|agent_state| agent_state.answer.is_none())
        else {
            return Ok(None);
        };
        let path = StepPath::new(format!("{path}/{}", agent_state.agent));
        let answer = match self.run_agent(key.to_owned(), path).await? {
            AgentOutcome::Answer(answer) => answer,
            AgentOutcome::Failed(outcome) => {
                json!({"status": "error", "message": message(&outcome)}).into()
            }
            AgentOutcome::Waits(wake) => return Ok(Some(wake)),
        };
        self.agents.set_answer(key, answer);
        for called in self.agents.called_by(key) {
            self.agents.remove(&called);
        }
        self.saver.save().await?;
        Ok(None)
    }

    /// Returns the answer of a called agent in the form of its response breadcrumb, if there is an answer.
    fn response_of(&self, key: &str) -> Option<(String, Arc<Breadcrumb>)> {
        let agent_state = self.agents.get(key)?;
        let mut context = agent_state.answer?.into_value();
        if let Value::Object(fields) = &mut context {
            fields.insert("creator".to_owned(), json!({"agent_id": agent_state.agent}));
        }
        let response = NewBreadcrumb::new(AgentExecutor::RESPONSE)
            .tag(request_tag(key))
            .context(context);
        let response = response.first_version(BreadcrumbId::NIL, self.context.now());
        Some((key.to_owned(), Arc::new(response)))
    }

    /// Returns `true` if the input of a step is the text of the user's chat message that the flow run processes.
    pub(super) fn is_user_message(&self, input: &Json) -> bool {
        let words = (input.as_str(), self.user_message.as_deref());
        matches!(words, (Some(input), Some(message)) if input == message)
    }

    /// Returns the trigger of an agent in a step: a request breadcrumb with the agent's input.
    fn trigger_for(&self, agent_state: &AgentState) -> Breadcrumb {
        let mut context = json!({"agent": agent_state.agent});
        if let Value::Object(fields) = &mut context {
            let field = if agent_state.input.is_string() {
                "prompt"
            } else {
                "input"
            };
            fields.insert(field.to_owned(), (*agent_state.input).clone());
        }
        let trigger = self.context.trigger();
        let request = NewBreadcrumb::new(agents::REQUEST).context(context);
        request.first_version(trigger.id, trigger.updated_at)
    }

    /// Saves the output of an agent in the conversation store of the flow run. Writes the breadcrumbs in the output, but not the
    /// response breadcrumb.
    async fn finish_agent(
        &self,
        agent: &AgentExecutor,
        trigger: &Breadcrumb,
        (key, path, asked): (&str, &StepPath, &Json),
        output: Json,
    ) -> Result<AgentOutcome, BoxError> {
        if let Err(error) = self.save_conversation(key, path, asked, &output).await {
            return refused(error).map(AgentOutcome::Failed);
        }
        if agent.definition().capabilities.is_some() {
            let response = match agent.respond(trigger, (*output).clone()).await {
                Ok(response) => response,
                Err(error) => return failed_after(error).map(AgentOutcome::Failed),
            };
            for (at, write) in response.into_writes().into_iter().enumerate() {
                match write {
                    Write::Create(new)
                        if new.schema_name.as_deref() != Some(AgentExecutor::RESPONSE) =>
                    {
                        let emitted = self.emit(new, &format!("{key} {at}")).await;
                        if let Err(error) = emitted {
                            return refused(error).map(AgentOutcome::Failed);
                        }
                    }
                    Write::Create(_) | Write::Update { .. } | Write::Delete { .. } => {}
                }
            }
        }
        Ok(AgentOutcome::Answer(output))
    }

    /// Returns the idempotency key for the execution of an agent in a step. The key is the same in each attempt, because all
    /// attempts continue one conversation.
    fn key_of(&self, agent: &str) -> String {
        let key = &self.ready.idempotency_key;
        match agent {
            "" => key.clone(),
            agent => format!("{key}/{agent}"),
        }
    }
}

fn message(outcome: &StepOutcome) -> String {
    match outcome {
        StepOutcome::Failed { failure, .. } => failure.message.clone(),
        StepOutcome::TimedOut => "the agent exceeded its timeout".to_owned(),
        StepOutcome::Succeeded(_) | StepOutcome::Suspended { .. } => String::new(),
    }
}

/// Returns the outcome of a step whose agent has responded.
fn result_of(answer: &Json) -> StepOutcome {
    StepOutcome::success(agents::answer_value(answer))
}

/// Returns the ID of the first question to a person whose answer one of the `selectors` of a wake condition awaits, or `None`
/// without such a question.
fn question_in(selectors: &[Selector]) -> Option<&str> {
    let mut of_people = selectors
        .iter()
        .filter(|selector| selector.schema_name() == Some(human::RESPONSE));
    let tags = of_people.next()?.all_of_tags();
    tags.iter().find_map(|tag| tag.strip_prefix(REQUEST_TAG))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::ToolExecutor;

    #[test]
    fn the_question_to_a_person_is_found_among_the_answers_that_a_run_waits_for() {
        let tool = answers_to("t-1", ToolExecutor::RESPONSE);
        let people = ["q-1", "q-2"].map(|id| answers_to(id, human::RESPONSE));
        let [first, second] = people;

        assert_eq!(question_in(&[tool.clone(), first, second]), Some("q-1"));
        assert_eq!(question_in(&[tool]), None);
    }
}
