//! The turns of an agent's run: the model is asked, the tools it calls are called, and it is asked again with what they
//! came to, until it answers. What comes next is decided in [`progress`]; this does it.

mod calls;
mod progress;
mod spent;
#[cfg(test)]
mod tests;

use super::{AgentExecutor, AgentRunError, ChatRequest, Message, ModelError, ResponseSchema};
use crate::clock::within;
use crate::error::BoxError;
use crate::executor::{ContextError, ExecutionContext};
use crate::machine::{Answer, CallId, ToolCall};
use crate::tool::{RetrySafety, Tool};
use futures::{FutureExt as _, StreamExt as _, stream};
use progress::{Next, Progress};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;
use tracing::Instrument as _;

/// How many calls of one answer go on at a time.
const MOST_AT_ONCE: usize = 16;

/// One attempt at a run.
pub(super) struct Run<'r> {
    agent: &'r AgentExecutor,
    context: &'r ExecutionContext,
    progress: Progress,
    began: Instant,
    /// How long earlier attempts worked.
    before: Duration,
    /// The first messages, made when the model is first asked.
    shown: Option<Vec<Message>>,
}

impl<'r> Run<'r> {
    /// Goes on where an earlier attempt was, or begins.
    ///
    /// # Errors
    /// [`AgentRunError::UnreadableState`].
    pub(super) fn of(
        agent: &'r AgentExecutor,
        context: &'r ExecutionContext,
    ) -> Result<Self, AgentRunError> {
        let progress = match context.resumed() {
            Some(resumed) => resumed
                .state
                .parse()
                .map_err(AgentRunError::UnreadableState)?,
            None => Progress::new(context.idempotency_key()),
        };
        Ok(Self {
            before: progress.spent.time(),
            began: Instant::now(),
            shown: None,
            agent,
            context,
            progress,
        })
    }

    /// Goes on until there is an answer, and gives it as a response has it.
    ///
    /// # Errors
    /// [`AgentRunError`], [`ModelError`], and what shaping the context and saving the progress give.
    pub(super) async fn finish(mut self) -> Result<Value, BoxError> {
        self.give_up_interrupted();
        loop {
            match self.progress.next() {
                Next::Ask => self.ask().await?,
                Next::Call(calls) => self.call(calls).await?,
                Next::Done => return Ok(self.progress.response(self.agent.output.as_ref())?),
            }
        }
    }

    /// Answers for the calls that an earlier attempt may have made and nobody may make again.
    fn give_up_interrupted(&mut self) {
        let Next::Call(calls) = self.progress.next() else {
            return;
        };
        for call in calls {
            let tool = self.agent.tools.get(&call.tool);
            if tool.is_some_and(|tool| tool.settings().retry > RetrySafety::Idempotent) {
                self.progress.finish(call.id, calls::unknown_outcome());
            }
        }
    }

    async fn ask(&mut self) -> Result<(), BoxError> {
        let agent = self.agent;
        self.touch();
        self.progress.spent.check(&agent.definition)?;
        let request = self.request().await?;
        let turn = self.progress.spent.turns + 1;
        let span = tracing::debug_span!("model_turn", agent = agent.definition.agent_id, turn);
        let asked = agent.model.chat(&request).instrument(span);
        let answer = self.in_time(asked).await?.map_err(ModelError::marked)?;
        self.touch();
        let output = agent.output.as_ref();
        self.progress.hear(&answer, &agent.definition, output)?;
        self.save().await
    }

    async fn request(&mut self) -> Result<ChatRequest, BoxError> {
        let agent = self.agent;
        let shown = match self.shown.take() {
            Some(shown) => shown,
            None => agent.messages(self.context).await?,
        };
        let messages = shown.iter().chain(self.progress.said()).cloned().collect();
        self.shown = Some(shown);
        let mut request = ChatRequest::new(messages);
        request.model.clone_from(&agent.definition.model);
        request.temperature = agent.definition.temperature;
        request.tools.clone_from(&agent.offered);
        let output = agent.output.as_ref();
        // Providers enforce only some of JSON Schema, and reject what they would not.
        request.response_schema =
            output.map(|output| ResponseSchema::new("answer", output.schema.clone()).lenient());
        Ok(request)
    }

    /// Makes calls, some at a time, and saves what they came to as they finish.
    async fn call(&mut self, calls: Vec<ToolCall>) -> Result<(), BoxError> {
        let (agent, context) = (self.agent, self.context);
        let calls: Vec<_> = calls
            .into_iter()
            .map(|call| make(agent, context, call))
            .collect();
        let mut running = stream::iter(calls).buffer_unordered(MOST_AT_ONCE);
        while let Some((id, answer)) = self.in_time(running.next()).await? {
            self.progress.finish(id, answer);
            // What has finished as well is saved with it.
            while let Some(Some((id, answer))) = running.next().now_or_never() {
                self.progress.finish(id, answer);
            }
            self.touch();
            self.save().await?;
        }
        Ok(())
    }

    /// Keeps the progress for another attempt.
    async fn save(&self) -> Result<(), BoxError> {
        match self.context.save(self.progress.to_json()?).await {
            // Without a ledger nothing is remembered, and nothing is tried again either.
            Ok(()) | Err(ContextError::Unsupported { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn touch(&mut self) {
        let worked = self.before + self.began.elapsed();
        self.progress.spent.set_time(worked);
    }

    /// What a future comes to within the time that the run has.
    async fn in_time<T>(&self, future: impl Future<Output = T>) -> Result<T, AgentRunError> {
        let Some(limit) = self.agent.definition.budgets.seconds else {
            return Ok(future.await);
        };
        let worked = self.before + self.began.elapsed();
        let left = Duration::from_secs(limit).saturating_sub(worked);
        let budget = "seconds";
        let late = || AgentRunError::BudgetUsedUp { budget, limit };
        within(left, future).await.ok_or_else(late)
    }
}

/// Makes a call, by the one way there is: through the registry that has only what the agent may call.
async fn make(
    agent: &AgentExecutor,
    context: &ExecutionContext,
    call: ToolCall,
) -> (CallId, Answer) {
    let caller = &*agent.definition.agent_id;
    // The name as it was registered: what a model wrote is in no log.
    let tool = agent.tools.get(&call.tool).map(Tool::name);
    let span = tracing::debug_span!("tool_call", agent = caller, tool);
    let id = call.id.clone();
    let called = agent.tools.call(call, Some(caller), context, &agent.store);
    (id, calls::answer(called.instrument(span).await))
}
