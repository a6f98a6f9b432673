//! The agent, as far as a session knows it: what is said goes into the machine, and what comes out of it is done.

use crate::cli::client::Door;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use universal_executor::BoxError;
use universal_executor::agent::{Provider, ProviderEvent, ProviderSession};
use universal_executor::machine::{
    Answer, Effect, Input, Machine, MachineCall, Policy, Signal, ToolArguments, ToolResult,
};

type Tool = dyn Fn(MachineCall) -> BoxFuture<'static, Answer>;

/// The tools of a test, and what they were called with.
pub(crate) struct Engine {
    pub(crate) machine: Machine,
    pub(crate) executed: Arc<Mutex<Vec<String>>>,
    tool: Box<Tool>,
}

impl Engine {
    /// Tools that say what they were given.
    pub(crate) fn echo() -> Self {
        Self::new(|call| async move { Answer::success(arguments(&call)) }.boxed())
    }

    /// A tool `open` that lets the test itself be a client, `wait` that never ends, and `echo`.
    pub(crate) fn with_client<F>(client: impl Fn(Door) -> F + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::new(move |call| match call.tool.as_str() {
            "open" => client(Door::of(&call))
                .map(|()| Answer::success(json!("done")))
                .boxed(),
            "wait" => std::future::pending().boxed(),
            _ => async move { Answer::success(arguments(&call)) }.boxed(),
        })
    }

    pub(crate) fn new(tool: impl Fn(MachineCall) -> BoxFuture<'static, Answer> + 'static) -> Self {
        Self {
            machine: Machine::new("run-1", Policy::each()),
            executed: Arc::default(),
            tool: Box::new(tool),
        }
    }

    /// The ids of the calls that were executed.
    pub(crate) fn executed(&self) -> Vec<String> {
        self.executed.lock().unwrap().clone()
    }

    /// Runs a program from its start to its answer.
    pub(crate) async fn run(&mut self, provider: &impl Provider) -> Result<String, BoxError> {
        let mut session = provider.start(crate::cli::task()).await?;
        self.drive(&mut *session).await
    }

    /// Drives a session to the next answer.
    pub(crate) async fn drive(
        &mut self,
        session: &mut dyn ProviderSession,
    ) -> Result<String, BoxError> {
        let driven = tokio::time::timeout(Duration::from_secs(60), self.turn(session));
        driven.await.expect("the session hangs")
    }

    /// The same without a limit of time, for a test that has a clock of its own.
    pub(crate) async fn turn(
        &mut self,
        session: &mut dyn ProviderSession,
    ) -> Result<String, BoxError> {
        let run = self.machine.run().clone();
        let mut under_way = FuturesUnordered::new();
        let mut effects = self.machine.outstanding();
        loop {
            for effect in effects {
                match effect {
                    Effect::Execute(call) => {
                        self.executed.lock().unwrap().push(call.id.to_string());
                        let id = call.id.clone();
                        under_way.push((self.tool)(call).map(|answer| (id, answer)));
                    }
                    Effect::Deliver(results) => session.deliver(results).await?,
                    Effect::Report(_) => {}
                    other => panic!("no such effect is expected: {other:?}"),
                }
            }
            let signal = tokio::select! {
                said = session.next() => match said? {
                    ProviderEvent::Calls { mut calls, .. } => {
                        assert_eq!(calls.len(), 1, "a program calls tools one by one");
                        let call = calls.remove(0);
                        Signal::ToolCallReceived { call, more: false }
                    }
                    ProviderEvent::Finished { text, .. } => return Ok(text),
                    other => panic!("a program does not say {other:?}"),
                },
                Some((call_id, answer)) = under_way.next() => {
                    Signal::ToolCallFinished { call_id, outcome: answer.into() }
                }
            };
            effects = self.machine.step(Input::new(&run, signal));
        }
    }
}

/// Gives a program the result that it waits for.
pub(crate) async fn deliver(session: &mut dyn ProviderSession, id: &str) {
    let result = ToolResult {
        call_id: id.into(),
        answer: Answer::success(json!(null)),
    };
    session.deliver(vec![result]).await.unwrap();
}

/// The next call, which is all that the program says.
pub(crate) async fn next_call(session: &mut dyn ProviderSession) -> MachineCall {
    match session.next().await.unwrap() {
        ProviderEvent::Calls { mut calls, .. } => calls.remove(0),
        other => panic!("{other:?}"),
    }
}

fn arguments(call: &MachineCall) -> Value {
    match &call.arguments {
        ToolArguments::Json(json) => serde_json::to_value(json).unwrap(),
        ToolArguments::Unreadable { .. } => panic!("the machine executes no such call"),
    }
}
