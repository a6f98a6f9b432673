//! Requests of an agent run to tools, agents, people and models: suspension of the run, and processing of the answers.

use super::approved::Approved;
use super::waits::{self, Awaited, Unwritten, Wait};
use super::{Effect, Run};
use crate::agent::AgentExecutor;
use crate::error::BoxError;
use crate::executor::{ContextError, ExecutionContext, PagedSearch, Response, suspend};
use crate::machine::{Answer, CallId};
use crate::model::{Breadcrumb, BreadcrumbId, Json, NewBreadcrumb, Timestamp, display_text};
use crate::request::{self, Reply, human};
use std::sync::Arc;
use std::time::Duration;

impl Run<'_> {
    /// Adds to the run's progress a request to a tool, an agent, a person or a model. The request is written when the run is
    /// suspended, and the run then waits for its answer.
    pub(super) fn wait(
        &mut self,
        request_id: String,
        lasts: Duration,
        awaited: Awaited,
        request: impl FnOnce(Timestamp) -> NewBreadcrumb + Send + Sync + 'static,
    ) {
        let request = Box::new(request);
        self.progress.waits.push(Wait {
            request_id,
            until: self.context.now() + lasts,
            asked_at: None,
            awaited,
            unwritten: Some(Unwritten { lasts, request }),
        });
    }

    /// Computes the ID of a request of this run as a hash of the run's idempotency key and the strings in `parts`. The ID is the
    /// same in each attempt.
    pub(super) fn request_id(&self, parts: &[&str]) -> String {
        let mut all = vec![self.context.idempotency_key()];
        all.extend(parts);
        human::hash(&all)
    }

    /// Continues the run with each answer to its requests that has arrived, and with a timeout as the answer to each expired
    /// request.
    pub(super) async fn process_replies(&mut self) -> Result<(), BoxError> {
        if self.progress.waits.is_empty() {
            return Ok(());
        }
        let found = self.possible_replies().await?;
        let now = self.context.now();
        let (mut effects, mut answering) = (Vec::new(), Vec::new());
        for wait in std::mem::take(&mut self.progress.waits) {
            if wait.unwritten.is_some() {
                self.progress.waits.push(wait);
                continue;
            }
            let tool = wait
                .call()
                .map_or_else(String::new, |call| self.tool_of(call));
            let reply = match find_reply((self.agent, &tool), self.context, &wait, &found).await? {
                Some((id, reply)) => {
                    answering.push(id);
                    reply
                }
                None if wait.until <= now => Reply::Answer(wait.pending().timeout_answer()),
                None => {
                    self.progress.waits.push(wait);
                    continue;
                }
            };
            effects.extend(self.process_reply(wait.awaited, reply).await?);
        }
        // A breadcrumb that answers no request must not wake the run again.
        let others = found.iter().filter(|found| !answering.contains(&found.id));
        let newest = others.map(|found| found.updated_at).max();
        self.progress.since = newest.max(self.progress.since);
        self.execute_effects(effects).await?;
        self.save().await
    }

    async fn process_reply(
        &mut self,
        awaited: Awaited,
        reply: Reply,
    ) -> Result<Vec<Effect>, BoxError> {
        match (awaited, reply) {
            (
                Awaited::Approval {
                    call,
                    digest,
                    arguments,
                    ..
                },
                Reply::Approved(changed),
            ) => {
                let approved = self.approval_of(call, digest, arguments, changed);
                Ok(self.make_approved_call(approved))
            }
            (
                Awaited::Agent {
                    call,
                    is_last: true,
                    ..
                },
                Reply::Answer(Answer::Success(output)),
            ) => {
                let answer = self.check_result(&call, Answer::Success(output)).await;
                let (answer, last) = delegated_answer(self.agent, answer).await?;
                let mut effects = self.progress.finish(call, answer.into());
                if let Some(text) = last {
                    effects.extend(self.progress.finish_with_delegated_answer(text));
                }
                Ok(effects)
            }
            (Awaited::Model { .. }, Reply::Answer(answer)) => {
                if let Err(error) = self.open_session().await?.answer(answer).await {
                    // A later attempt sends the model request again.
                    self.save().await?;
                    return Err(error);
                }
                Ok(Vec::new())
            }
            (
                Awaited::Tool { call, .. }
                | Awaited::Agent { call, .. }
                | Awaited::Approval { call, .. }
                | Awaited::Question { call, .. },
                Reply::Answer(answer),
            ) => {
                let answer = self.check_result(&call, answer).await;
                Ok(self.progress.finish(call, answer.into()))
            }
            // Only approval requests can be approved.
            (
                Awaited::Tool { .. }
                | Awaited::Agent { .. }
                | Awaited::Question { .. }
                | Awaited::Model { .. },
                Reply::Approved(_),
            ) => Ok(Vec::new()),
        }
    }

    /// Returns the tool call that a person approved, with the requested arguments or with the arguments that the person changed.
    /// Changed arguments get a new digest, unless the definitions changed since the question: then the run asks again.
    fn approval_of(
        &self,
        call: CallId,
        digest: String,
        requested: Json,
        changed: Option<Json>,
    ) -> Approved {
        let Some(arguments) = changed.filter(|changed| *changed != requested) else {
            return Approved {
                call,
                digest,
                arguments: requested,
                is_changed: false,
            };
        };
        let tool = self.tool_of(&call);
        let digest = match self.agent.digest_of(&tool, &requested) == digest {
            true => self.agent.digest_of(&tool, &arguments),
            false => digest,
        };
        Approved {
            call,
            digest,
            arguments,
            is_changed: true,
        }
    }

    /// Makes a tool call that a person approved.
    fn make_approved_call(&mut self, approved: Approved) -> Vec<Effect> {
        let mut pending = self.progress.machine.pending();
        let call = pending.find(|call| call.id == approved.call).cloned();
        drop(pending);
        self.progress.approved.push(approved);
        call.map_or_else(Vec::new, |call| self.admit(call, false))
    }

    /// Returns the breadcrumbs that may answer the run's requests, oldest first: the breadcrumb that woke the run, and the answers in the
    /// store.
    async fn possible_replies(&mut self) -> Result<Vec<Arc<Breadcrumb>>, BoxError> {
        let (agent, resumed) = (self.agent, self.context.resumed());
        let woken_with = resumed.and_then(|resumed| resumed.with.clone());
        let mut found: Vec<_> = woken_with.into_iter().collect();
        let checked_until = self.progress.since;
        for selector in request::selectors(self.progress.waits.iter().map(Wait::pending)) {
            let mut pages = PagedSearch::new(&*agent.store, selector);
            while let Some(page) = pages.next().await? {
                let oldest = page.last().map(|oldest| oldest.updated_at);
                found.extend(page.into_iter().filter(|found| self.is_answer(found)));
                if oldest < checked_until {
                    break;
                }
            }
        }
        found.sort_by_key(|found| found.order_key());
        Ok(found)
    }

    /// Returns `true` if a breadcrumb answers a request of the run. Otherwise, moves `since`, so that the breadcrumb does not wake the run
    /// again.
    fn is_answer(&mut self, found: &Breadcrumb) -> bool {
        let correlation_id = self.context.correlation_id();
        let mut waits = self.progress.waits.iter();
        let is_answer = waits.any(|wait| {
            let reply = wait.reply(found, &found.context, correlation_id);
            reply.is_some()
        });
        if !is_answer {
            self.progress.since = self.progress.since.max(Some(found.updated_at));
        }
        is_answer
    }

    /// Closes the provider session and creates the error value that suspends the agent run until one of its requests is answered
    /// or times out. The value contains the request breadcrumbs to write.
    pub(super) async fn suspend(&mut self) -> Result<BoxError, BoxError> {
        self.update_working_time();
        self.close_session().await;
        let now = self.context.now();
        let waits = self.progress.waits.iter_mut();
        let requests: Vec<_> = waits.filter_map(|wait| wait.write(now)).collect();
        let writes = requests
            .into_iter()
            .fold(Response::none(), Response::and_create);
        let since = self.progress.since;
        let since = since.unwrap_or(self.context.trigger().updated_at);
        let wake = waits::wake(&self.progress.waits, since);
        Ok(suspend(wake, self.progress.to_json()?).writing(writes))
    }

    /// Checks the result of a tool call with the guardrails. Returns the result, possibly replaced.
    async fn check_result(&mut self, call: &CallId, answer: Answer) -> Answer {
        let tool = self.tool_of(call);
        self.agent.guardrails.tool_result(&tool, answer).await
    }

    /// Returns the tool name of the unfinished tool call with this ID, or an empty string without such a call.
    fn tool_of(&self, call: &CallId) -> String {
        let mut pending = self.progress.machine.pending();
        let found = pending.find(|pending| pending.id == *call);
        found.map_or_else(String::new, |call| call.tool.clone())
    }
}

/// Returns the first valid reply to a request of the run, with the ID of the breadcrumb that contains the reply.
async fn find_reply(
    (agent, tool): (&AgentExecutor, &str),
    context: &ExecutionContext,
    wait: &Wait,
    found: &[Arc<Breadcrumb>],
) -> Result<Option<(BreadcrumbId, Reply)>, BoxError> {
    for found in found {
        let Some(reply) = wait.reply(found, &found.context, context.correlation_id()) else {
            continue;
        };
        if let Reply::Approved(Some(arguments)) = &reply
            && !may_change(agent, tool, wait, found, arguments)
        {
            continue;
        }
        let store = &*agent.store;
        let asked = wait.pending().sent_request();
        if !human::questions::accepts(context, found, asked, store).await? {
            continue;
        }
        let reply = match reply {
            Reply::Approved(changed) => {
                let withheld = human::withheld_arguments(found, changed.as_ref(), context, store);
                match withheld.await? {
                    Some(withheld) => Reply::Answer(withheld),
                    None => Reply::Approved(changed),
                }
            }
            Reply::Answer(full_answer) if wait.is_shaped() => {
                let shown = visible_answer(agent, context, wait, found).await?;
                Reply::Answer(agent.tools.check_answer(tool, &full_answer, shown))
            }
            reply @ Reply::Answer(_) => reply,
        };
        return Ok(Some((found.id, reply)));
    }
    Ok(None)
}

/// Reads the answer to a request of the run from a breadcrumb, reduced to the contents that a model may see.
async fn visible_answer(
    agent: &AgentExecutor,
    context: &ExecutionContext,
    wait: &Wait,
    found: &Breadcrumb,
) -> Result<Answer, BoxError> {
    let reply = match context.shown(found, &*agent.store).await {
        Ok(shown) => wait.reply(found, &shown, context.correlation_id()),
        Err(ContextError::Withheld { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(match reply {
        Some(Reply::Answer(answer)) => answer,
        Some(Reply::Approved(_)) | None => wait.pending().withheld_answer(),
    })
}

/// Returns `true` if the approver of a tool call may change the call's arguments to `arguments`. Arguments equal to those in the question
/// are not a change.
fn may_change(
    agent: &AgentExecutor,
    tool: &str,
    wait: &Wait,
    found: &Breadcrumb,
    arguments: &Json,
) -> bool {
    let Awaited::Approval {
        digest,
        arguments: requested,
        ..
    } = &wait.awaited
    else {
        return true;
    };
    // The definitions changed meanwhile: the run asks again, by the current rules.
    if agent.digest_of(tool, requested) != *digest {
        return true;
    }
    let change = human::Change {
        arguments,
        is_same: arguments == requested,
        rules: &agent.definition.approval.for_changes(tool),
        asked_at: wait.asked_at,
    };
    let may = change.is_allowed(found);
    if !may {
        tracing::warn!(
            answer = %found.id,
            version = found.version,
            schema = human::RESPONSE,
            request_id = &*wait.request_id,
            reason = "the rules for the changed arguments do not permit the person, or their time is over",
            "an answer does not count, so the run ignores the answer and continues to wait"
        );
    }
    may
}

/// Applies the checks for the run's final answer to the answer of another agent, to which the run was delegated. Returns the
/// result of the call, and the final text if the answer meets the requirements.
async fn delegated_answer(
    agent: &AgentExecutor,
    answer: Answer,
) -> Result<(Answer, Option<String>), BoxError> {
    let Answer::Success(output) = &answer else {
        return Ok((answer, None));
    };
    let text = display_text(output);
    let examined = match agent.apply_output_guardrails(text).await? {
        Ok(text) => match agent.output.as_ref().map(|output| output.read(&text)) {
            Some(Err(problem)) => Err(problem),
            Some(Ok(_)) | None => Ok(text),
        },
        Err(reason) => Err(reason),
    };
    Ok(match examined {
        Ok(text) => (answer, Some(text)),
        Err(problem) => {
            let message = format!("the agent's answer does not meet the requirements: {problem}");
            (Answer::error("bad_output", message), None)
        }
    })
}
