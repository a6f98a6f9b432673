//! Keeps the executors made of definitions as the store has them.

use super::Definitions;
use crate::clock::later;
use crate::error::BoxError;
use crate::executor::UniversalExecutor;
use crate::model::{Breadcrumb, BreadcrumbId, Event, EventKind, NewBreadcrumb, Selector};
use crate::runtime::RuntimeError;
use crate::runtime::graph::Graph;
use crate::runtime::roster::Roster;
use crate::runtime::shared::{Owed, PAUSE, Shared, in_time};
use crate::store::{Claim, Commit, Query, RunEnd, RunRef, StoreError, Write};
use serde_json::json;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// How many announced definitions may wait before the source is held up.
pub(in crate::runtime) const INBOX: usize = 256;

/// Whose runs in the ledger see to it that a definition is refused once, however many workers read it.
const LEDGER_NAME: &str = "definitions";

/// Definitions and the executors made of them.
pub(in crate::runtime) struct Keeper {
    definitions: Definitions,
    kept: Mutex<HashMap<BreadcrumbId, Kept>>,
}

/// What became of a definition.
#[derive(Clone, Debug)]
struct Kept {
    version: u64,
    /// The executor that runs; none if none was ever made.
    executor: Option<Arc<str>>,
}

/// A definition that was announced, until it is applied.
pub(in crate::runtime) struct Announced {
    pub(in crate::runtime) id: BreadcrumbId,
    pub(in crate::runtime) owed: Arc<Owed>,
}

impl Keeper {
    pub(in crate::runtime) fn new(definitions: Definitions) -> Self {
        Self {
            definitions,
            kept: Mutex::default(),
        }
    }

    /// Whether an event may be about a definition.
    pub(in crate::runtime) fn is_concerned(&self, event: &Event) -> bool {
        let schema = event.schema_name.as_deref();
        event.kind != EventKind::Ping
            && (schema.is_some_and(|schema| self.definitions.schemas().contains(&schema))
                || self.kept().contains_key(&event.breadcrumb_id))
    }

    /// Follows what is announced until it is told to stop; looks at all definitions now and then.
    pub(in crate::runtime) async fn follow(
        self: Arc<Self>,
        shared: Arc<Shared>,
        mut inbox: mpsc::Receiver<Announced>,
    ) {
        let stop = shared.stop.clone();
        let mut waiting: Vec<Announced> = Vec::new();
        let mut reload = later(Instant::now(), shared.settings.reconcile);
        let mut again = Instant::now();
        loop {
            let waits = !waiting.is_empty();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = sleep_until(again), if waits => {}
                announced = inbox.recv(), if !waits => match announced {
                    Some(announced) => waiting.push(announced),
                    None => stop.cancelled().await,
                },
                () = sleep_until(reload) => {
                    reload = later(Instant::now(), shared.settings.reconcile);
                    if let Err(error) = self.load(&shared.roster).await {
                        tracing::warn!(error = error.code(), "definitions are looked at later");
                    }
                }
            }
            while let Some(announced) = waiting.pop() {
                match self.look_at(&shared.roster, announced.id).await {
                    Ok(()) => announced.owed.settle(&shared).await,
                    Err(error) => {
                        tracing::warn!(error = error.code(), "a definition is looked at later");
                        waiting.push(announced);
                        again = later(Instant::now(), PAUSE);
                        break;
                    }
                }
            }
        }
    }

    /// Applies every definition there is, oldest first, and removes what was made of others.
    pub(in crate::runtime) async fn load(&self, roster: &Roster) -> Result<(), StoreError> {
        let mut found: BTreeMap<_, Arc<Breadcrumb>> = BTreeMap::new();
        for schema in self.definitions.schemas() {
            for definition in self.all_of(schema).await? {
                found.insert((definition.created_at, definition.id), definition);
            }
        }
        let living: HashSet<BreadcrumbId> = found.values().map(|found| found.id).collect();
        let gone = self
            .kept()
            .keys()
            .filter(|id| !living.contains(id))
            .copied()
            .collect::<Vec<_>>();
        for id in gone {
            self.remove(roster, id);
        }
        for definition in found.values() {
            self.apply(roster, definition).await;
        }
        Ok(())
    }

    async fn all_of(&self, schema: &str) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        const PAGE: usize = 500;
        let mut query = Query::new(Selector::schema(schema).all_tags(&self.definitions.tags));
        query.limit = PAGE;
        let mut all: Vec<Arc<Breadcrumb>> = Vec::new();
        loop {
            let page = in_time(self.definitions.store.search(&query)).await?;
            query.before = page.last().map(|last| last.order_key());
            let is_last = page.len() < PAGE;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Applies what a definition says now, or removes what was made of it.
    pub(in crate::runtime) async fn look_at(
        &self,
        roster: &Roster,
        id: BreadcrumbId,
    ) -> Result<(), StoreError> {
        match in_time(self.definitions.store.get(id)).await {
            Ok(found) if self.definitions.concerns(&found) => {
                self.apply(roster, &found).await;
                Ok(())
            }
            Ok(_) | Err(StoreError::NotFound { .. }) => {
                if self.remove(roster, id) {
                    // Another definition may have waited for its name.
                    return Box::pin(self.load(roster)).await;
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Puts what a definition says in the place of what it said before, or says why not.
    async fn apply(&self, roster: &Roster, definition: &Arc<Breadcrumb>) {
        let before = self.kept().get(&definition.id).cloned();
        let is_old = |kept: &Kept| kept.version >= definition.version;
        if before.as_ref().is_some_and(is_old) {
            return;
        }
        let running = before.and_then(|kept| kept.executor);
        let made = self.make(definition);
        let put = made.and_then(|executor| self.put(roster, executor, running.as_ref()));
        let executor = match put {
            Ok(id) => Some(id),
            Err(error) => {
                self.reject(definition, &error).await;
                running
            }
        };
        let kept = Kept {
            version: definition.version,
            executor,
        };
        self.kept().insert(definition.id, kept);
    }

    fn make(&self, definition: &Breadcrumb) -> Result<Arc<dyn UniversalExecutor>, BoxError> {
        // A maker is the service's own code, and must not take the runtime with it.
        let made = catch_unwind(AssertUnwindSafe(|| self.definitions.make(definition)));
        made.unwrap_or_else(|_| Err("what makes executors of it panicked".into()))
    }

    /// Lets an executor run in the place of the one that a definition made before.
    fn put(
        &self,
        roster: &Roster,
        executor: Arc<dyn UniversalExecutor>,
        running: Option<&Arc<str>>,
    ) -> Result<Arc<str>, BoxError> {
        let id: Arc<str> = executor.id().into();
        if running != Some(&id) && roster.get(&id).is_some() {
            return Err(RuntimeError::DuplicateId { id: id.to_string() }.into());
        }
        roster.replace(executor)?;
        if let Some(other) = running.filter(|running| **running != id) {
            roster.remove(other);
        }
        tracing::info!(executor = &*id, "a definition was loaded");
        warn_of_cycles(roster, &id);
        Ok(id)
    }

    fn remove(&self, roster: &Roster, id: BreadcrumbId) -> bool {
        let kept = self.kept().remove(&id);
        let Some(executor) = kept.and_then(|kept| kept.executor) else {
            return false;
        };
        tracing::info!(executor = &*executor, "its definition is gone");
        roster.remove(&executor)
    }

    /// Says once why a definition was refused.
    async fn reject(&self, definition: &Breadcrumb, error: &BoxError) {
        let reason = reason(error);
        tracing::warn!(definition = %definition.id, version = definition.version, reason, "a definition was refused");
        let rejection = NewBreadcrumb::new(Definitions::REJECTED)
            .title(format!("Definition rejected: {}", definition.title))
            .tags([
                "definition:rejected".to_owned(),
                format!("definition:{}", definition.id),
            ])
            .created_by(LEDGER_NAME)
            .context(json!({
                "definition_id": definition.id,
                "definition_version": definition.version,
                "schema_name": definition.schema_name,
                "reason": reason,
            }));
        let store = &self.definitions.store;
        let writes = vec![Write::Create(rejection)];
        let written = async {
            let end = match store.ledger() {
                None => None,
                Some(ledger) => {
                    let run = RunRef::new(LEDGER_NAME, definition.id, definition.version);
                    match ledger.claim(&run, None).await? {
                        Claim::Granted { lease, .. } => Some((lease, RunEnd::Done)),
                        Claim::Own
                        | Claim::Done { .. }
                        | Claim::Running { .. }
                        | Claim::Suspended { .. }
                        | Claim::Superseded => return Ok(()),
                    }
                }
            };
            store.commit(Commit { writes, end }).await.map(drop)
        };
        if let Err(error) = in_time(written).await {
            tracing::warn!(definition = %definition.id, error = error.code(), "its rejection could not be written");
        }
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<BreadcrumbId, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error and its causes, for whoever wrote the definition.
fn reason(error: &BoxError) -> String {
    const LONGEST: usize = 2_000;
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !reason.ends_with(&said) {
            reason.push_str(": ");
            reason.push_str(&said);
        }
        cause = error.source();
    }
    crate::error::excerpt(&reason, LONGEST).into_owned()
}

/// Says which circles an executor closes.
pub(in crate::runtime) fn warn_of_cycles(roster: &Roster, executor: &str) {
    let members = roster.all();
    let graph = Graph::of(members.iter().map(|member| &*member.executor));
    let closes = |cycle: &&crate::runtime::graph::Cycle| {
        cycle.steps().iter().any(|step| step.executor == executor)
    };
    for cycle in graph.cycles().iter().filter(closes) {
        tracing::warn!(%cycle, "executors may trigger one another in a circle");
    }
}
