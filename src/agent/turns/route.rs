//! Routing of an agent's tool calls: to a tool in this process or in another service, to another agent, or to a person for approval first.

use super::approved::Approved;
use super::waits::Awaited;
use super::{Answer, CallId, Deferral, Effect, MachineCall, Run, ToolOutcome, WorkResult};
use crate::agent::tool_offer::{AgentCallMode, NonToolTarget};
use crate::executor::WriteRestriction;
use crate::machine::{ResultDelivery, ToolArguments};
use crate::model::Json;
use crate::request::{agents, human};
use crate::tool::{self, Checker, NeededApproval};
use futures::FutureExt as _;
use futures::future::abortable;
use serde_json::Value;
use std::num::NonZeroU32;
use std::time::Duration;
use tracing::Instrument as _;

impl<'r> Run<'r> {
    /// Checks a tool call with the guardrails before it starts. `again` is `true` if an earlier attempt may have made the call.
    pub(super) fn admit(&mut self, call: MachineCall, again: bool) -> Vec<Effect> {
        let guardrails = &self.agent.guardrails;
        let approved = self.approved(&call.id);
        // The guardrails have checked the approved arguments, unless the approver changed them.
        let is_checked = approved.is_some_and(|approved| !approved.is_changed);
        let call = match approved {
            Some(approved) => MachineCall::new(call.id, call.tool, approved.arguments.clone()),
            None => call,
        };
        if is_checked {
            return self.execute(call, again);
        }
        let arguments = match &call.arguments {
            ToolArguments::Json(arguments) if !guardrails.is_empty() => arguments.clone(),
            ToolArguments::Json(_) | ToolArguments::Unreadable { .. } => {
                return self.execute(call, again);
            }
        };
        let id = call.id.clone();
        let admitted = async move {
            match guardrails.tool_call(&call.tool, arguments).await {
                Ok(arguments) => WorkResult::Admitted {
                    call: MachineCall::new(call.id, call.tool, arguments),
                    again,
                },
                Err(answer) => WorkResult::Finished(call.id, answer.into()),
            }
        };
        self.enqueue(id, admitted);
        Vec::new()
    }

    fn approved(&self, call: &CallId) -> Option<&Approved> {
        let mut approved = self.progress.approved.iter();
        approved.rfind(|approved| approved.call == *call)
    }

    /// Starts a tool call, or finishes it at once if its arguments are invalid or it only submits an output. A call that an
    /// earlier attempt may have made is repeated only if its tool permits that.
    pub(super) fn execute(&mut self, call: MachineCall, again: bool) -> Vec<Effect> {
        let agent = self.agent;
        let arguments = match &call.arguments {
            ToolArguments::Json(arguments) => arguments.clone(),
            // The machine itself answers calls with unreadable arguments, so this arm is only a safeguard.
            ToolArguments::Unreadable { problem, .. } => {
                let answer = Answer::error("invalid_arguments", problem);
                return self.progress.finish(call.id, answer.into());
            }
        };
        match agent.tool_offer.target(&call.tool) {
            Some(NonToolTarget::Agent { agent, mode }) => {
                self.ask_agent(call.id, agent, *mode, &arguments)
            }
            Some(NonToolTarget::Output(checker)) => self.check_output(call, checker, arguments),
            None => self.call_tool(call, arguments, again),
        }
    }

    /// Checks an additional output that the model submitted: against the output's JSON Schema, and by the output guardrails. The guardrails
    /// check it because it is part of the response.
    fn check_output(
        &mut self,
        call: MachineCall,
        checker: &'r Checker,
        output: Json,
    ) -> Vec<Effect> {
        let guardrails = &self.agent.guardrails;
        let invalid = |problem| Answer::error("invalid_input", problem);
        match checker.check(&output) {
            Ok(()) if guardrails.is_empty() => return self.finish_output_call(call, Ok(output)),
            Ok(()) => {}
            Err(problem) => return self.finish_output_call(call, Err(invalid(problem))),
        }
        let id = call.id.clone();
        let checked = async move {
            let checked_output = guardrails.submitted_output(output).await;
            let output = checked_output.and_then(|output| match checker.check(&output) {
                Ok(()) => Ok(output),
                Err(problem) => Err(invalid(problem)),
            });
            WorkResult::Checked { call, output }
        };
        self.enqueue(id, checked);
        Vec::new()
    }

    /// Finishes the tool call by which the model submitted an additional output.
    pub(super) fn finish_output_call(
        &mut self,
        call: MachineCall,
        output: Result<Json, Answer>,
    ) -> Vec<Effect> {
        let answer = match output {
            Ok(output) => {
                self.progress.store_output(&call.tool, output);
                Answer::success(Value::from("handed in"))
            }
            Err(answer) => answer,
        };
        self.progress.finish(call.id, answer.into())
    }

    fn call_tool(&mut self, call: MachineCall, arguments: Json, again: bool) -> Vec<Effect> {
        let agent = self.agent;
        let Some(settings) = agent.tools.get(&call.tool).map(tool::Tool::settings) else {
            self.start(call, false);
            return Vec::new();
        };
        let mut is_approved = false;
        if let Some(needed) = agent.definition.approval.needed(&call.tool, &arguments) {
            let digest = agent.digest_of(&call.tool, &arguments);
            is_approved = self
                .approved(&call.id)
                .is_some_and(|approved| approved.digest == digest);
            if !is_approved {
                self.ask_person(&call, &arguments, digest, needed);
                return Vec::new();
            }
        }
        // For an external program, the tool itself writes the request and waits, so that the program keeps running.
        let is_batch = agent.provider.delivery() == ResultDelivery::Batch;
        if settings.over_breadcrumbs && is_batch {
            if let Err(answer) = agent.tools.check_input(&call.tool, &arguments) {
                return self.progress.finish(call.id, answer.into());
            }
            self.request_tool(call, arguments, settings.timeout);
            return Vec::new();
        }
        if again && !settings.retry.allows_repeat() {
            return self
                .progress
                .finish(call.id, tool::unknown_outcome().into());
        }
        self.start(call, is_approved);
        Vec::new()
    }

    /// Makes a tool call in this process, through the registry of the tools that the agent may call.
    fn start(&mut self, call: MachineCall, is_approved: bool) {
        let (agent, context) = (self.agent, self.context);
        let caller = &*agent.definition.agent_id;
        // The registered name is logged, never text that a model wrote.
        let tool = agent.tools.get(&call.tool).map(tool::Tool::name);
        let span = tracing::debug_span!("tool_call", agent = caller, tool);
        let (id, name) = (call.id.clone(), call.tool.clone());
        let call_id = id.clone();
        let context =
            context.writing_only(WriteRestriction::Listed(self.written_by_tool(&name).into()));
        let called = async move {
            let (tools, store, by) = (&agent.tools, &agent.store, Some(caller));
            let outcome = match is_approved {
                true => tools.call_approved(call, by, &context, store).await,
                false => tools.call(call, by, &context, store).await,
            };
            let outcome = match outcome {
                ToolOutcome::Answered(answer) => {
                    agent.guardrails.tool_result(&name, answer).await.into()
                }
                ToolOutcome::Deferred(_) => outcome,
            };
            WorkResult::Finished(id, outcome)
        };
        self.enqueue(call_id, called.instrument(span));
    }

    /// Queues work on a tool call, which starts when fewer than the maximum number of calls are running.
    fn enqueue(&mut self, call: CallId, work: impl Future<Output = WorkResult> + Send + 'r) {
        let (work, handle) = abortable(work);
        self.aborts.insert(call, handle);
        self.queue.push_back(work.map(Result::ok).boxed());
    }

    /// Returns the schemas of the breadcrumbs that a tool may write: those in the agent's `responds_with`, and `tool.request.v1`
    /// if the tool is called by breadcrumbs. The agent's other request schemas are excluded, because a tool that writes model
    /// text could send requests in the agent's name.
    fn written_by_tool(&self, tool: &str) -> Vec<String> {
        let mut schemas = self.agent.definition.responds_with.clone();
        let settings = self.agent.tools.get(tool).map(tool::Tool::settings);
        if settings.is_some_and(|settings| settings.over_breadcrumbs) {
            schemas.push(tool::ToolExecutor::REQUEST.to_owned());
        }
        schemas
    }

    fn request_tool(&mut self, call: MachineCall, arguments: Json, timeout: Duration) {
        let by = &*self.agent.definition.agent_id;
        let id = self.request_id(&["tool", call.id.as_str()]);
        let request = tool::request(&call.tool, arguments.into_value(), &id, Some(by));
        let awaited = Awaited::Tool {
            call: call.id,
            tool: call.tool,
        };
        self.wait(id, timeout, awaited, |_| request);
    }

    fn ask_person(
        &mut self,
        call: &MachineCall,
        arguments: &Json,
        digest: String,
        needed: NeededApproval,
    ) {
        let agent = self.agent;
        let registered = agent.tools.registered(&call.tool);
        let NeededApproval { people, expires_in } = needed;
        let changes = agent.definition.approval.for_changes(&call.tool);
        let question = human::approval(call, registered, arguments, &digest, &people, &changes);
        let id = self.approval_id(&call.id, &question);
        if let Some(earlier) = self.approved(&call.id) {
            let reason = match earlier.arguments == *arguments {
                true => "the tool, its rules or the agent definition changed since the question",
                false => "a guardrail replaced the approved arguments",
            };
            let trigger = self.context.trigger();
            tracing::warn!(
                agent = &*agent.definition.agent_id,
                trigger = %trigger.id,
                version = trigger.version,
                tool = registered.map(tool::Tool::name),
                request_id = &*id,
                reason,
                "an approval does not count, because its digest is not that of the call: the run asks again"
            );
        }
        let awaited = Awaited::Approval {
            call: call.id.clone(),
            digest,
            by: people,
            arguments: arguments.clone(),
        };
        self.ask_people(id, awaited, question, expires_in);
    }

    /// Returns the request ID of a question to people about a tool call. A repeated question has a new ID, so that an answer to the earlier
    /// question does not count for it.
    fn approval_id(&self, call: &CallId, question: &Value) -> String {
        let approved = self.progress.approved.iter();
        let earlier = approved.filter(|approved| approved.call == *call).count();
        let question = human::fingerprint_of_question(question);
        match earlier {
            0 => self.request_id(&["approval", call.as_str(), &question]),
            _ => self.request_id(&["approval", call.as_str(), &question, &earlier.to_string()]),
        }
    }

    fn ask_agent(
        &mut self,
        call: CallId,
        agent: &str,
        mode: AgentCallMode,
        arguments: &Json,
    ) -> Vec<Effect> {
        let Some(prompt) = arguments.get("prompt").and_then(Value::as_str) else {
            let problem = "\"prompt\" must be a string: the request to the agent";
            let answer = Answer::error("invalid_input", problem);
            return self.progress.finish(call, answer.into());
        };
        match mode {
            AgentCallMode::Use => {
                self.request_agent(call, agent, prompt, false);
                Vec::new()
            }
            AgentCallMode::Handoff | AgentCallMode::Delegate => {
                let deferral = Deferral::Handoff {
                    agent: agent.to_owned(),
                    prompt: prompt.to_owned(),
                };
                self.progress.finish(call, deferral.into())
            }
        }
    }

    fn request_agent(&mut self, call: CallId, agent: &str, prompt: &str, is_last: bool) {
        let definition = &self.agent.definition;
        let id = self.request_id(&["agent", call.as_str()]);
        let request = agents::request(agent, prompt, &id, &definition.agent_id);
        let lasts = seconds(definition.wait_seconds.agents);
        let agent = agent.to_owned();
        let awaited = Awaited::Agent {
            call,
            agent,
            is_last,
        };
        self.wait(id, lasts, awaited, |_| request);
    }

    /// Adds a request to people: the approval of a tool call, or the question of a tool. Without `expires_in`, the request expires after
    /// `wait_seconds.people` of the agent definition.
    fn ask_people(
        &mut self,
        id: String,
        awaited: Awaited,
        question: Value,
        expires_in: Option<Duration>,
    ) {
        let definition = &self.agent.definition;
        let lasts = expires_in.unwrap_or_else(|| seconds(definition.wait_seconds.people));
        let (request_id, by) = (id.clone(), definition.agent_id.clone());
        self.wait(id, lasts, awaited, move |until| {
            human::request(question, &request_id, &by, until)
        });
    }

    /// Defers the result of a tool call until another agent or a person answers the request that this function adds to the run. A
    /// call that cannot be deferred finishes with an error.
    pub(super) fn defer(&mut self, call: CallId, action: Deferral) -> Vec<Effect> {
        let can_wait = self.agent.store.ledger().is_some();
        match action {
            Deferral::Handoff { .. } | Deferral::Other { .. } if !can_wait => {
                let message = "the store has no ledger, so the run cannot wait for an answer";
                let answer = Answer::error("cannot_defer", message);
                self.progress.finish(call, answer.into())
            }
            Deferral::Handoff { agent, prompt } => self.hand_over(call, &agent, &prompt),
            Deferral::Other { kind, payload } if kind == "question" => {
                let question = human::question_of_tool(&payload);
                let fingerprint = human::fingerprint_of_question(&question);
                let id = self.request_id(&["question", call.as_str(), &fingerprint]);
                let schema = human::QuestionSchema::of(&question, "schema");
                self.ask_people(id, Awaited::Question { call, schema }, question, None);
                Vec::new()
            }
            Deferral::PlannerOutput(_) | Deferral::Other { .. } => {
                let answer = Answer::error(
                    "cannot_defer",
                    "the tool deferred its result in a way that agents do not support",
                );
                self.progress.finish(call, answer.into())
            }
        }
    }

    /// Sends the prompt of a tool call as a request to another agent, whose answer becomes the result of the call. The definition
    /// must name this agent, also if a tool requests the handoff.
    fn hand_over(&mut self, call: CallId, agent: &str, prompt: &str) -> Vec<Effect> {
        let definition = &self.agent.definition;
        let named = |agents: &[crate::agent::AgentRef]| {
            agents.iter().any(|colleague| colleague.agent == agent)
        };
        let delegates = format!("delegate-to-{agent}");
        let mut pending_calls = self.progress.machine.pending();
        let is_last = pending_calls.any(|pending| pending.id == call && pending.tool == delegates);
        drop(pending_calls);
        let is_last = is_last && named(&definition.delegate);
        if !is_last && !named(&definition.handoff) {
            let message = format!("agent {agent:?} is not listed in \"handoff\" or \"delegate\"");
            let answer = Answer::error("unknown_agent", message);
            return self.progress.finish(call, answer.into());
        }
        self.request_agent(call, agent, prompt, is_last);
        Vec::new()
    }
}

fn seconds(seconds: NonZeroU32) -> Duration {
    Duration::from_secs(seconds.get().into())
}
