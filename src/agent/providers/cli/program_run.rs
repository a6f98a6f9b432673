//! One start of an agent's program, with the HTTP server for its tool calls.

use super::callbacks::Callbacks;
use super::program::Program;
use super::service::ReceivedCall;
use super::token::Token;
use super::wire;
use super::{CliError, Settings};
use crate::agent::ProviderTask;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::io;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::{select, time};

/// One start of an agent's program, with the HTTP server for its tool calls. Dropping this kills the process group of the program, and closes the port.
pub(super) struct ProgramRun {
    callbacks: Callbacks,
    answer: BoxFuture<'static, Result<String, CliError>>,
    stop: oneshot::Sender<()>,
}

/// An event of a running agent program: a tool call or the final answer.
pub(super) enum ProgramEvent {
    Called(ReceivedCall),
    Answered(String),
}

impl ProgramRun {
    pub(super) async fn start(
        settings: &Settings,
        task: &ProviderTask,
        input: Vec<u8>,
    ) -> Result<Self, CliError> {
        let token = Token::new();
        let callbacks =
            Callbacks::open(token.clone(), wire::tools(task), settings.max_call_bytes).await;
        let callbacks = callbacks.map_err(|error| io_error("listen on 127.0.0.1", error))?;
        let program = Program::start(settings, &task.run, callbacks.url(), &token)?;
        let (stop, stopped) = oneshot::channel();
        Ok(Self {
            callbacks,
            answer: program.answer(input, stopped).boxed(),
            stop,
        })
    }

    /// Returns the next event of the running agent program. Calls that were read come before the end of the program. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<ProgramEvent, CliError> {
        select! {
            biased;
            received = self.callbacks.next() => {
                let received = received.map_err(|error| io_error("accept connections", error))?;
                Ok(ProgramEvent::Called(received))
            }
            answer = &mut self.answer => Ok(ProgramEvent::Answered(answer?)),
        }
    }

    /// Answers every tool call of the agent's program as cancelled and waits up to `grace` for the program to exit, then kills it.
    pub(super) async fn stop_within(self, grace: Duration) {
        let Self {
            mut callbacks,
            mut answer,
            stop,
        } = self;
        let program_ends = async {
            select! {
                () = callbacks.cancel_calls() => false,
                _ = &mut answer => true,
            }
        };
        if !matches!(time::timeout(grace, program_ends).await, Ok(true)) && stop.send(()).is_ok() {
            answer.await.ok();
        }
    }
}

fn io_error(task: &'static str, source: io::Error) -> CliError {
    CliError::Io { task, source }
}
