//! A worker that answers requests, in the client's process or in a child process.

use super::store::{Handle, Location};
use super::{NUMBER, REQUEST, RESPONSE, new_tokio};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::env;
use std::io::Read as _;
use std::process::Stdio;
use std::sync::Arc;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use universal_executor::source::StartAt;
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, ExecutionContext, NewBreadcrumb, Response, Runtime,
    Subscription, Subscriptions, UniversalExecutor,
};

/// The environment variable that makes a process of this bench a worker. Its value is the location of the store.
pub(crate) const ENVIRONMENT: &str = "UNIVERSAL_EXECUTOR_LATENCY_WORKER";

/// The relation between the client and the worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Placement {
    OneHandle,
    SeparateHandles,
    SeparateProcesses,
}

/// A running worker.
pub(crate) enum Worker {
    Task {
        stop: oneshot::Sender<()>,
        task: JoinHandle<()>,
    },
    Process(Child),
}

impl Worker {
    pub(crate) async fn start(placement: Placement, location: &Location, client: &Handle) -> Self {
        match placement {
            Placement::OneHandle => {
                let handle = client.clone();
                Self::task(async move |stop| work(&handle, stop).await)
            }
            Placement::SeparateHandles => {
                let handle = location.open().await;
                Self::task(async move |stop| {
                    work(&handle, stop).await;
                    handle.close().await;
                })
            }
            Placement::SeparateProcesses => {
                let program = env::current_exe().unwrap();
                let mut command = Command::new(program);
                command.env(ENVIRONMENT, location.to_text());
                command.stdin(Stdio::piped()).kill_on_drop(true);
                Self::Process(command.spawn().unwrap())
            }
        }
    }

    fn task<F>(work: impl FnOnce(oneshot::Receiver<()>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(work(stopped));
        Self::Task { stop, task }
    }

    /// Stops the worker and waits until its handle is closed.
    pub(crate) async fn stop(self) {
        match self {
            Self::Task { stop, task } => {
                stop.send(()).unwrap();
                task.await.unwrap();
            }
            Self::Process(mut child) => {
                drop(child.stdin.take());
                let status = child.wait().await.unwrap();
                assert!(status.success(), "the worker process ended with {status}");
            }
        }
    }
}

/// Runs a worker process until its standard input ends, which is also the case if the bench is killed.
pub(crate) fn serve(location: &str) {
    new_tokio().block_on(async {
        let handle = Location::parse(location).open().await;
        let (stop, stopped) = oneshot::channel();
        std::thread::spawn(move || {
            let end = std::io::stdin().read_to_end(&mut Vec::new());
            drop(end);
            stop.send(()).unwrap();
        });
        work(&handle, stopped).await;
        handle.close().await;
    });
}

/// Answers requests with the default settings of a runtime.
async fn work(handle: &Handle, stop: oneshot::Receiver<()>) {
    let answerer = Answerer {
        store: handle.store(),
        subscriptions: Subscriptions::new([Subscription::trigger(REQUEST)]).unwrap(),
    };
    let runtime = Runtime::builder(handle.events())
        .executor(answerer)
        .start_at(StartAt::Beginning)
        .build()
        .unwrap();
    let stopped = async { stop.await.unwrap() };
    runtime.run_until(stopped).await.unwrap();
}

struct Answerer {
    store: Arc<dyn BreadcrumbStore>,
    subscriptions: Subscriptions,
}

#[async_trait]
impl UniversalExecutor for Answerer {
    fn id(&self) -> &str {
        "answerer"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &*self.store
    }

    async fn execute(&self, request: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!({NUMBER: request.context.get(NUMBER)}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(Response::create(
            NewBreadcrumb::new(RESPONSE).context(output),
        ))
    }
}
