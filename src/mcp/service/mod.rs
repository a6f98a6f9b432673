//! An MCP server for the tools, agents and workflows of a service.

mod call;
mod handler;
mod http;
mod operation;
mod people;
mod progress;
mod rounds;
mod stdio;

pub use operation::McpOperation;

use crate::client::{Client, Principal};
use crate::executor::UniversalExecutor as _;
use crate::tool::ToolDispatcher;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Default for [`McpService::max_calls`].
const DEFAULT_MAX_CALLS: u32 = 1_000;

/// An MCP server that lets MCP clients call tools, agents and workflows (feature `mcp-server`).
///
/// Each call sends a request to an executor with [`Client::request`], and waits for the reply. So a durable run is behind each call: it
/// survives the end of this process, of the connection and of the worker. The executors can run in any process on the store.
///
/// ```
/// use serde_json::json;
/// use universal_executor::agent::{Agent, ScriptedModel};
/// use universal_executor::mcp::McpService;
/// use universal_executor::tool::json_tool;
/// use universal_executor::{Client, MemoryStore, Runtime, Services, Subscription};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let echo = json_tool("echo", "Repeats its input.", json!({"type": "object"}), |input, _| async move { Ok(input) });
/// let services = Services::new().model("small", ScriptedModel::new(["Hello!"])).tool(echo)?;
/// let helper = Agent::new("helper", "small")
///     .on(Subscription::trigger("user.message.v1"))
///     .bind_with(&store, &services)?;
/// let tools = services.dispatcher("tools", &store)?;
///
/// let service = McpService::new(&Client::new(&store))
///     .tools(&tools)
///     .agent("helper", "Answers questions about orders.");
/// assert_eq!(service.names(), ["echo", "helper"]);
/// let running = Runtime::on(&store).executor(tools).executor(helper).start().await?;
/// // Now `service.serve_stdio().await?`, or mount `service.router()` in an axum server.
/// running.stop().await?;
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
///
/// # Repeated calls
/// A client that sends `universal-executor/idempotency-key` in the `_meta` of a call gets the same run for each call with this key, from
/// any process of the service. [`McpServer`](crate::mcp::McpServer) sends it. Such a run continues if the client disconnects or cancels the
/// call. Any other run is cancelled with its child runs when the client disconnects, cancels the call or ends its session, and when the
/// [maximum wait](Self::max_wait) is over. Within a session over HTTP, a repeated request with the same request ID gets the same run, and the
/// run continues during the session. Keys have no effect on a store without
/// [`keyed_requests`](crate::store::Capabilities::keyed_requests). Every client of the server that knows a key gets the result of its run.
///
/// # Progress and questions
/// A call with a progress token gets the progress reports of the run's tool, and a report every ten seconds, by which clients extend their
/// timeouts. If a [person](Self::answers_as) is set, and the client supports elicitation, the server sends the questions of the run to
/// the client. Other questions need an answer through [`Client::questions`].
///
/// In protocol version 2026-07-28, a server cannot send requests to clients. The call ends with a request for input, and the client repeats
/// it with the answers and with the ID of the run. Meanwhile, the run is suspended. If the client does not repeat the call, the run waits for
/// an answer until the question expires.
///
/// # Security
/// A client can call all operations that the service lists, and nothing else. An approval that a tool needs applies to its calls. Serve
/// each tenant with a client of its store handle, and authenticate HTTP requests with a layer around [`router`](Self::router).
#[derive(Clone)]
pub struct McpService {
    shared: Arc<Shared>,
}

#[derive(Clone)]
struct Shared {
    client: Client,
    name: String,
    operations: BTreeMap<String, McpOperation>,
    person: Option<Principal>,
    max_wait: Duration,
    allowed_hosts: Vec<String>,
    allowed_origins: Vec<String>,
    /// The permits of the calls in flight.
    calls: Arc<Semaphore>,
    max_calls: u32,
}

impl McpService {
    /// Creates an MCP server without operations, whose calls are requests of `client`.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        Self {
            shared: Arc::new(Shared {
                client: client.clone(),
                name: "universal-executor".to_owned(),
                operations: BTreeMap::new(),
                person: None,
                max_wait: Duration::from_secs(60 * 60),
                allowed_hosts: vec!["localhost".into(), "127.0.0.1".into(), "::1".into()],
                allowed_origins: Vec::new(),
                calls: Arc::new(Semaphore::new(permits(DEFAULT_MAX_CALLS))),
                max_calls: DEFAULT_MAX_CALLS,
            }),
        }
    }

    /// Sets the name of the server that clients show. Defaults to `universal-executor`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.shared_mut().name = name.into();
        self
    }

    /// Adds all tools that a dispatcher serves. [`Services::dispatcher`](crate::Services::dispatcher) creates one for the tools of a
    /// service. The dispatcher must run in a runtime, in this process or in another.
    #[must_use]
    pub fn tools(mut self, dispatcher: &ToolDispatcher) -> Self {
        for spec in dispatcher.registry().specs() {
            self = self.operation(McpOperation::tool(dispatcher.id(), &spec));
        }
        self
    }

    /// Adds an agent by its executor ID, as an operation with the same name and the input `message`. The agent must subscribe to
    /// `user.message.v1`.
    ///
    /// The message has the tag `agent:<id>`. Every agent that matches the message answers it, so agents of one service should subscribe with
    /// `Subscription::trigger("user.message.v1").all_tags(["agent:<id>"])`. Otherwise each call runs all of them.
    #[must_use]
    pub fn agent(self, id: &str, description: impl Into<String>) -> Self {
        self.operation(McpOperation::agent(id, description))
    }

    /// Adds a workflow by its ID, which is also the ID of its executor. The input of the operation becomes the input of the workflow.
    #[must_use]
    pub fn workflow(
        self,
        id: &str,
        description: impl Into<String>,
        input_schema: serde_json::Value,
    ) -> Self {
        self.operation(McpOperation::workflow(id, description, input_schema))
    }

    /// Adds an operation. Replaces an operation with the same name.
    #[must_use]
    pub fn operation(mut self, operation: McpOperation) -> Self {
        let operations = &mut self.shared_mut().operations;
        operations.insert(operation.name().to_owned(), operation);
        self
    }

    /// Sets the person in whose name clients answer questions and approvals by elicitation. Defaults to no person: the server sends no questions to
    /// clients.
    ///
    /// Set it only if every client of this server acts for this person.
    #[must_use]
    pub fn answers_as(mut self, person: Principal) -> Self {
        self.shared_mut().person = Some(person);
        self
    }

    /// Sets the maximum time for which a call waits for its run. Defaults to 1 hour. Then the call fails with the ID of the run, which
    /// continues if the call has an idempotency key.
    #[must_use]
    pub fn max_wait(mut self, time: Duration) -> Self {
        self.shared_mut().max_wait = time;
        self
    }

    /// Sets the maximum number of calls in flight, over all connections. Defaults to 1,000. Further calls fail immediately.
    #[must_use]
    pub fn max_calls(mut self, calls: u32) -> Self {
        let shared = self.shared_mut();
        shared.calls = Arc::new(Semaphore::new(permits(calls)));
        shared.max_calls = calls;
        self
    }

    /// Sets the hosts that requests over HTTP may name in their `Host` header, to prevent DNS rebinding. Defaults to `localhost`,
    /// `127.0.0.1` and `::1`.
    #[must_use]
    pub fn allowed_hosts<T: Into<String>>(mut self, hosts: impl IntoIterator<Item = T>) -> Self {
        self.shared_mut().allowed_hosts = hosts.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the web origins whose pages may send requests over HTTP, such as `https://app.example.com:443` or `http://localhost:*`. Defaults to
    /// none: a request with an `Origin` header, which browsers set, is refused.
    #[must_use]
    pub fn allowed_origins<T: Into<String>>(
        mut self,
        origins: impl IntoIterator<Item = T>,
    ) -> Self {
        self.shared_mut().allowed_origins = origins.into_iter().map(Into::into).collect();
        self
    }

    /// Returns the names of the operations, in alphabetical order.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.shared.operations.keys().map(String::as_str).collect()
    }

    fn shared_mut(&mut self) -> &mut Shared {
        Arc::make_mut(&mut self.shared)
    }
}

/// Converts a number of calls to a number of permits.
fn permits(calls: u32) -> usize {
    usize::try_from(calls)
        .unwrap_or(Semaphore::MAX_PERMITS)
        .min(Semaphore::MAX_PERMITS)
}

impl fmt::Debug for McpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpService")
            .field("name", &self.shared.name)
            .field("operations", &self.names())
            .finish_non_exhaustive()
    }
}
