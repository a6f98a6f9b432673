//! A minimal agent for a session: it passes the session's events to the machine and executes the machine's effects.

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

/// The machine and the tools of a test, and the IDs of the executed calls.
pub(crate) struct Engine {
    pub(crate) machine: Machine,
    pub(crate) executed: Arc<Mutex<Vec<String>>>,
    tool: Box<Tool>,
}

impl Engine {
    /// Creates an engine whose tools return their arguments.
    pub(crate) fn echo() -> Self {
        Self::new(|call| async move { Answer::success(arguments(&call)) }.boxed())
    }

    /// Creates an engine with three tools: `open` runs the test's client, `wait` never ends, and `echo` returns its arguments.
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

    /// Returns the IDs of the executed calls.
    pub(crate) fn executed(&self) -> Vec<String> {
        self.executed.lock().unwrap().clone()
    }

    /// Runs a program from its start to its answer.
    pub(crate) async fn run(&mut self, provider: &impl Provider) -> Result<String, BoxError> {
        let mut session = provider.start(crate::cli::task()).await?;
        self.drive(&mut *session).await
    }

    /// Drives a session to its next answer.
    pub(crate) async fn drive(
        &mut self,
        session: &mut dyn ProviderSession,
    ) -> Result<String, BoxError> {
        let driven = tokio::time::timeout(Duration::from_secs(60), self.turn(session));
        driven.await.expect("the session did not answer in time")
    }

    /// Drives a session to its next answer without a timeout, for a test that controls the clock itself.
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
                    other => panic!("unexpected effect: {other:?}"),
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
                    other => panic!("unexpected event of a program: {other:?}"),
                },
                Some((call_id, answer)) = under_way.next() => {
                    Signal::ToolCallFinished { call_id, outcome: answer.into() }
                }
            };
            effects = self.machine.step(Input::new(&run, signal));
        }
    }
}

/// Delivers the result for which a program waits.
pub(crate) async fn deliver(session: &mut dyn ProviderSession, id: &str) {
    let result = ToolResult {
        call_id: id.into(),
        answer: Answer::success(json!(null)),
    };
    session.deliver(vec![result]).await.unwrap();
}

/// Returns the next call. Fails if the program sends any other event.
pub(crate) async fn next_call(session: &mut dyn ProviderSession) -> MachineCall {
    match session.next().await.unwrap() {
        ProviderEvent::Calls { mut calls, .. } => calls.remove(0),
        other => panic!("{other:?}"),
    }
}

fn arguments(call: &MachineCall) -> Value {
    match &call.arguments {
        ToolArguments::Json(json) => serde_json::to_value(json).unwrap(),
        ToolArguments::Unreadable { .. } => panic!("a call with unreadable arguments was executed"),
    }
}
