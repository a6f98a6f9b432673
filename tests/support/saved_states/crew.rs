//! The executors of a fixture. Their definitions never change: runs of older fixtures continue with them.

use super::Saved;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use universal_executor::agent::{
    AgentDefinition, AgentExecutor, ChatRequest, ChatResponse, ScriptedModel, Speaker, ToolCall,
};
use universal_executor::error::permanent;
use universal_executor::executor::OrderingKey;
use universal_executor::source::StartAt;
use universal_executor::tool::{JsonTool, ToolDispatcher, ToolRegistry, json_tool};
use universal_executor::workflow::Workflow;
use universal_executor::workload::{FlowDefinition, WorkloadExecutor};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, ExecutionContext, NewBreadcrumb, Profile, Response,
    Runtime, Services, Subscription, Subscriptions, UniversalExecutor, async_trait,
};

/// Executors that answer notes. The name of each is the state of its runs.
pub(super) const ANSWERERS: [&str; 15] = [
    "cancelled",
    "delayed",
    "done",
    "failed",
    "keyed",
    "leased",
    "ordered",
    "paused",
    "positioned",
    "ready",
    "skipped",
    "superseded",
    "suspended",
    "transferred",
    "waited",
];
pub(super) const AGENT: &str = "agent";
pub(super) const CHAT: &str = "chat";
pub(super) const FLOW: &str = "flow";
/// Executor that serves one tool of the agent.
pub(super) const ORDERS: &str = "orders";
pub(super) const REFUNDS: &str = "refunds";
/// All executors except the [`ANSWERERS`].
pub(super) const OTHERS: [&str; 5] = [AGENT, CHAT, FLOW, ORDERS, REFUNDS];
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// One call of `execute` of an answerer.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Execution {
    pub(super) executor: String,
    /// The name of the note.
    pub(super) note: String,
    pub(super) attempt: u32,
    /// The saved state, and the schema of the breadcrumb that woke the run.
    pub(super) resumed: Option<(String, Option<String>)>,
}

/// Records the work of a crew.
#[derive(Debug, Default)]
pub(super) struct Journal {
    executions: Mutex<Vec<Execution>>,
    tools: Mutex<Vec<String>>,
}

impl Journal {
    /// Returns the executions of all answerers, sorted by executor.
    pub(super) fn executions(&self) -> Vec<Execution> {
        let mut all = self.executions.lock().unwrap().clone();
        all.sort();
        all
    }

    /// Returns the recorded tool calls, sorted by name.
    pub(super) fn tools(&self) -> Vec<String> {
        let mut all = self.tools.lock().unwrap().clone();
        all.sort();
        all
    }
}

/// The executors on one store.
pub(super) struct Crew<S> {
    store: S,
    pub(super) journal: Arc<Journal>,
    pub(super) agent_model: Arc<ScriptedModel>,
    pub(super) chat_model: Arc<ScriptedModel>,
    /// If `true`, the executor "failed" returns an error.
    fails: bool,
}

impl<S: Saved> Crew<S> {
    /// Creates the crew that writes a fixture.
    pub(super) fn writing(store: &S) -> Self {
        Self::new(store, true)
    }

    /// Creates the crew that continues a fixture.
    pub(super) fn resuming(store: &S) -> Self {
        Self::new(store, false)
    }

    fn new(store: &S, fails: bool) -> Self {
        Self {
            store: store.clone(),
            journal: Arc::default(),
            agent_model: Arc::new(ScriptedModel::answering(|_, request| {
                Ok(agent_answer(request))
            })),
            chat_model: Arc::new(ScriptedModel::answering(|_, request| {
                Ok(chat_answer(request))
            })),
            fails,
        }
    }

    /// Builds the crew's runtime. An executor without a saved position starts with later events.
    pub(super) fn runtime(&self) -> Runtime {
        let runtime = Runtime::builder(self.store.events(None))
            .start_at(StartAt::Now)
            .sweep_every(Duration::from_millis(200))
            .worker_name("crew");
        let runtime = ANSWERERS
            .into_iter()
            .fold(runtime, |runtime, id| runtime.executor(self.answerer(id)));
        runtime
            .executor(self.agent())
            .executor(self.serving(ORDERS, "find_order"))
            .executor(self.serving(REFUNDS, "refund"))
            .executor(self.flow())
            .executor(self.chat())
            .build()
            .unwrap()
    }

    fn answerer(&self, id: &'static str) -> Answerer<S> {
        Answerer {
            id,
            subscriptions: subscriptions(id),
            profile: Profile::new("executor").ordering(OrderingKey::tag("line:")),
            store: self.store.clone(),
            journal: Arc::clone(&self.journal),
            fails: self.fails && id == "failed",
        }
    }

    /// Creates a tool that records its calls.
    fn tool(&self, name: &'static str) -> JsonTool {
        let journal = Arc::clone(&self.journal);
        let tool = json_tool(
            name,
            "For tests.",
            json!({"type": "object"}),
            move |_, _| {
                journal.tools.lock().unwrap().push(name.to_owned());
                async move { Ok(json!(format!("{name} done"))) }
            },
        );
        tool.timeout(DAY)
    }

    fn registry(&self, names: &[&'static str]) -> ToolRegistry {
        names.iter().fold(ToolRegistry::default(), |all, name| {
            all.with(self.tool(name)).unwrap()
        })
    }

    /// Creates an agent whose tool calls are breadcrumbs that another executor serves.
    fn agent(&self) -> AgentExecutor {
        let names = ["find_order", "refund"];
        let definition = AgentDefinition::from_json(&json!({
            "agent_id": AGENT, "system_prompt": "Help.", "tools": names, "tool_calls": "breadcrumbs",
            "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
        }));
        let model = Arc::clone(&self.agent_model);
        let store = Arc::new(self.store.clone());
        let tools = self.registry(&names);
        AgentExecutor::with_tools(definition.unwrap(), model, store, &tools).unwrap()
    }

    fn serving(&self, id: &str, tool: &'static str) -> ToolDispatcher {
        let store = Arc::new(self.store.clone());
        ToolDispatcher::new(id, self.registry(&[tool]), store).unwrap()
    }

    /// Creates a flow that waits for a breadcrumb between two tools.
    fn flow(&self) -> WorkloadExecutor {
        let workflow = Workflow::from_json(&json!({
            "tools": {"prepare": {}, "publish": {}},
            "flows": {"main": {"steps": [
                {"id": "prepared", "tool": "prepare", "input": {"n": "${input.n}"}},
                {"id": "agreed", "wait_for": {"schema_name": "agreement.v1"}, "timeout_seconds": 86400},
                {"id": "published", "tool": "publish", "input": {"n": "${input.n}"}},
                {"return": {"prepared": "${prepared}", "by": "${agreed.by}", "published": "${published}"}},
            ]}},
        }));
        let services = Services::new().tools(self.registry(&["prepare", "publish"]));
        WorkloadExecutor::of_workflow(FLOW, workflow.unwrap(), &services, &self.store).unwrap()
    }

    /// Creates a conversation with a tool in the same process.
    fn chat(&self) -> WorkloadExecutor {
        let workflow = Workflow::from_json(&json!({
            "tools": {"look_up": {}},
            "agents": {"main": {"instruction": "Talk.", "tools": ["look_up"]}},
        }));
        let definition = FlowDefinition::new(CHAT, workflow.unwrap()).unwrap();
        let model = Arc::clone(&self.chat_model);
        let services = Services::new().tools(self.registry(&["look_up"]));
        let services = services.default_model(model);
        let messages = Subscriptions::new([Subscription::trigger("user.message.v1")]).unwrap();
        let definition = Arc::new(definition);
        WorkloadExecutor::new(CHAT, definition, &services, &self.store, messages).unwrap()
    }
}

/// Returns an answerer's subscriptions: notes with a tag that names the answerer.
pub(super) fn subscriptions(id: &str) -> Subscriptions {
    let notes = Subscription::trigger("note.v1").any_tags([format!("to:{id}")]);
    Subscriptions::new([notes]).unwrap()
}

/// Returns the answer to a note.
pub(super) fn answer(note: &Breadcrumb) -> NewBreadcrumb {
    let context = json!({"note": note.id, "version": note.version});
    NewBreadcrumb::new("answer.v1").context(context)
}

/// Calls two tools at once, then answers with their results.
fn agent_answer(request: &ChatRequest) -> ChatResponse {
    let results = request
        .messages
        .iter()
        .filter(|message| message.speaker == Speaker::Tool);
    let results: Vec<_> = results.map(|message| message.text().into_owned()).collect();
    if results.is_empty() {
        let call = |tool: &str| ToolCall::new(tool, tool, json!({"order": 7}));
        return ChatResponse::calling(vec![call("find_order"), call("refund")]);
    }
    ChatResponse::new(results.join(", "))
}

/// Answers the user's last message. If the message is "one", calls a tool first.
fn chat_answer(request: &ChatRequest) -> ChatResponse {
    let messages = &request.messages;
    let asked = messages
        .iter()
        .rposition(|message| message.speaker == Speaker::User)
        .unwrap();
    let text = messages[asked].text();
    let has_result = messages[asked..]
        .iter()
        .any(|message| message.speaker == Speaker::Tool);
    if text == "one" && !has_result {
        let call = ToolCall::new("look-1", "look_up", json!({}));
        return ChatResponse::calling(vec![call]);
    }
    ChatResponse::new(format!("{text} answered"))
}

/// An executor that answers each note with the note's ID.
struct Answerer<S> {
    id: &'static str,
    subscriptions: Subscriptions,
    profile: Profile,
    store: S,
    journal: Arc<Journal>,
    fails: bool,
}

#[async_trait]
impl<S: Saved> UniversalExecutor for Answerer<S> {
    fn id(&self) -> &str {
        self.id
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn execute(&self, note: &Breadcrumb, cx: &ExecutionContext) -> Result<Value, BoxError> {
        let resumed = cx.resumed().map(|resumed| {
            let with = resumed.with.as_ref();
            let schema = with.and_then(|with| with.schema_name.clone());
            (resumed.state.to_string(), schema)
        });
        self.journal.executions.lock().unwrap().push(Execution {
            executor: self.id.to_owned(),
            note: note.context["name"].as_str().unwrap().to_owned(),
            attempt: cx.attempt(),
            resumed,
        });
        match self.fails {
            true => Err(permanent("no stock")),
            false => Ok(Value::Null),
        }
    }

    async fn respond(&self, note: &Breadcrumb, _: Value) -> Result<Response, BoxError> {
        Ok(Response::create(answer(note)))
    }
}
