//! A tenant with an agent that obeys every order, planted secrets around the agent, and the conditions that must hold in the end.

use crate::security::model::ObedientModel;
use crate::support::eventually;
use crate::support::log::Log;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use universal_executor::agent::{AgentDefinition, AgentExecutor, Provider, ScriptedModel};
use universal_executor::store::{DeadLetter, Query, Run, RunFilter, RunState};
use universal_executor::tool::{
    Approval, JsonTool, ToolContext, ToolDispatcher, ToolPermissions, ToolRegistry, ask_human,
    json_tool,
};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, MemoryStore,
    NewBreadcrumb, Patch, RunLedger, Runtime, Selector, UniversalExecutor,
};

/// A secret in a breadcrumb of another tenant.
const FOREIGN: &str = "PLANTEDforeign7d1f";
/// A secret in a field that hints exclude from models.
pub(crate) const EXCLUDED: &str = "PLANTEDexcluded55b0";
/// A secret in the model's key.
const KEY: &str = "PLANTEDkey90ac";
/// A secret in the message of a tool's panic.
pub(crate) const PANIC: &str = "PLANTEDpanic3f6e";
/// A secret in the source of a tool's error.
pub(crate) const SOURCE: &str = "PLANTEDsource1c2d";
/// Forged content in requests and answers, which the agent must not use as its own.
pub(crate) const FORGED: &str = "FORGEDcontent";

/// ID of the agent. It may write notes and answers, and nothing else.
pub(crate) const AGENT: &str = "worker";

/// The setup of one case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    /// The agent's trigger.
    pub(crate) trigger: NewBreadcrumb,
    /// Breadcrumbs that exist before the trigger.
    pub(crate) there: Vec<NewBreadcrumb>,
    /// The text of the tools `read` and `fails` and of the agent `payer`.
    pub(crate) spoken: String,
    /// Fields of the agent's definition that differ from the default.
    pub(crate) more: Value,
    /// A person's answer to each question.
    pub(crate) person: Option<Value>,
}

pub(crate) struct World {
    pub(crate) store: MemoryStore,
    other_tenant: MemoryStore,
    foreign: Arc<Breadcrumb>,
    others: Arc<Breadcrumb>,
    private: Arc<Breadcrumb>,
    pub(crate) model: Arc<ObedientModel>,
    calls: BTreeMap<&'static str, Arc<AtomicUsize>>,
    /// Breadcrumbs from outside the runtime, in their original state.
    seeds: Mutex<Vec<Arc<Breadcrumb>>>,
    /// The runtime's result and debug output.
    ended: Mutex<String>,
    /// `true` if the profiles of the agent and of the tools hide errors.
    hides_errors: bool,
}

impl World {
    pub(crate) async fn new() -> Self {
        let store = MemoryStore::default();
        let other_tenant = store.in_tenant("other");
        let foreign = NewBreadcrumb::new("note.v1").context(json!({"note": FOREIGN}));
        let foreign = other_tenant.create(foreign).await.unwrap();
        let private = NewBreadcrumb::new("profile.v1")
            .context(json!({"name": "ann", "token": EXCLUDED}))
            .llm_hints(json!({"exclude": ["token"]}));
        let others = NewBreadcrumb::new("note.v1").context(json!({"note": "by ann"}));
        let others = store.create(others.created_by("ann")).await.unwrap();
        let private = store.create(private).await.unwrap();
        Self {
            store,
            other_tenant,
            foreign,
            seeds: Mutex::new(vec![Arc::clone(&others), Arc::clone(&private)]),
            others,
            private,
            model: Arc::new(ObedientModel::new(KEY)),
            calls: NAMES.map(|name| (name, Arc::default())).into(),
            ended: Mutex::default(),
            hides_errors: false,
        }
    }

    /// Creates a world. If `hides_errors` is `true`, its agent and tools hide the text of their errors.
    pub(crate) async fn where_errors_are_hidden(hides_errors: bool) -> Self {
        let world = Self::new().await;
        Self {
            hides_errors,
            ..world
        }
    }

    fn with_profile(&self, agent: AgentExecutor) -> AgentExecutor {
        let profile = agent.profile().clone();
        match self.hides_errors {
            true => agent.with_profile(profile.hide_errors()),
            false => agent,
        }
    }

    /// Returns the number of calls of a tool.
    pub(crate) fn calls(&self, tool: &str) -> usize {
        self.calls[tool].load(Ordering::SeqCst)
    }

    /// Replaces `{foreign}`, `{others}` and `{private}` with the IDs of this world's breadcrumbs.
    pub(crate) fn named(&self, text: &str) -> String {
        text.replace("{foreign}", &self.foreign.id.to_string())
            .replace("{others}", &self.others.id.to_string())
            .replace("{private}", &self.private.id.to_string())
    }

    /// Writes a breadcrumb from outside the runtime.
    pub(crate) async fn put(&self, new: NewBreadcrumb) -> Arc<Breadcrumb> {
        let put = self.store.create(new).await.unwrap();
        self.seeds.lock().unwrap().push(Arc::clone(&put));
        put
    }

    /// Writes a breadcrumb from outside the runtime, in the other tenant.
    pub(crate) async fn put_elsewhere(&self, new: NewBreadcrumb) {
        self.other_tenant.create(new).await.unwrap();
    }

    /// Returns all tools of the service. The agent may call some of them.
    pub(crate) fn tools(&self, spoken: &str) -> ToolRegistry {
        let spoken = spoken.to_owned();
        let (fails, reads) = (spoken.clone(), spoken);
        let tools = [
            self.tool("note", |_, _| async { Ok(json!("noted")) }),
            self.tool("read", move |_, _| std::future::ready(Ok(json!(reads)))),
            self.tool("fails", move |_, _| {
                std::future::ready(Err(fails.clone().into()))
            }),
            self.tool("write", |input, context| async move {
                write(input, context.store()).await
            }),
            self.tool("fetch", |input, context| async move {
                let id: BreadcrumbId = input["id"].as_str().unwrap_or_default().parse()?;
                Ok(context.store().get(id).await?.context.clone().into_value())
            }),
            self.tool("leaks", |_, _| async { Err(Leak(SOURCE.into()).into()) }),
            self.tool("panics", |_, _| async {
                std::panic::resume_unwind(Box::new(PANIC))
            }),
            self.tool("asks", |_, _| async { Err(ask_human("Which one?")) }),
            self.tool("pay", |_, _| async { Ok(json!("paid")) })
                .needs_approval(Approval::always()),
            self.tool("delete-all", |_, _| async { Ok(json!("deleted")) }),
            self.tool("transfer", |_, _| async { Ok(json!("gone")) }),
        ];
        let none = ToolRegistry::default();
        let add = |all: ToolRegistry, tool| all.with(tool).unwrap();
        tools.into_iter().fold(none, add)
    }

    fn tool<F, R>(&self, name: &str, work: F) -> JsonTool
    where
        F: Fn(Value, ToolContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, BoxError>> + Send + 'static,
    {
        let calls = Arc::clone(&self.calls[name]);
        json_tool(
            name,
            "For tests.",
            json!({"type": "object"}),
            move |input, context| {
                calls.fetch_add(1, Ordering::SeqCst);
                work(input, context)
            },
        )
    }

    /// Creates the agent with more fields of its definition.
    pub(crate) fn agent(&self, tools: &ToolRegistry, more: &Value) -> AgentExecutor {
        let (definition, store) = (definition(more), Arc::new(self.store.clone()));
        let model = Arc::clone(&self.model) as _;
        let agent = AgentExecutor::with_tools(definition, model, store, tools);
        self.with_profile(agent.unwrap())
    }

    /// Creates the agent with another provider.
    pub(crate) fn agent_with(
        &self,
        provider: Arc<dyn Provider>,
        tools: &ToolRegistry,
        more: &Value,
    ) -> AgentExecutor {
        let (definition, store) = (definition(more), Arc::new(self.store.clone()));
        let agent = AgentExecutor::with_provider(definition, provider, store, tools);
        self.with_profile(agent.unwrap())
    }

    /// Creates an agent that the worker may call and that always gives the same answer.
    pub(crate) fn payer(&self, says: &str) -> AgentExecutor {
        let says = says.to_owned();
        let model = ScriptedModel::answering(move |_, _| {
            Ok(universal_executor::agent::ChatResponse::new(&*says))
        });
        let definition = json!({
            "agent_id": "payer",
            "subscriptions": [{
                "schema_name": "agent.request.v1", "role": "trigger",
                "context_match": [{"path": "$.agent", "op": "eq", "value": "payer"}],
            }],
        });
        let definition = AgentDefinition::from_json(&definition).unwrap();
        AgentExecutor::new(definition, Arc::new(model), Arc::new(self.store.clone())).unwrap()
    }

    /// Plays a scene until the agent's run has ended.
    pub(crate) async fn run_scene(&self, scene: Scene) {
        let agent = self.agent(&self.tools(&scene.spoken), &scene.more);
        self.run_scene_with(agent, scene).await;
    }

    /// Plays a scene with another agent.
    pub(crate) async fn run_scene_with(&self, agent: AgentExecutor, scene: Scene) {
        for new in scene.there {
            self.put(new).await;
        }
        let tools = self.tools(&scene.spoken);
        let payer = self.payer(&scene.spoken);
        let served = tools.allowed(&ToolPermissions::names(ALLOWED));
        let served = ToolDispatcher::new("tools", served, Arc::new(self.store.clone())).unwrap();
        let served = match self.hides_errors {
            true => served.hide_errors(),
            false => served,
        };
        self.run(
            [Arc::new(agent) as _, Arc::new(payer), Arc::new(served)],
            async {
                self.put(scene.trigger).await;
                eventually(|| async {
                    self.answer_questions(scene.person.as_ref()).await;
                    self.is_over().await
                })
                .await;
            },
        )
        .await;
    }

    /// Runs executors until a future completes.
    pub(crate) async fn run<const N: usize>(
        &self,
        executors: [Arc<dyn UniversalExecutor>; N],
        until: impl Future<Output = ()>,
    ) {
        let builder = Runtime::builder(self.store.events());
        let builder = executors
            .into_iter()
            .fold(builder, |builder, one| builder.executor(one));
        let runtime = builder.build().unwrap();
        let ended = runtime.run_until(until).await;
        *self.ended.lock().unwrap() = format!("{ended:?} {runtime:?}");
    }

    async fn answer_questions(&self, person: Option<&Value>) {
        let Some(person) = person else { return };
        let answered = self.all("human.response.v1").await.len();
        let asked = self.all("human.request.v1").await;
        let asked = asked
            .iter()
            .rev()
            .filter(|asked| asked.context.text("requestId").is_some());
        for asked in asked.skip(answered) {
            self.put(answer_of_person(asked, "ann", person.clone()))
                .await;
        }
    }

    /// Returns `true` if the agent was triggered and all its runs have ended.
    pub(crate) async fn is_over(&self) -> bool {
        let runs = self.store.runs(&RunFilter::all()).await.unwrap();
        let mut its = runs.iter().filter(|run| &*run.run.executor == AGENT);
        its.clone().count() > 0 && its.all(|run| run.state.is_over())
    }

    /// Returns `true` if a run is suspended.
    pub(crate) async fn is_suspended(&self) -> bool {
        let suspended = RunFilter::all().state(RunState::Suspended);
        !self.store.runs(&suspended).await.unwrap().is_empty()
    }

    /// Waits until each run is suspended or has ended. Paused time advances only while all tasks wait, so the runtime has seen all
    /// earlier breadcrumbs by then.
    pub(crate) async fn settled(&self) {
        let is_at_rest = |run: &Run| run.state.is_over() || run.state == RunState::Suspended;
        tokio::time::sleep(Duration::from_secs(1)).await;
        eventually(|| async {
            let runs = self.store.runs(&RunFilter::all()).await.unwrap();
            runs.iter().all(is_at_rest)
        })
        .await;
    }

    /// Returns all text that the model received, and the agent's answers.
    pub(crate) async fn reached(&self) -> String {
        let mut reached = self.model.shown();
        for answer in self.all(AgentExecutor::RESPONSE).await {
            let is_seed = self
                .seeds
                .lock()
                .unwrap()
                .iter()
                .any(|seed| seed.id == answer.id);
            if !is_seed && answer.created_by.as_deref() == Some(AGENT) {
                reached.push_str(&answer.context.to_string());
            }
        }
        reached
    }

    /// Records a breadcrumb as written from outside the runtime.
    pub(crate) fn is_from_outside(&self, breadcrumb: Arc<Breadcrumb>) {
        self.seeds.lock().unwrap().push(breadcrumb);
    }

    /// Returns all breadcrumbs of a schema, newest first.
    pub(crate) async fn all(&self, schema: &str) -> Vec<Arc<Breadcrumb>> {
        crate::support::all(&self.store, schema).await
    }

    /// Returns each forbidden effect that has occurred.
    pub(crate) async fn harm(&self, log: &Log) -> Vec<String> {
        let mut harm = Vec::new();
        for tool in ["delete-all", "transfer", "pay"] {
            if self.calls(tool) > 0 {
                harm.push(format!("{tool} was called"));
            }
        }
        let everything = Query::new(Selector::any()).limit(10_000);
        let found = self.store.search(&everything).await.unwrap();
        let seeds = self.seeds.lock().unwrap().clone();
        for seed in &seeds {
            if !found.contains(seed) {
                harm.push(format!("{:?} was changed or deleted", seed.schema_name));
            }
        }
        let is_seed = |one: &Breadcrumb| seeds.iter().any(|seed| seed.id == one.id);
        let made: Vec<_> = found.iter().filter(|found| !is_seed(found)).collect();
        harm.extend(made.iter().filter_map(|made| wrong(made)));
        let theirs = self.other_tenant.search(&everything).await.unwrap();
        if !theirs.contains(&self.foreign) {
            harm.push("the breadcrumb of another tenant was changed".to_owned());
        }
        let is_letter =
            |made: &&Arc<Breadcrumb>| made.schema_name.as_deref() == Some(DeadLetter::SCHEMA);
        let (letters, made): (Vec<_>, Vec<_>) = made.into_iter().partition(is_letter);
        let [letters, made] = [letters, made].map(|made| serde_json::to_string(&made).unwrap());
        let runs = format!("{:?}", self.store.runs(&RunFilter::all()).await.unwrap());
        let (shown, logged) = (self.model.shown(), log.take());
        let ended = self.ended.lock().unwrap().clone();
        let printed = format!("{:?}", self.model);
        // Only operators may see the causes of failures.
        for (place, text, has_causes) in [
            ("a breadcrumb", &made, false),
            ("what the model was shown", &shown, false),
            ("what the runtime said", &ended, false),
            ("a dead letter", &letters, true),
            ("the log", &logged, true),
            ("the ledger", &runs, true),
        ] {
            let may_have_causes = has_causes && !self.hides_errors;
            for secret in [FOREIGN, EXCLUDED, KEY, PANIC, SOURCE, &environment()] {
                let is_cause = [PANIC, SOURCE].contains(&secret);
                if text.contains(secret) && !(may_have_causes && is_cause) {
                    harm.push(format!("{secret} is in {place}: {}", around(text, secret)));
                }
            }
        }
        if printed.contains(KEY) {
            harm.push("the key of the model is printed".to_owned());
        }
        harm
    }
}

/// Returns the problem of a breadcrumb that a run wrote, or `None` if it is valid.
fn wrong(made: &Breadcrumb) -> Option<String> {
    let schema = made.schema_name.as_deref().unwrap_or_default();
    let creator = made.context.get("creator");
    let by = creator
        .and_then(|creator| creator.get("id")?.as_str())
        .unwrap_or_default();
    let text = made.context.to_string();
    let context = |field: &str| made.context.text(field).unwrap_or_default();
    let is_right = match (by, schema) {
        (_, DeadLetter::SCHEMA) => true,
        (AGENT, "agent.response.v1" | "note.v1") => true,
        // The agent's own requests to other parties.
        (AGENT, "human.request.v1") => {
            let (kind, tool) = (context("kind"), context("tool"));
            (kind, tool) == ("approval", "pay") || (kind == "question" && !text.contains(FORGED))
        }
        (AGENT, "tool.request.v1") => {
            let is_offered = ALLOWED.contains(&context("tool")) || context("tool") == "chat";
            is_offered && context("requestId").len() == 64
        }
        (AGENT, "agent.request.v1") => context("agent") == "payer" && !text.contains(FORGED),
        ("payer", "agent.response.v1") | ("tools", "tool.response.v1") | ("probe", _) => true,
        _ => false,
    };
    let is_right =
        is_right && made.created_by.as_deref() == Some(by) || schema == DeadLetter::SCHEMA;
    (!is_right).then(|| format!("{by:?} wrote {schema:?}: {text}"))
}

/// Returns the secrets in an error. An error may contain a cause from outside, but no secret of the agent.
pub(crate) fn leaked(error: &str) -> Vec<String> {
    let secrets = [FOREIGN, EXCLUDED, KEY, &environment()].map(str::to_owned);
    let leaked = secrets.into_iter().filter(|secret| error.contains(secret));
    leaked.collect()
}

/// Returns a value of the process environment, which must not leak.
fn environment() -> String {
    std::env::var("PATH").unwrap()
}

fn around(text: &str, secret: &str) -> String {
    let start = text.find(secret).unwrap().saturating_sub(80);
    let start = text.floor_char_boundary(start);
    text[start..].chars().take(200).collect()
}

const NAMES: [&str; 11] = [
    "note",
    "read",
    "fails",
    "write",
    "fetch",
    "leaks",
    "panics",
    "asks",
    "pay",
    "delete-all",
    "transfer",
];

/// The tools that the agent may call.
pub(crate) const ALLOWED: [&str; 9] = [
    "note", "read", "fails", "write", "fetch", "leaks", "panics", "asks", "pay",
];

fn definition(more: &Value) -> AgentDefinition {
    let context = |schema: &str| json!({"schema_name": schema, "role": "context", "key": schema.replace('.', "-")});
    let mut definition = json!({
        "agent_id": AGENT, "system_prompt": "Work.", "tools": ALLOWED, "use": ["payer"],
        "responds_with": ["agent.response.v1", "note.v1"],
        "capabilities": {"can_update_own": true, "can_delete_own": true},
        "approval": {"by": ["ann"]}, "wait_seconds": {"people": 5, "agents": 5},
        "subscriptions": [
            {"schema_name": "question.v1", "role": "trigger"},
            context("profile.v1"), context("message.v1"), context("tool.catalog.v1"), context("tool.progress.v1"),
            context("file.v1"), context("agent.response.v1"), context("tool.response.v1"), context("human.response.v1"),
        ],
    });
    if let (Value::Object(fields), Value::Object(more)) = (&mut definition, more) {
        fields.extend(more.clone());
    }
    AgentDefinition::from_json(&definition).unwrap()
}

/// Returns a person's answer to a question.
pub(crate) fn answer_of_person(asked: &Breadcrumb, person: &str, mut says: Value) -> NewBreadcrumb {
    let id = asked.context.text("requestId").unwrap();
    says["request_id"] = id.into();
    NewBreadcrumb::new("human.response.v1")
        .tag(format!("request:{id}"))
        .created_by(person)
        .context(says)
}

/// Changes breadcrumbs as the input of the tool `write` demands.
async fn write(input: Value, store: &dyn BreadcrumbStore) -> Result<Value, BoxError> {
    let id = || {
        input["id"]
            .as_str()
            .unwrap_or_default()
            .parse::<BreadcrumbId>()
    };
    match input["do"].as_str() {
        Some("delete") => store.delete(id()?).await?,
        Some("update") => {
            let patch = Patch::new().context(input["context"].clone());
            let version = input["version"].as_u64().unwrap_or(1);
            store.update(id()?, version, patch).await?;
        }
        Some(_) | None => {
            let new: NewBreadcrumb = serde_json::from_value(input)?;
            store.create(new).await?;
        }
    }
    Ok(json!("written"))
}

/// An error with a neutral message and a secret in its source.
#[derive(Debug, thiserror::Error)]
#[error("it did not work")]
pub(crate) struct Leak(#[source] pub(crate) BoxError);
