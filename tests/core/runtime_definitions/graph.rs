//! The graph of a runtime's executors, and the warnings about its cycles.

use crate::runtime_definitions::given::{agent, agents, redefine, runtime, until_running};
use crate::support::log::Log;
use crate::support::{Probe, put};
use serde_json::{Value, json};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::{MemoryStore, Profile, Runtime};

/// Captures the warnings of this thread.
fn capture() -> (Log, DefaultGuard) {
    Log::capture(tracing::Level::WARN, FmtSpan::NONE)
}

/// Returns the warnings about cycles.
fn cycles(log: &Log) -> Vec<String> {
    let text = log.text();
    let lines = text.lines().filter(|line| line.contains("in a cycle"));
    lines.map(str::to_owned).collect()
}

fn probe(store: &MemoryStore, id: &str, trigger: &str, writes: &str) -> Probe {
    let profile = Profile::new("tool").responds_with([writes]);
    Probe::on(trigger, id, store).profile(profile)
}

fn writer(id: &str, trigger: &str, writes: &str) -> Value {
    let mut agent = agent(id, trigger, "");
    agent["responds_with"] = json!([writes]);
    agent["capabilities"] = json!({});
    agent
}

#[tokio::test(start_paused = true)]
async fn the_graph_shows_executors_in_code_and_of_definitions() {
    let store = MemoryStore::default();
    put(
        &store,
        StoredDefinitions::AGENT,
        writer("asker", "message.v1", "question.v1"),
    )
    .await;
    let runtime = Runtime::builder(store.events())
        .executor(probe(&store, "answerer", "question.v1", "answer.v1"))
        .definitions(agents(&store))
        .build()
        .unwrap();
    let before = runtime.graph().to_mermaid();

    runtime
        .run_until(until_running(&runtime, &["answerer", "asker"]))
        .await
        .unwrap();

    assert!(
        before.contains("answerer (tool)") && !before.contains("asker"),
        "{before}"
    );
    let drawn = runtime.graph().to_mermaid();
    let expected = r#"flowchart LR
    e0["answerer (tool)"]
    e1["asker (agent)"]
    s0(["answer.v1"])
    s1(["message.v1"])
    s2(["question.v1"])
    s2 --> e0
    e0 --> s0
    s1 --> e1
    e1 --> s2
"#;
    assert_eq!(drawn, expected);
    assert!(runtime.graph().cycles().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_circle_of_executors_in_code_is_warned_of_when_it_is_built() {
    let store = MemoryStore::default();
    let (log, _guard) = capture();

    let runtime = Runtime::builder(store.events())
        .executor(probe(&store, "ping", "pong.v1", "ping.v1"))
        .executor(probe(&store, "pong", "ping.v1", "pong.v1"))
        .build()
        .unwrap();

    let cycle =
        "ping writes ping.v1, which triggers pong, which writes pong.v1, which triggers ping";
    assert_eq!(runtime.graph().cycles()[0].to_string(), cycle);
    let warned = cycles(&log);
    assert_eq!(warned.len(), 1);
    assert!(
        warned[0].contains(cycle) && warned[0].contains("WARN"),
        "{warned:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_circle_that_a_definition_closes_is_warned_of_when_it_is_loaded() {
    let store = MemoryStore::default();
    let (log, _guard) = capture();
    let runtime = runtime(&store, agents(&store));
    let scenario = async {
        let ping = put(
            &store,
            StoredDefinitions::AGENT,
            writer("ping", "in.v1", "ping.v1"),
        )
        .await;
        put(
            &store,
            StoredDefinitions::AGENT,
            writer("pong", "ping.v1", "pong.v1"),
        )
        .await;
        put(
            &store,
            StoredDefinitions::AGENT,
            writer("other", "in.v1", "out.v1"),
        )
        .await;
        until_running(&runtime, &["other", "ping", "pong"]).await;
        assert!(cycles(&log).is_empty());
        redefine(&store, &ping, writer("ping", "pong.v1", "ping.v1")).await;
        put(
            &store,
            StoredDefinitions::AGENT,
            writer("third", "in.v1", "out.v1"),
        )
        .await;
        until_running(&runtime, &["other", "ping", "pong", "third"]).await;
    };

    runtime.run_until(scenario).await.unwrap();

    let cycle =
        "ping writes ping.v1, which triggers pong, which writes pong.v1, which triggers ping";
    assert_eq!(runtime.graph().cycles().len(), 1);
    let warned = cycles(&log);
    assert_eq!(
        warned.len(),
        1,
        "other definitions must cause no warning: {warned:?}"
    );
    assert!(warned[0].contains(cycle), "{warned:?}");
}
