//! A long-running service: executors on the embedded store until Ctrl-C, logs on standard error, and
//! `/metrics`, `/live` and `/ready` over HTTP on loopback.
//!
//! Run with `cargo run --example service --features metrics`, and query it, for example with `curl localhost:9464/metrics`. The first
//! Ctrl-C stops the service after its running work, and a second Ctrl-C stops it at once. With `SERVICE_SECONDS=1` it stops after one
//! second.

#![expect(clippy::print_stderr, reason = "the output is the point of an example")]

use futures::stream::{self, Stream};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use universal_executor::tool::{ToolExecutor, json_tool};
use universal_executor::{
    BoxError, BreadcrumbStoreExt as _, MemoryStore, NewBreadcrumb, Runtime, Selector,
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let store = MemoryStore::default();
    let runtime = Arc::new(runtime(&store)?);
    let listener = TcpListener::bind("127.0.0.1:9464").await;
    // Another instance can have the port. Then any free port is used.
    let listener = match listener {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind("127.0.0.1:0").await?,
    };
    eprintln!("http://{}/metrics", listener.local_addr()?);
    let work = tokio::spawn(ask_every_second(Arc::clone(&runtime), store));
    let probes = tokio::spawn(answer_probes(listener, Arc::clone(&runtime), metrics));

    let report = runtime.run_until_signals(Box::pin(signals())).await?;

    work.abort();
    probes.abort();
    eprintln!("{report:#?}");
    Ok(())
}

fn runtime(store: &MemoryStore) -> Result<Runtime, BoxError> {
    let clock = json_tool(
        "clock",
        "Tells the time.",
        json!({}),
        |_, context| async move { Ok(json!({"asked_at": context.trigger().created_at})) },
    );
    let clock = ToolExecutor::new(clock, Arc::new(store.clone()))?.idempotent();
    Ok(Runtime::on(store).executor(clock).build()?)
}

/// Sends a request to the tool every second and waits for the answer, in place of the work of a real service.
async fn ask_every_second(runtime: Arc<Runtime>, store: MemoryStore) -> Result<(), BoxError> {
    for number in 0_u64.. {
        let id = format!("r-{number}");
        let answer = Selector::schema("tool.response.v1").all_tags([format!("request:{id}")]);
        let answer = runtime.wait_for(answer, 5 * SECOND);
        let request = json!({"tool": "clock", "requestId": id});
        store
            .create(NewBreadcrumb::new("tool.request.v1").context(request))
            .await?;
        let answer = answer.await?;
        let asked_at = answer.context.text("output.asked_at");
        tracing::info!(asked_at, "the clock answered a request");
        tokio::time::sleep(SECOND).await;
    }
    Ok(())
}

/// Returns the stop signals: each Ctrl-C, and the end of the time in `SERVICE_SECONDS`.
fn signals() -> impl Stream<Item = ()> {
    let seconds = std::env::var("SERVICE_SECONDS").ok();
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    let end = stream::once(async move {
        match seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    });
    let interrupts = stream::unfold((), |()| async {
        let interrupt = tokio::signal::ctrl_c().await;
        interrupt.is_ok().then_some(((), ()))
    });
    stream::select(end, interrupts)
}

/// Serves probes with minimal HTTP. A real service uses a web framework.
async fn answer_probes(listener: TcpListener, runtime: Arc<Runtime>, metrics: PrometheusHandle) {
    while let Ok((connection, _)) = listener.accept().await {
        let (runtime, metrics) = (Arc::clone(&runtime), metrics.clone());
        tokio::spawn(async move {
            let answered = tokio::time::timeout(5 * SECOND, answer(connection, &runtime, &metrics));
            if !matches!(answered.await, Ok(Ok(()))) {
                tracing::debug!("a probe failed or timed out");
            }
        });
    }
}

async fn answer(
    mut connection: TcpStream,
    runtime: &Runtime,
    metrics: &PrometheusHandle,
) -> Result<(), BoxError> {
    let mut request = String::new();
    BufReader::new(&mut connection)
        .read_line(&mut request)
        .await?;
    let health = runtime.health();
    let (well, body) = match request.split(' ').nth(1) {
        Some("/metrics") => (true, metrics.render()),
        Some("/live") => (health.live, health.problems.join("\n")),
        Some("/ready") => (health.ready, health.problems.join("\n")),
        Some(_) | None => (
            false,
            "unknown path; use /metrics, /live or /ready".to_owned(),
        ),
    };
    let status = if well {
        "200 OK"
    } else {
        "503 Service Unavailable"
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    connection.write_all((head + &body).as_bytes()).await?;
    Ok(())
}
