//! The five agents of an RCRT (Right Context Right Time) distribution next to a server. The tools and the model answer like the
//! distribution's own runner. Time is paused, also on the server.

use super::OWNER;
use super::server::{Server, token_of};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use universal_executor::model::DefinitionOptions;
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::source::StartAt;
use universal_executor::tool::{ToolRegistry, remote_tool};
use universal_executor::{MemoryStore, RcrtStore, Runtime, Secret, Services, WithLedger};

const MINUTE: Duration = Duration::from_secs(60);
/// A time limit that no passing test reaches, on the server's clock and the worker's clock.
const PATIENCE: Duration = Duration::from_secs(2 * 60 * 60);
const NOTES: [&str; 4] = [
    "note.summary.v1",
    "note.tags.v1",
    "note.insights.v1",
    "note.eli5.v1",
];

/// A server with definitions, its workers' ledger, and the service that answers tool requests.
struct World {
    server: Server,
    ledger: MemoryStore,
    config: String,
    /// The IDs of the answered requests.
    answered: RefCell<HashSet<String>>,
    /// The tool that does not answer at the moment, or `None` if all tools answer.
    held: RefCell<Option<&'static str>>,
}

impl World {
    async fn new() -> Self {
        let server = Server::start().await;
        let start = jiff::SignedDuration::from_hours(24);
        server.lock().crumbs.follow_tokio(start);
        server.ways(|ways| ways.ping_every = Duration::from_secs(5));
        let config = server.put(
            OWNER,
            &json!({
                "schema_name": "tool.config.v1", "title": "OpenRouter", "tags": ["tool:config"],
                "context": {"toolName": "openrouter", "config": {
                    "apiKey": "0192f1c0-0000-7000-8000-00000000000a", "defaultModel": "m", "temperature": 0.7, "maxTokens": 1000,
                }},
            }),
        );
        let world = Self {
            server,
            ledger: MemoryStore::default().in_tenant(OWNER),
            config,
            answered: RefCell::default(),
            held: RefCell::default(),
        };
        world.define_agents();
        world
    }

    /// Stores the unchanged definitions, with a model that an operator chose.
    fn define_agents(&self) {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/rcrt-definitions/agents");
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let mut definition: Value = serde_json::from_str(&text).unwrap();
            definition["context"]["llm_config_id"] = json!(self.config);
            self.server.put(OWNER, &definition);
        }
    }

    fn worker(&self) -> Runtime {
        let server = RcrtStore::builder(self.server.base_url(), OWNER)
            .token(Secret::new(token_of(OWNER)))
            .build()
            .unwrap();
        let store = WithLedger::new(server.clone(), self.ledger.clone());
        let tool = |name| remote_tool(name, "For tests.", json!({"type": "object"}));
        let tools = ToolRegistry::default().with(tool("adder")).unwrap();
        let tools = tools.with(tool("dice")).unwrap();
        let services = Services::new().tools(tools).model_tool("openrouter");
        let definitions = StoredDefinitions::new(&store, &services)
            .options(DefinitionOptions::default().rcrt())
            .agents();
        Runtime::builder(server.events())
            .definitions(definitions)
            .start_at(StartAt::Beginning)
            .build()
            .unwrap()
    }

    fn all(&self, schema: &str) -> Vec<Map<String, Value>> {
        let state = self.server.lock();
        let all = state
            .crumbs
            .created_after(0)
            .filter(|one| one["schema_name"] == schema);
        all.cloned().collect()
    }

    /// Answers all open tool requests.
    fn serve(&self) {
        for request in self.all("tool.request.v1") {
            let (id, context) = (request["id"].as_str().unwrap(), &request["context"]);
            let is_held = self
                .held
                .borrow()
                .is_some_and(|tool| context["tool"] == tool);
            if is_held || !self.answered.borrow_mut().insert(id.to_owned()) {
                continue;
            }
            let mut answer = json!({
                "request_id": context["requestId"], "tool": context["tool"], "requestedBy": context["requestedBy"],
                "status": "success", "execution_time_ms": 3,
            });
            match self.output(context) {
                Ok(output) => answer["output"] = output,
                Err(error) => {
                    answer["status"] = json!("error");
                    answer["error"] = json!(error);
                }
            }
            let id = context["requestId"].as_str().unwrap();
            let tags = json!(["workspace:tools", "tool:response", format!("request:{id}")]);
            let title = format!("Response: {}", context["tool"].as_str().unwrap());
            let answer = json!({"schema_name": "tool.response.v1", "title": title, "tags": tags, "context": answer});
            self.server.put(OWNER, &answer);
        }
    }

    fn output(&self, request: &Value) -> Result<Value, String> {
        let input = &request["input"];
        match request["tool"].as_str().unwrap() {
            "adder" => Ok(json!({"sum": input["a"].as_u64().unwrap() + 1})),
            "dice" => Ok(json!({"rolled": input["n"]})),
            "openrouter" if input["config_id"] == self.config => {
                Ok(json!({"content": said(input["messages"].as_array().unwrap()), "usage": null}))
            }
            "openrouter" => Err("config_id is required".to_owned()),
            other => Err(format!("no such tool: {other}")),
        }
    }

    /// Serves tool requests until a condition holds.
    async fn until(&self, holds: impl Fn(&Self) -> bool) {
        while !holds(self) {
            self.serve();
            let nothing = Vec::<Map<String, Value>>::new();
            assert_eq!(self.all("executor.failed.v1"), nothing);
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns the chat agent's answers, sorted by creation time.
    fn answers(&self) -> Vec<Value> {
        let mut answers = self.all("agent.response.v1");
        answers.sort_by_key(|one| one["created_at"].to_string());
        answers
            .into_iter()
            .map(|one| one["context"].clone())
            .collect()
    }

    /// Sends a message to the chat agent, like a user and the context builder of the server.
    fn say(&self, turn: u64, context: &RefCell<Option<String>>) {
        let text = format!("This is turn {turn}.");
        let tags = json!(["user:message", "extension:chat", "session:s1"]);
        let message =
            json!({"schema_name": "user.message.v1", "tags": tags, "context": {"message": text}});
        self.server.put(OWNER, &message);
        let assembled = json!({"consumer_id": "page-helper", "turn": turn, "user_message": text});
        let mut context = context.borrow_mut();
        match &*context {
            Some(id) => self.server.change(id, &json!({"context": assembled})),
            None => {
                let tags = json!(["agent:context", "consumer:page-helper", "session:s1"]);
                let new =
                    json!({"schema_name": "agent.context.v1", "tags": tags, "context": assembled});
                *context = Some(self.server.put(OWNER, &new));
            }
        }
    }

    fn is_waiting_for(&self, tool: &str, turn_requests: usize) -> bool {
        let requests = self.all("tool.request.v1");
        let of = |request: &&Map<String, Value>| request["context"]["tool"] == tool;
        requests.iter().filter(of).count() == turn_requests
    }
}

/// Returns the model's answer. It requests `adder` in odd turns and uses the result, and requests `dice` for the user in even turns.
fn said(messages: &[Value]) -> String {
    let content = |at: usize| messages[at]["content"].as_str().unwrap();
    let instructions = content(0);
    if let Some(schema) = NOTES.iter().find(|schema| instructions.contains(**schema)) {
        let identity = section(content(1), "trigger_breadcrumb");
        let tag = format!("note:{}", identity["id"].as_str().unwrap());
        let breadcrumb = json!({"schema_name": schema, "title": "Note", "tags": [tag], "context": {"text": "Done."}});
        return json!({"action": "create", "breadcrumb": breadcrumb}).to_string();
    }
    let answer = |context: Value| {
        let breadcrumb = json!({"schema_name": "agent.response.v1", "title": "Chat", "tags": ["agent:response"], "context": context});
        let action = json!({"action": "create", "breadcrumb": breadcrumb});
        format!("Here you are:\n```json\n{action}\n```")
    };
    if messages.len() > 2 {
        let result = content(messages.len() - 1);
        let result = result.lines().find(|line| line.starts_with('{')).unwrap();
        let result: Value = serde_json::from_str(result).unwrap();
        return answer(json!({"message": format!("The sum is {}.", result["output"]["sum"])}));
    }
    let turn = section(content(1), "trigger")["turn"].as_u64().unwrap();
    let request = match turn % 2 {
        1 => {
            json!({"tool": "adder", "input": {"a": turn}, "requestId": "req-1", "return_to_llm": true})
        }
        _ => {
            json!({"tool": "dice", "input": {"n": turn}, "requestId": "req-1", "return_to_llm": false})
        }
    };
    answer(json!({"message": "One moment.", "tool_requests": [request]}))
}

/// Returns the data of a section of a rendered context.
fn section(text: &str, name: &str) -> Value {
    let (_, section) = text.split_once(&format!("\n## {name}\n")).unwrap();
    let data = section.lines().find(|line| line.starts_with('{')).unwrap();
    serde_json::from_str(data).unwrap()
}

/// Runs turns of the chat. Each turn is answered before the next one.
async fn chat(
    world: &World,
    context: &RefCell<Option<String>>,
    turns: std::ops::RangeInclusive<u64>,
) {
    for turn in turns {
        world.say(turn, context);
        world
            .until(|world| world.answers().len() as u64 == turn)
            .await;
    }
}

/// Fails unless each note agent has written one breadcrumb about the note.
fn judge_notes(world: &World) {
    let note = world.all("note.v1").remove(0);
    let tag = json!(format!("note:{}", note["id"].as_str().unwrap()));
    for schema in NOTES {
        let written = world.all(schema);
        assert_eq!(written.len(), 1, "{schema}");
        assert_eq!(written[0]["tags"][0], tag, "{schema}");
    }
}

/// Fails unless each turn has one answer, and each tool has one request per request of the model.
fn judge_chat(world: &World) {
    let answers = world.answers();
    assert_eq!(answers.len(), 10);
    for (turn, answer) in (1u64..).zip(&answers) {
        match turn % 2 {
            1 => assert_eq!(answer["message"], format!("The sum is {}.", turn + 1)),
            _ => assert_eq!(
                answer["tool_result"],
                json!({"tool": "dice", "output": {"rolled": turn}})
            ),
        }
    }
    let mut requests: BTreeMap<String, usize> = BTreeMap::new();
    for request in world.all("tool.request.v1") {
        *requests
            .entry(request["context"]["tool"].to_string())
            .or_default() += 1;
    }
    let expected = [("\"adder\"", 5), ("\"dice\"", 5), ("\"openrouter\"", 19)];
    assert_eq!(
        requests,
        expected
            .map(|(tool, count)| (tool.to_owned(), count))
            .into()
    );
}

#[tokio::test(start_paused = true)]
async fn the_five_agents_do_their_whole_job_next_to_a_server_and_restarts_repeat_nothing() {
    let world = World::new().await;
    let context = RefCell::default();

    let first = async {
        chat(&world, &context, 1..=4).await;
        world.held.replace(Some("adder"));
        world.say(5, &context);
        world.until(|world| world.is_waiting_for("adder", 3)).await;
    };
    timeout(PATIENCE, world.worker().run_until(first))
        .await
        .unwrap()
        .unwrap();
    // The tool answers while no worker runs.
    world.held.replace(None);
    world.serve();
    let second = async {
        world.until(|world| world.answers().len() == 5).await;
        world.held.replace(Some("openrouter"));
        world.say(6, &context);
        world
            .until(|world| world.is_waiting_for("openrouter", 9))
            .await;
    };
    let killed = world.worker();
    tokio::select! {
        _ = killed.run_until(std::future::pending()) => panic!("the worker must not stop by itself"),
        done = timeout(PATIENCE, second) => done.unwrap(),
    }
    drop(killed);
    let third = async {
        world.held.replace(None);
        world.until(|world| world.answers().len() == 6).await;
        chat(&world, &context, 7..=10).await;
        world.server.put(
            OWNER,
            &json!({"schema_name": "note.v1", "context": {"text": "Buy milk."}}),
        );
        let is_written = |world: &World| NOTES.iter().all(|schema| !world.all(schema).is_empty());
        world.until(is_written).await;
        sleep(MINUTE).await;
    };
    timeout(PATIENCE, world.worker().run_until(third))
        .await
        .unwrap()
        .unwrap();

    judge_notes(&world);
    judge_chat(&world);
    for schema in ["definition.rejected.v1", "executor.failed.v1"] {
        assert_eq!(world.all(schema), Vec::<Map<String, Value>>::new());
    }
}
