//! The providers and tool locations for a conversation.

use crate::cli::playing;
use crate::server::{head, read};
use crate::setups::Notes;
use crate::setups::conversation::{answer, completion, steps};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use universal_executor::agent::{
    AgentDefinition, AgentExecutor, ApiProvider, BreadcrumbModel, ChatRequest, ChatResponse,
    OpenAiCompatible, Provider, ScriptedModel, Speaker, ToolCall, model_tool,
};
use universal_executor::machine::Effect;
use universal_executor::tool::{ToolDispatcher, ToolExecutor, ToolRegistry, json_tool};
use universal_executor::{BoxError, MemoryStore, UniversalExecutor};

/// The agent's provider and the location of its tools.
pub(crate) enum Setup {
    /// A model and tools in this process.
    InProcess,
    /// A model in this process, and tools by breadcrumbs.
    ToolsByBreadcrumbs,
    /// A model behind HTTP, and tools in this process.
    Http(Endpoint),
    /// A program, and tools in this process.
    Program(Notes),
    /// A program, and tools by breadcrumbs.
    ProgramAndBreadcrumbs(Notes),
    /// A model by breadcrumbs, and tools in this process.
    ModelByBreadcrumbs,
}

/// A conversation's participants, and records of their actions.
pub(crate) struct Scene {
    pub(crate) store: MemoryStore,
    pub(crate) effects: Arc<Mutex<Vec<Effect>>>,
    /// Number of times that a tool ran.
    pub(crate) works: Arc<AtomicUsize>,
    setup: Setup,
    model: Arc<ScriptedModel>,
}

impl Scene {
    pub(crate) fn new(setup: Setup) -> Self {
        Self {
            store: MemoryStore::default(),
            effects: Arc::default(),
            works: Arc::default(),
            setup,
            model: Arc::new(ScriptedModel::answering(|_, request| {
                Ok(answer(turns(request)))
            })),
        }
    }

    /// Creates all executors.
    pub(crate) fn executors(&self) -> Vec<Arc<dyn UniversalExecutor>> {
        let store = || Arc::new(self.store.clone());
        let mut executors = vec![self.worker(), self.payer()];
        match &self.setup {
            Setup::ToolsByBreadcrumbs | Setup::ProgramAndBreadcrumbs(_) => {
                let served = ToolDispatcher::new("tools", self.tools(), store());
                executors.push(Arc::new(served.unwrap()));
            }
            Setup::ModelByBreadcrumbs => {
                let model = model_tool("model", Arc::clone(&self.model) as _);
                executors.push(Arc::new(ToolExecutor::new(model, store()).unwrap()));
            }
            Setup::InProcess | Setup::Http(_) | Setup::Program(_) => {}
        }
        executors
    }

    /// Returns the final result of each call that the agent received, with the call ID.
    pub(crate) fn call_results(&self) -> Vec<(String, String)> {
        let told = match &self.setup {
            Setup::InProcess | Setup::ToolsByBreadcrumbs | Setup::ModelByBreadcrumbs => {
                results_for_model(self.model.requests().last().unwrap())
            }
            Setup::Http(endpoint) => endpoint.call_results(),
            Setup::Program(notes) | Setup::ProgramAndBreadcrumbs(notes) => {
                results_for_program(notes.read().last().unwrap())
            }
        };
        // Chat completions have no field for errors, so their text has a prefix.
        let text = |text: String| text.strip_prefix("error: ").unwrap_or(&text).to_owned();
        told.into_iter()
            .map(|(id, told)| (id, text(told)))
            .collect()
    }

    fn worker(&self) -> Arc<dyn UniversalExecutor> {
        let tools = self.tools();
        let how = match &self.setup {
            Setup::ToolsByBreadcrumbs | Setup::ProgramAndBreadcrumbs(_) => "breadcrumbs",
            Setup::InProcess | Setup::Http(_) | Setup::Program(_) | Setup::ModelByBreadcrumbs => {
                "in_process"
            }
        };
        let definition = AgentDefinition::from_json(&json!({
            "agent_id": "worker", "system_prompt": "Work.",
            "tools": tools.names(), "tool_calls": how, "use": ["payer"], "max_turns": 20,
            "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
            "approval": {"tools": ["pay"]},
            "outputs": [{
                "name": "completion-report", "description": "What was done.", "required": true,
                "schema": {"type": "object", "required": ["done"]},
            }],
        }));
        let store = Arc::new(self.store.clone());
        let provider = self.provider();
        let agent = AgentExecutor::with_provider(definition.unwrap(), provider, store, &tools);
        let effects = Arc::clone(&self.effects);
        let keep = move |_: &_, effect: &Effect| effects.lock().unwrap().push(effect.clone());
        Arc::new(agent.unwrap().observed_by(keep))
    }

    fn provider(&self) -> Arc<dyn Provider> {
        match &self.setup {
            Setup::InProcess | Setup::ToolsByBreadcrumbs => {
                Arc::new(ApiProvider::new(Arc::clone(&self.model) as _))
            }
            Setup::Http(endpoint) => {
                let client = OpenAiCompatible::builder(&endpoint.url)
                    .model("tiny")
                    .build();
                Arc::new(ApiProvider::new(Arc::new(client.unwrap())))
            }
            Setup::Program(notes) | Setup::ProgramAndBreadcrumbs(notes) => {
                Arc::new(playing(&steps(notes.path())))
            }
            Setup::ModelByBreadcrumbs => Arc::new(BreadcrumbModel::new("model")),
        }
    }

    fn tools(&self) -> ToolRegistry {
        let tool = |name, work: fn(Value) -> Result<Value, BoxError>| {
            let works = Arc::clone(&self.works);
            json_tool(
                name,
                "For tests.",
                json!({"type": "object"}),
                move |input, _| {
                    works.fetch_add(1, Ordering::SeqCst);
                    std::future::ready(work(input))
                },
            )
        };
        let upper = |input: Value| Ok(input["text"].as_str().unwrap().to_uppercase().into());
        let tools = [
            tool("upper", upper),
            tool("fails", |_| Err("no such city".into())),
            tool("pay", Ok),
        ];
        let registry = ToolRegistry::default();
        tools
            .into_iter()
            .fold(registry, |registry, tool| registry.with(tool).unwrap())
    }

    /// Creates the other agent, which has separate tools.
    fn payer(&self) -> Arc<dyn UniversalExecutor> {
        let definition = AgentDefinition::from_json(&json!({
            "agent_id": "payer", "system_prompt": "Pay.",
            "tools": ["pay"], "approval": {"tools": ["pay"]},
            "subscriptions": [{
                "schema_name": "agent.request.v1", "role": "trigger",
                "context_match": [{"path": "$.agent", "op": "eq", "value": "payer"}],
            }],
        }));
        let model = ScriptedModel::answering(|_, request| {
            Ok(match turns(request) {
                0 => ChatResponse::calling(vec![ToolCall::new("1", "pay", json!({"to": "ann"}))]),
                _ => ChatResponse::new("It is paid."),
            })
        });
        let (model, store) = (Arc::new(model), Arc::new(self.store.clone()));
        let agent = AgentExecutor::with_tools(definition.unwrap(), model, store, &self.tools());
        Arc::new(agent.unwrap())
    }
}

/// Returns the number of answers of the model in a request.
pub(crate) fn turns(request: &ChatRequest) -> usize {
    let messages = request.messages.iter();
    messages
        .filter(|message| message.speaker == Speaker::Assistant)
        .count()
}

/// Returns the ID and the result of each call in a model request.
pub(crate) fn results_for_model(request: &ChatRequest) -> Vec<(String, String)> {
    let messages = request.messages.iter();
    let told = messages.filter(|message| message.speaker == Speaker::Tool);
    told.map(|message| {
        (
            message.call_id().unwrap().to_owned(),
            message.text().into_owned(),
        )
    })
    .collect()
}

fn results_for_program(heard: &Value) -> Vec<(String, String)> {
    let ids = crate::setups::conversation::calls().map(str::to_owned);
    ids.zip(texts(heard)).collect()
}

/// Returns the results that a program received, in the format for models.
pub(crate) fn texts(heard: &Value) -> Vec<String> {
    let heard = heard.as_array().unwrap().iter();
    let texts = heard.map(|answer| match (&answer["output"], &answer["code"]) {
        (Value::String(text), Value::Null) => text.clone(),
        (output, Value::Null) => output.to_string(),
        (_, code) => format!(
            "{}: {}",
            code.as_str().unwrap(),
            answer["error"].as_str().unwrap()
        ),
    });
    texts.collect()
}

/// A model behind HTTP that answers by the number of its earlier answers. It ends with the tokio runtime of its test.
pub(crate) struct Endpoint {
    url: String,
    seen: Arc<Mutex<Vec<Value>>>,
}

impl Endpoint {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let seen = Arc::default();
        let keep = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                respond(connection, &keep).await;
            }
        });
        Self { url, seen }
    }

    fn call_results(&self) -> Vec<(String, String)> {
        let seen = self.seen.lock().unwrap();
        let told = messages(seen.last().unwrap(), "tool");
        let told = told.map(|message| {
            let text = |field: &str| message[field].as_str().unwrap();
            (text("tool_call_id").to_owned(), text("content").to_owned())
        });
        told.collect()
    }
}

fn messages<'b>(body: &'b Value, role: &str) -> impl Iterator<Item = &'b Value> {
    let messages = body["messages"].as_array().unwrap().iter();
    messages.filter(move |message| message["role"] == role)
}

async fn respond(mut connection: TcpStream, keep: &Mutex<Vec<Value>>) -> Option<()> {
    let body = read(&mut connection).await?.body;
    let answer = completion(messages(&body, "assistant").count()).to_string();
    keep.lock().unwrap().push(body);
    let head = head(200, "application/json", &[], Some(answer.len()));
    connection
        .write_all((head + &answer).as_bytes())
        .await
        .ok()?;
    connection.shutdown().await.ok()
}
