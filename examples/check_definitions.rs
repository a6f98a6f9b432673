//! Checks definitions before they are used: what is wrong and odd in each, who triggers whom in a circle, and which
//! schemas nobody writes. Exit status 1 on errors.
//!
//! Run with `cargo run --example check_definitions -- <folder>`, or with the feature `rcrt` and
//! `RCRT_TOKEN=.. cargo run --features rcrt --example check_definitions -- http://localhost:8080 <owner>`.

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};
use universal_executor::runtime::graph::Graph;
use universal_executor::store::Query;
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, ExecutionContext, MemoryStore, Profile, Response, Role,
    Selector, Subscription, Subscriptions, UniversalExecutor, async_trait,
};

/// A text that may be a definition, and where it is.
pub(crate) struct Source {
    /// The file, or the breadcrumb.
    pub(crate) place: String,
    /// Its JSON.
    pub(crate) text: String,
}

/// What there is to say.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// One line each, with the place.
    pub(crate) errors: Vec<String>,
    /// One line each, with the place.
    pub(crate) warnings: Vec<String>,
    /// How many definitions were read.
    pub(crate) definitions: usize,
}

impl Report {
    /// How the program ends: with 1 on errors, else with 0.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self.errors.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(1),
        }
    }
}

/// The files of a folder that end with `.json`, in order.
///
/// # Errors
/// Fails if the folder or a file cannot be read.
pub(crate) fn from_folder(folder: &Path) -> std::io::Result<Vec<Source>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "json") {
            let place = path.file_name().unwrap_or_default();
            let place = place.to_string_lossy().into_owned();
            let text = fs::read_to_string(&path)?;
            found.push(Source { place, text });
        }
    }
    found.sort_by(|a, b| a.place.cmp(&b.place));
    Ok(found)
}

/// The agents and tools that a store defines, up to a thousand of each.
///
/// # Errors
/// Fails if the store does.
pub(crate) async fn from_store(store: &dyn BreadcrumbStore) -> Result<Vec<Source>, BoxError> {
    let mut found = Vec::new();
    for schema in ["agent.def.v1", "tool.v1"] {
        let query = Query::new(Selector::schema(schema)).limit(1_000);
        for breadcrumb in store.search(&query).await? {
            let place = format!("{} ({})", breadcrumb.title, breadcrumb.id);
            let text = serde_json::to_string(&*breadcrumb)?;
            found.push(Source { place, text });
        }
    }
    Ok(found)
}

/// Checks each definition, and then all together.
#[must_use]
pub(crate) fn check(sources: &[Source]) -> Report {
    let mut report = Report::default();
    let mut defined = Vec::new();
    for Source { place, text } in sources {
        let definition = serde_json::from_str(text).unwrap_or(Value::Null);
        let path = list_path(&definition);
        let subscriptions = match Subscriptions::parse(text) {
            Ok(subscriptions) => subscriptions,
            Err(error) => {
                let at = error.subscription().map(|index| format!("[{index}]"));
                let mut at = format!("{path}{}", at.unwrap_or_default());
                if !error.field().is_empty() {
                    at = format!("{at}.{}", error.field());
                }
                report
                    .errors
                    .push(format!("{place}: {at}: {}", error.problem()));
                continue;
            }
        };
        for warning in subscriptions.warnings() {
            let at = warning.subscription();
            report
                .warnings
                .push(format!("{place}: {path}[{at}]: {}", warning.message()));
        }
        let odd = shadows(subscriptions.as_slice());
        report.warnings.extend(
            odd.into_iter()
                .map(|(at, odd)| format!("{place}: {path}[{at}]: {odd}")),
        );
        defined.push(Defined::new(place, &definition, subscriptions));
    }
    report.definitions = defined.len();
    let graph = Graph::of(
        defined
            .iter()
            .map(|defined| defined as &dyn UniversalExecutor),
    );
    let cycles = graph.cycles().iter();
    report
        .warnings
        .extend(cycles.map(|cycle| format!("a cycle: {cycle}")));
    report.warnings.extend(unwritten(&defined));
    report
}

/// Where the list of subscriptions is in a definition: `context.subscriptions.selectors`.
fn list_path(definition: &Value) -> String {
    let mut path: Vec<&str> = Vec::new();
    let mut place = definition;
    while let Some((name, inner)) = ["selectors", "subscriptions", "context"]
        .into_iter()
        .find_map(|name| Some((name, place.get(name).filter(|value| !value.is_null())?)))
    {
        path.push(name);
        place = inner;
    }
    path.join(".")
}

/// Subscriptions that another one makes superfluous, or puts into question.
fn shadows(all: &[Subscription]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, one) in all.iter().enumerate() {
        for (before, other) in all.iter().enumerate().take(at) {
            let is_same = one.selector == other.selector && one.on == other.on;
            let odd = match (one.role, other.role) {
                _ if is_same && one.role != other.role => "selects the same in another role as",
                (Role::Trigger, Role::Trigger) if is_same => "selects the same as",
                (Role::Context, Role::Context)
                    if is_same && one.fetch == other.fetch && one.scope == other.scope =>
                {
                    "fetches the same under another key as"
                }
                (Role::Trigger, Role::Trigger)
                    if other.priority >= one.priority && covers(&other.selector, &one.selector) =>
                {
                    "never counts, as all it selects is selected by"
                }
                (Role::Trigger | Role::Context, _) => continue,
            };
            found.push((at, format!("{odd} subscription {before}")));
        }
    }
    found
}

/// Whether one selector surely selects all that another does.
fn covers(wide: &Selector, narrow: &Selector) -> bool {
    let any_schema = wide.schema_name().is_none_or(|schema| schema == "*");
    (any_schema || wide.schema_name() == narrow.schema_name())
        && wide
            .all_of_tags()
            .iter()
            .all(|tag| narrow.all_of_tags().contains(tag))
        && (wide.any_of_tags().is_none() || wide.any_of_tags() == narrow.any_of_tags())
        && wide
            .conditions()
            .iter()
            .all(|one| narrow.conditions().contains(one))
}

/// The schemas that are subscribed to and that no definition says it writes.
fn unwritten(defined: &[Defined]) -> Vec<String> {
    let written = defined
        .iter()
        .filter_map(|defined| defined.profile.responds_with.as_ref());
    let written: BTreeSet<&str> = written.flatten().map(|schema| &**schema).collect();
    let all = defined
        .iter()
        .flat_map(|defined| defined.subscriptions.as_slice());
    let wanted: BTreeSet<&str> = all.filter_map(|one| one.selector.schema_name()).collect();
    let missing = wanted.difference(&written).filter(|schema| **schema != "*");
    missing
        .map(|schema| format!("nobody here writes {schema}; a person or a service has to"))
        .collect()
}

/// An executor that says what it reacts to and writes, and does nothing.
struct Defined {
    id: String,
    subscriptions: Subscriptions,
    profile: Profile,
    store: MemoryStore,
}

impl Defined {
    fn new(place: &str, definition: &Value, subscriptions: Subscriptions) -> Self {
        let context = definition.get("context").unwrap_or(definition);
        let text = |name: &str| context.get(name).and_then(Value::as_str).map(str::to_owned);
        let (kind, writes) = match text("agent_id") {
            Some(_) => ("agent", "agent.response.v1"),
            None => ("tool", "tool.response.v1"),
        };
        let said = context.get("responds_with").and_then(Value::as_array);
        let said = said.map(|list| {
            list.iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        });
        Self {
            id: text("agent_id")
                .or_else(|| text("name"))
                .unwrap_or_else(|| place.to_owned()),
            subscriptions,
            profile: Profile::new(kind)
                .responds_with(said.unwrap_or_else(|| vec![writes.to_owned()])),
            store: MemoryStore::default(),
        }
    }
}

#[async_trait]
impl UniversalExecutor for Defined {
    fn id(&self) -> &str {
        &self.id
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

    async fn execute(&self, _: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(Value::Null)
    }

    async fn respond(&self, _: &Breadcrumb, _: Value) -> Result<Response, BoxError> {
        Ok(Response::none())
    }
}

/// The definitions that the arguments name; those beside this example without any.
async fn sources() -> Result<Vec<Source>, BoxError> {
    let mut arguments = env::args().skip(1);
    let place = arguments.next();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/definitions").to_owned();
    match (place, arguments.next()) {
        #[cfg(feature = "rcrt")]
        (Some(url), Some(owner)) => {
            let token = universal_executor::Secret::new(env::var("RCRT_TOKEN")?);
            let store = universal_executor::RcrtStore::builder(url, owner)
                .token(token)
                .build()?;
            from_store(&store).await
        }
        #[cfg(not(feature = "rcrt"))]
        (Some(_), Some(_)) => {
            from_store(&MemoryStore::default()).await?;
            Err("a server needs the feature rcrt".into())
        }
        (folder_given, _) => Ok(from_folder(Path::new(&folder_given.unwrap_or(folder)))?),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, BoxError> {
    let report = check(&sources().await?);
    for error in &report.errors {
        println!("error: {error}");
    }
    for warning in &report.warnings {
        println!("warning: {warning}");
    }
    println!(
        "{} definitions, {} errors, {} warnings",
        report.definitions,
        report.errors.len(),
        report.warnings.len()
    );
    Ok(report.exit_code())
}
