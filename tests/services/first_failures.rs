//! The ten most frequent mistakes of new users. In each case, the first line at `WARN` or above, or the error that ends the
//! program, names the cause and the remedy or the next attempt, without a secret.

#[path = "../agents/server.rs"]
#[allow(dead_code, reason = "these tests use a part of it")]
mod chat;
#[path = "../stores/rcrt/server/mod.rs"]
#[allow(dead_code, reason = "these tests use a part of it")]
mod rcrt;

use crate::log::Log;
use crate::nats::harness::{answered, ask, eventually, runtime};
use crate::postgres::execute;
use crate::postgres::server::url;
use chat::{Reply, Server};
use rcrt::{Fault, Match};
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::agent::{AgentDefinition, AgentExecutor, OpenAiCompatible};
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::source::StartAt;
use universal_executor::tool::{ToolExecutor, ToolRegistry, json_tool};
use universal_executor::workflow::Workflow;
use universal_executor::workload::WorkloadManager;
use universal_executor::{
    BreadcrumbStoreExt as _, MemoryStore, NewBreadcrumb, PostgresStore, RcrtStore, Runtime, Secret,
    Services, SqliteStore, UniversalExecutor, WithLedger,
};

/// A part of each secret in these tests.
const PLANTED: &str = "planted4711";
const OWNER: &str = "00000000-0000-0000-0000-000000000001";

/// Log lines at `WARN` and above of one test's thread.
struct Lines {
    log: Log,
    _guard: tracing::subscriber::DefaultGuard,
}

impl Lines {
    fn capture() -> Self {
        let (log, guard) = Log::capture(tracing::Level::WARN, FmtSpan::NONE);
        Self { log, _guard: guard }
    }

    fn first(&self) -> Option<String> {
        self.log.text().lines().next().map(str::to_owned)
    }

    /// Runs a runtime until the first line is logged, and returns that line. The runtime may end with an error if its
    /// source fails at the start.
    async fn first_of(&self, runtime: &Runtime) -> String {
        let logged = eventually(async || self.first().is_some());
        let ended = runtime.run_until(logged).await;
        self.first()
            .unwrap_or_else(|| panic!("no line was logged: {ended:?}"))
    }
}

/// Returns an error and its sources in the format of a `main` function.
fn printed(error: &(dyn Error + 'static)) -> String {
    let mut text = format!("Error: {error}");
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

/// Prints a line, and fails unless the line has all parts and no secret.
#[expect(clippy::print_stdout, reason = "`--nocapture` shows all ten lines")]
fn expect_line(failure: &str, line: &str, parts: &[&str]) {
    println!("{failure}: {line}");
    for part in parts {
        assert!(line.contains(part), "{part:?} is not in: {line}");
    }
    assert!(!line.contains(PLANTED), "{line}");
}

/// Returns a port of 127.0.0.1 without a listener.
fn closed_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A PostgreSQL login role with a separate schema. [`remove`](Self::remove) deletes both.
struct Role {
    name: String,
}

impl Role {
    async fn create() -> Self {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let name = format!("ux_first_{}_{number}", std::process::id());
        execute(format!("CREATE ROLE {name} LOGIN PASSWORD '{PLANTED}'")).await;
        execute(format!("CREATE SCHEMA {name} AUTHORIZATION {name}")).await;
        Self { name }
    }

    fn url(&self) -> String {
        let options: PgConnectOptions = url().parse().unwrap();
        let (host, port) = (options.get_host(), options.get_port());
        format!("postgres://{}:{PLANTED}@{host}:{port}/postgres", self.name)
    }

    async fn connect(&self) -> PostgresStore {
        let builder = PostgresStore::builder(self.url()).schema(&self.name);
        builder.without_vectors().connect().await.unwrap()
    }

    /// Closes all connections of the role.
    async fn disconnect(&self) {
        let name = &self.name;
        execute(format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{name}'"
        ))
        .await;
    }

    async fn remove(self) {
        self.disconnect().await;
        let name = &self.name;
        execute(format!("DROP SCHEMA {name} CASCADE; DROP ROLE {name}")).await;
    }
}

/// Creates a runtime with one question and an agent on `question.v1` whose model is at `base_url`.
async fn agent_at(base_url: &str) -> Runtime {
    let model = OpenAiCompatible::builder(base_url)
        .key(Secret::new(format!("sk-{PLANTED}")))
        .model("gpt-5-mni")
        .build()
        .unwrap();
    let definition = AgentDefinition::from_json(&json!({
        "agent_id": "helper", "system_prompt": "Help.",
        "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
    }));
    let store = MemoryStore::default();
    let shared = Arc::new(store.clone());
    let agent = AgentExecutor::new(definition.unwrap(), Arc::new(model), shared).unwrap();
    ask(&store, 1).await;
    on(&store, agent)
}

/// Creates a runtime with one executor on all events of a store.
fn on(store: &MemoryStore, executor: impl UniversalExecutor + 'static) -> Runtime {
    Runtime::builder(store.events())
        .start_at(StartAt::Beginning)
        .executor(executor)
        .build()
        .unwrap()
}

/// Creates a runtime on the events and breadcrumbs of an RCRT (Right Context Right Time) server.
fn on_rcrt(base_url: &str, token: &str) -> Runtime {
    let server = RcrtStore::builder(base_url, OWNER)
        .token(Secret::new(token))
        .build()
        .unwrap();
    let events = server.events();
    let store = WithLedger::new(server, MemoryStore::default().in_tenant(OWNER));
    runtime(events, &store).build().unwrap()
}

#[tokio::test]
async fn a_wrong_port_is_named_with_its_host() {
    let port = closed_port();
    let at = format!("127.0.0.1:{port}");

    let refused = PostgresStore::builder(format!("postgres://app:{PLANTED}@{at}/app"))
        .wait_timeout(Duration::from_secs(1))
        .connect()
        .await
        .unwrap_err();
    let lines = Lines::capture();
    let of_model = lines
        .first_of(&agent_at(&format!("http://{at}/v1")).await)
        .await;
    drop(lines);
    let lines = Lines::capture();
    let of_rcrt = lines
        .first_of(&on_rcrt(&format!("http://{at}"), PLANTED))
        .await;

    let remedy = "check host and port";
    expect_line(
        "wrong port of PostgreSQL",
        &printed(&refused),
        &[&at, "refused", remedy],
    );
    let remedy = "check the base URL and that the server is running";
    expect_line(
        "wrong port of a model",
        &of_model,
        &["WARN", &at, "refused", remedy, "delay="],
    );
    expect_line(
        "wrong port of an RCRT server",
        &of_rcrt,
        &["WARN", &at, "refused", remedy, "retry_in="],
    );
}

#[tokio::test]
async fn a_wrong_password_is_named_with_the_words_of_the_server() {
    let role = Role::create().await;
    let name = &role.name;
    let wrong = role.url().replace(PLANTED, &format!("{PLANTED}x"));

    let refused = PostgresStore::builder(wrong).connect().await.unwrap_err();
    let store = role.connect().await;
    ask(&store, 1).await;
    let lines = Lines::capture();
    let worker = runtime(store.events(), &store).build().unwrap();
    let scenario = async {
        answered(&store, 1).await;
        execute(format!("ALTER ROLE {name} PASSWORD 'another'")).await;
        role.disconnect().await;
        eventually(async || lines.first().is_some()).await;
    };
    worker.run_until(scenario).await.unwrap();
    let line = lines.first().unwrap();
    drop(worker);

    let cause = format!("password authentication failed for user \"{name}\"");
    let parts = [&*cause, "28P01", "check user, password"];
    expect_line("wrong password at the start", &printed(&refused), &parts);
    expect_line("wrong password while running", &line, &parts);
    drop(store);
    role.remove().await;
}

#[tokio::test]
async fn missing_rights_are_named_with_the_table() {
    let role = Role::create().await;
    let name = &role.name;
    let store = role.connect().await;
    ask(&store, 1).await;
    execute(format!("REVOKE ALL ON {name}.ux_runs FROM {name}")).await;

    let lines = Lines::capture();
    let line = lines
        .first_of(&runtime(store.events(), &store).build().unwrap())
        .await;
    drop(store);
    let builder = PostgresStore::builder(role.url()).schema(format!("{name}_other"));
    let refused = builder.connect().await.unwrap_err();

    let parts = [
        "WARN",
        "permission denied for table ux_runs",
        "grant the privilege",
    ];
    expect_line("missing table rights", &line, &parts);
    expect_line(
        "missing right to create the schema",
        &printed(&refused),
        &[
            "permission denied",
            "check user, password, database and privileges",
        ],
    );
    role.remove().await;
}

#[tokio::test]
async fn a_wrong_token_is_named_with_the_request() {
    let server = rcrt::Server::start().await;
    for _ in 0..100 {
        let refusal = Fault::Refuse(401, "invalid or expired token");
        server.fail(Match("GET", "/events/stream"), refusal);
    }

    let lines = Lines::capture();
    let line = lines.first_of(&on_rcrt(&server.base_url(), PLANTED)).await;

    let parts = [
        "WARN",
        &*server.base_url(),
        "401",
        "invalid or expired token",
        "check the token",
    ];
    expect_line("wrong token", &line, &parts);
}

fn refusal(status: u16, headers: &[(&str, &str)], code: &str, message: &str) -> Reply {
    let body = json!({"error": {"message": message, "code": code}}).to_string();
    Reply::body(status, "application/json", headers, body.as_bytes())
}

#[tokio::test]
async fn a_wrong_model_name_is_named_with_the_words_of_the_provider() {
    let message = "The model `gpt-5-mni` does not exist";
    let server = Server::start(refusal(404, &[], "model_not_found", message)).await;

    let lines = Lines::capture();
    let line = lines.first_of(&agent_at(&server.base_url()).await).await;

    let parts = ["WARN", "404", message, "check the model name"];
    expect_line("wrong model name", &line, &parts);
}

#[tokio::test]
async fn a_rate_limit_is_named_with_the_time_of_the_next_attempt() {
    let headers = [("retry-after", "7")];
    let server = Server::start(refusal(429, &headers, "rate_limit_exceeded", "slow down")).await;

    let lines = Lines::capture();
    let line = lines.first_of(&agent_at(&server.base_url()).await).await;

    let words = "status 429: rate_limit_exceeded: slow down";
    let url = server.base_url();
    let host = url.trim_end_matches("/v1");
    let parts = [
        "WARN",
        "rate limited",
        host,
        words,
        "will retry",
        "delay=7s",
    ];
    expect_line("rate limit", &line, &parts);
}

#[tokio::test]
async fn a_wrong_api_key_is_named_with_the_words_of_the_provider_and_without_the_key() {
    let message = format!("Incorrect API key provided: sk-{PLANTED}");
    let server = Server::start(refusal(401, &[], "invalid_api_key", &message)).await;

    let lines = Lines::capture();
    let line = lines.first_of(&agent_at(&server.base_url()).await).await;

    let url = server.base_url();
    let host = url.trim_end_matches("/v1");
    let words = "status 401: invalid_api_key: Incorrect API key provided: [key]";
    let parts = ["WARN", "check the API key", host, words];
    expect_line("wrong API key", &line, &parts);
}

#[tokio::test]
async fn a_panic_of_a_tool_is_named_with_its_message() {
    let store = MemoryStore::default();
    let tool = json_tool("divider", "Divides.", json!({}), |_, _| async {
        panic!("attempt to divide by zero")
    });
    let tool = ToolExecutor::new(tool, Arc::new(store.clone())).unwrap();
    let request = json!({"tool": "divider", "input": {}, "requestId": "r-1"});
    let request = NewBreadcrumb::new("tool.request.v1").context(request);
    store.create(request).await.unwrap();

    let lines = Lines::capture();
    let line = lines.first_of(&on(&store, tool)).await;

    let parts = ["WARN", "divider", "panicked: attempt to divide by zero"];
    expect_line("tool panic", &line, &parts);
}

#[tokio::test]
async fn bad_yaml_is_named_with_its_position() {
    let folder = Folder::new();
    let file = folder.0.join("desk.yaml");
    let text = "flows:\n  main:\n    steps:\n      - id: a\n     tool: search\n";
    std::fs::write(&file, text).unwrap();
    let manager = WorkloadManager::builder().root(&folder.0).build().unwrap();

    let parsed = Workflow::from_yaml(text).unwrap_err();
    let loaded = manager.load("desk").await.err().unwrap();

    let remedy = "check the indentation";
    expect_line("bad YAML", &printed(&parsed), &["line 5", remedy]);
    expect_line(
        "bad YAML in a file",
        &printed(&loaded),
        &["desk.yaml", "5:", remedy],
    );
}

#[tokio::test]
async fn a_bad_json_schema_is_named_with_its_path() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "strin"}}});
    let tool = json_tool("adder", "Adds.", schema.clone(), |input, _| async {
        Ok::<Value, _>(input)
    });
    let refused = ToolRegistry::default().with(tool).err().unwrap();
    let store = MemoryStore::default();
    let definition = json!({
        "agent_id": "helper", "system_prompt": "Help.", "output_schema": schema,
        "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
    });
    let new = NewBreadcrumb::new(StoredDefinitions::AGENT).context(definition);
    let definition = store.create(new.title("The helper")).await.unwrap();
    let model = OpenAiCompatible::builder("http://127.0.0.1:1/v1").model("m");
    let services = Services::new().default_model(model.build().unwrap());
    let definitions = StoredDefinitions::new(&store, &services).agents();
    let runtime = Runtime::builder(store.events()).definitions(definitions);

    let lines = Lines::capture();
    let line = lines.first_of(&runtime.build().unwrap()).await;

    expect_line(
        "bad JSON Schema of a tool",
        &printed(&refused),
        &["adder", "input", "strin"],
    );
    let parts = [
        "WARN",
        &*definition.id.to_string(),
        "The helper",
        "output schema",
        "strin",
        "update the breadcrumb",
    ];
    expect_line("bad JSON Schema", &line, &parts);
}

/// A folder that is deleted on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let name = format!("ux-first-failures-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[tokio::test]
async fn a_full_disk_is_named_with_the_path_of_the_database() {
    let folder = Folder::new();
    let file = folder.0.join("store.db");
    let store = SqliteStore::open(&file).await.unwrap();
    for n in 0..50 {
        ask(&store, n).await;
    }
    store.limit_growth(2).await.unwrap();

    // The writer thread of the file logs the failure.
    let log = Log::capture_process_at(tracing::Level::WARN);
    let path = file.to_str().unwrap();
    let first = || {
        let text = log.text();
        let mut lines = text.lines().filter(|line| line.contains(path));
        lines.next().map(str::to_owned)
    };
    let worker = runtime(store.events(), &store).build().unwrap();
    let logged = eventually(async || first().is_some());
    worker.run_until(logged).await.unwrap();

    let parts = ["WARN", path, "disk", "full", "free some space"];
    expect_line("full disk", &first().unwrap(), &parts);
}
