use super::program_run::{ProgramEvent, ProgramRun};
use super::service::Caller;
use super::wire::{self, Saved};
use super::{CliError, Settings};
use crate::agent::{ChatMessage, ProviderEvent, ProviderSession, ProviderTask, Usage};
use crate::error::{BoxError, permanent};
use crate::machine::{Answer, CallId, ToolResult};
use crate::model::Json;
use async_trait::async_trait;
use std::collections::HashMap;
use std::sync::Arc;

/// An agent run's session with its external program. The session starts the program again for each message to it.
pub(super) struct CliSession {
    settings: Arc<Settings>,
    task: ProviderTask,
    saved: Saved,
    callers: Callers,
    /// The running program of the agent, or `None` once it has ended.
    run: Option<ProgramRun>,
}

impl CliSession {
    pub(super) async fn start(
        settings: Arc<Settings>,
        task: ProviderTask,
        saved: Saved,
    ) -> Result<Self, BoxError> {
        let mut session = Self {
            settings,
            task,
            saved,
            callers: Callers::default(),
            run: None,
        };
        session.start_program().await?;
        Ok(session)
    }

    async fn start_program(&mut self) -> Result<(), BoxError> {
        let input = program_input(&self.task, &self.saved).await?;
        let run = ProgramRun::start(&self.settings, &self.task, input).await;
        self.run = Some(run?);
        self.saved.runs += 1;
        Ok(())
    }

    fn clear(&mut self) {
        self.run = None;
        self.callers = Callers::default();
    }
}

#[async_trait]
impl ProviderSession for CliSession {
    async fn next(&mut self) -> Result<ProviderEvent, BoxError> {
        let Some(run) = &mut self.run else {
            return Err(misuse_error("the program has ended"));
        };
        match run.next().await {
            Ok(ProgramEvent::Called(received)) => {
                let call = received.call;
                self.callers.add(call.id.clone(), received.caller);
                Ok(ProviderEvent::Calls {
                    calls: vec![call],
                    answer: None,
                    usage: Usage::default(),
                    answered_by: None,
                })
            }
            Ok(ProgramEvent::Answered(text)) => {
                self.clear();
                self.saved.last = Some(text.clone());
                self.saved.message = None;
                Ok(ProviderEvent::Finished {
                    text,
                    cut_off: false,
                    usage: Usage::default(),
                    answered_by: None,
                })
            }
            Err(error) => {
                self.clear();
                Err(error.into())
            }
        }
    }

    async fn deliver(&mut self, results: Vec<ToolResult>) -> Result<(), BoxError> {
        for result in results {
            self.callers.answer(&result.call_id, result.answer);
        }
        Ok(())
    }

    async fn tell(&mut self, message: String) -> Result<(), BoxError> {
        if self.run.is_some() {
            return Err(misuse_error(
                "no message can be sent while the program runs",
            ));
        }
        self.saved.message = Some(message);
        self.start_program().await
    }

    async fn answer(&mut self, _answer: Answer) -> Result<(), BoxError> {
        Err(misuse_error(
            "a program sends no model requests by breadcrumb",
        ))
    }

    async fn cancel(&mut self) {
        self.callers = Callers::default();
        if let Some(run) = self.run.take() {
            run.stop_within(self.settings.grace).await;
        }
    }

    fn save(&self) -> Result<Json, BoxError> {
        Ok(self.saved.write())
    }
}

/// Returns the JSON input for the agent's program after the input guardrails have checked its messages.
async fn program_input(task: &ProviderTask, saved: &Saved) -> Result<Vec<u8>, BoxError> {
    let messages = task.guardrails.input(task.messages.clone()).await;
    let messages = messages?.into_iter();
    let messages: Vec<_> = messages.map(ChatMessage::for_program).collect();
    let message = match &saved.message {
        Some(message) => {
            let texts = task
                .guardrails
                .input(vec![ChatMessage::user(message)])
                .await;
            let texts: Vec<_> = texts?
                .into_iter()
                .map(|message| message.text().into_owned())
                .collect();
            Some(texts.join("\n\n"))
        }
        None => None,
    };
    wire::document(task, saved, &messages, message.as_deref()).map_err(permanent)
}

fn misuse_error(problem: &'static str) -> BoxError {
    CliError::Misused { problem }.into()
}

/// The waiting HTTP clients of an agent's program, by call ID. Each client waits for a tool result. A call that was sent again has several
/// clients.
#[derive(Default)]
struct Callers(HashMap<CallId, Vec<Caller>>);

impl Callers {
    fn add(&mut self, id: CallId, caller: Caller) {
        self.0.entry(id).or_default().push(caller);
    }

    /// Sends the result of a tool call to one HTTP client of the agent's program: the newest client that waits for this result. A
    /// result for a single client is always for the newest one, because it is delivered before the next call is received. A
    /// result for all clients is the same for each.
    fn answer(&mut self, id: &CallId, answer: Answer) {
        let Some(callers) = self.0.get_mut(id) else {
            return;
        };
        if let Some(caller) = callers.pop() {
            caller.answer(answer);
        }
        if callers.is_empty() {
            self.0.remove(id);
        }
    }
}
