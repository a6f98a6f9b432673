//! Synchronisation of executors with their definitions in the store.

use super::model_config::ModelConfig;
use super::{BadModelConfig, NotRegistered, StoredDefinitions};
use crate::error::BoxError;
use crate::error::Chain;
use crate::executor::UniversalExecutor;
use crate::model::{
    Breadcrumb, BreadcrumbId, Event, EventKind, Finding, NewBreadcrumb, Selector, Timestamp,
};
use crate::runtime::RuntimeError;
use crate::runtime::graph::Graph;
use crate::runtime::registry::Registry;
use crate::runtime::timeouts::{with_search_timeout, with_timeout};
use crate::store::{AddedLedger, Claim, Claimed, Commit, Query, RunEnd, RunRef, StoreError, Write};
use serde_json::json;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

/// Executor ID of the ledger runs under which workers write the rejections of executor definitions. The run of a definition
/// version lets only one worker write the rejection.
const LEDGER_NAME: &str = "definitions";

/// Maximum number of executor definitions that one runtime loads.
const MAX_DEFINITIONS: usize = 10_000;

/// The executor definitions of a runtime, and the executors made of them.
pub(in crate::runtime) struct DefinitionLoader {
    definitions: StoredDefinitions,
    states: Mutex<HashMap<BreadcrumbId, DefinitionState>>,
    /// Lock that a task holds while it reads executor definitions and applies them. With the lock, an older result never replaces
    /// a newer one.
    apply_lock: Semaphore,
}

/// The state of an executor definition in this runtime.
#[derive(Clone, Debug)]
struct DefinitionState {
    version: u64,
    /// ID of the executor that runs for the definition, or `None` if no version of the definition has loaded.
    executor: Option<Arc<str>>,
    rejection: Option<Rejection>,
}

/// Result of loading one version of an executor definition.
#[derive(Default)]
struct Applied {
    /// If `true`, this version of the definition has another executor ID than the version before, so another definition can use
    /// the old ID.
    name_is_free: bool,
    /// ID of the executor that was loaded from the definition.
    loaded: Option<Arc<str>>,
}

/// A version of an executor definition that was rejected.
#[derive(Clone, Copy, Debug)]
struct Rejection {
    /// If `true`, the rejected definition can load later without a change: its name can become free, or its model configuration can be
    /// fixed.
    may_load_later: bool,
    /// If `true`, this worker or another one has written the breadcrumb that reports the rejection of the definition.
    is_reported: bool,
}

impl DefinitionState {
    /// Returns `true` if a version of a definition needs no further work: it is loaded, or its rejection is final.
    fn needs_no_work(&self, version: u64) -> bool {
        let settled = |rejection: Rejection| rejection.is_reported && !rejection.may_load_later;
        self.version > version || self.version == version && self.rejection.is_none_or(settled)
    }
}

impl DefinitionLoader {
    pub(in crate::runtime) fn new(definitions: StoredDefinitions) -> Self {
        Self {
            definitions,
            states: Mutex::default(),
            apply_lock: Semaphore::new(1),
        }
    }

    /// Returns the identity of the store that contains the definitions and on which their executors run.
    #[cfg(feature = "testing")]
    pub(in crate::runtime) fn store_id(&self) -> crate::store::StoreId {
        self.definitions.store.identity()
    }

    /// Returns `true` if an event may concern an executor definition.
    pub(in crate::runtime) fn may_concern(&self, event: &Event) -> bool {
        let schema = event.schema_name.as_deref();
        event.kind != EventKind::Ping
            && (schema.is_some_and(|schema| self.definitions.handles_schema(schema))
                || self.states().contains_key(&event.breadcrumb_id))
    }

    /// Applies all executor definitions, oldest first. Removes the executors whose definition was deleted.
    pub(in crate::runtime) async fn load(&self, registry: &Registry) -> Result<(), StoreError> {
        let _permit = self.apply_lock.acquire().await;
        self.load_locked(registry).await
    }

    async fn load_locked(&self, registry: &Registry) -> Result<(), StoreError> {
        let mut found: BTreeMap<_, Arc<Breadcrumb>> = BTreeMap::new();
        let mut omitted = 0;
        for schema in self.definitions.schemas() {
            let (all, too_many) = self.definitions_of(schema).await?;
            omitted += too_many;
            for definition in all {
                found.insert((definition.created_at, definition.id), definition);
            }
        }
        let existing: HashSet<BreadcrumbId> = found.values().map(|found| found.id).collect();
        let deleted = self
            .states()
            .keys()
            .filter(|id| !existing.contains(id))
            .copied()
            .collect::<Vec<_>>();
        for id in deleted {
            self.remove(registry, id);
        }
        let mut loaded = HashSet::new();
        let applied = self.apply_all(registry, &found, &mut loaded).await;
        warn_of_cycles(registry, &loaded);
        applied?;
        let states = self.states();
        omitted += found
            .values()
            .filter(|one| !states.contains_key(&one.id))
            .count();
        warn_of_omitted(omitted);
        Ok(())
    }

    /// Applies executor definitions, and adds the ID of each loaded executor to `loaded`. After an error, `loaded` contains the IDs of
    /// the executors that were loaded before the error.
    async fn apply_all(
        &self,
        registry: &Registry,
        found: &BTreeMap<(Timestamp, BreadcrumbId), Arc<Breadcrumb>>,
        loaded: &mut HashSet<Arc<str>>,
    ) -> Result<(), StoreError> {
        // A name that one definition releases may be the name that another one waits for.
        let mut name_freed = true;
        while std::mem::take(&mut name_freed) {
            for definition in found.values() {
                let applied = self.apply(registry, definition).await?;
                name_freed |= applied.name_is_free;
                loaded.extend(applied.loaded);
            }
        }
        Ok(())
    }

    /// Returns the executor definitions of a schema, and the number of definitions above the maximum count, which are omitted. The result
    /// contains all definitions that the runtime already knows, and the [oldest](MAX_DEFINITIONS) of the others.
    async fn definitions_of(
        &self,
        schema: &str,
    ) -> Result<(Vec<Arc<Breadcrumb>>, usize), StoreError> {
        const PAGE: usize = 500;
        let mut query = Query::new(Selector::schema(schema).all_tags(&self.definitions.tags));
        query.limit = PAGE;
        let mut all: Vec<Arc<Breadcrumb>> = Vec::new();
        let (mut others, mut omitted) = (VecDeque::new(), 0);
        loop {
            let page = with_search_timeout(self.definitions.store.search(&query)).await?;
            query.before = page.last().map(|last| last.order_key());
            let is_last = page.len() < PAGE;
            let is_known = |found: &Arc<Breadcrumb>| self.states().contains_key(&found.id);
            let (known, new): (Vec<_>, Vec<_>) = page.into_iter().partition(is_known);
            all.extend(known);
            others.extend(new);
            let newest = others.len().saturating_sub(MAX_DEFINITIONS);
            omitted += others.drain(..newest).count();
            if is_last {
                break;
            }
        }
        all.extend(others);
        Ok((all, omitted))
    }

    /// Applies the current version of an executor definition, or removes the executor if the definition is deleted.
    pub(in crate::runtime) async fn refresh(
        &self,
        registry: &Registry,
        id: BreadcrumbId,
    ) -> Result<(), StoreError> {
        let _permit = self.apply_lock.acquire().await;
        let name_is_free = match with_timeout(self.definitions.store.get(id)).await {
            Ok(found) if self.definitions.is_definition(&found) => {
                let applied = self.apply(registry, &found).await?;
                warn_of_cycles(registry, &applied.loaded.into_iter().collect());
                warn_of_omitted(usize::from(!self.states().contains_key(&id)));
                applied.name_is_free
            }
            Ok(_) | Err(StoreError::NotFound { .. }) => self.remove(registry, id),
            Err(error) => return Err(error),
        };
        if name_is_free && self.has_loadable_rejection() {
            self.load_locked(registry).await?;
        }
        Ok(())
    }

    /// Returns `true` if a rejected definition can load later without a change.
    fn has_loadable_rejection(&self) -> bool {
        let states = self.states();
        states.values().any(|state| {
            state
                .rejection
                .is_some_and(|rejection| rejection.may_load_later)
        })
    }

    /// Applies a version of an executor definition: replaces its executor, or rejects the version.
    ///
    /// # Errors
    /// A [`StoreError`] if the model configuration of an agent cannot be read.
    async fn apply(
        &self,
        registry: &Registry,
        definition: &Arc<Breadcrumb>,
    ) -> Result<Applied, StoreError> {
        let (before, count) = {
            let states = self.states();
            (states.get(&definition.id).cloned(), states.len())
        };
        let is_settled = match &before {
            Some(state) => state.needs_no_work(definition.version),
            None => count >= MAX_DEFINITIONS,
        };
        if is_settled {
            return Ok(Applied::default());
        }
        let model_config = with_timeout(self.definitions.read_model_config(definition)).await?;
        let same_version = before
            .as_ref()
            .filter(|state| state.version == definition.version);
        let is_reported = same_version
            .and_then(|state| state.rejection)
            .is_some_and(|rejection| rejection.is_reported);
        let running = before.and_then(|state| state.executor);
        let created = self.create_executor(definition, model_config);
        let registered = created.and_then(|(executor, warnings)| {
            let id = register_executor(registry, executor, definition.id, running.as_ref())?;
            log_warnings(definition, &warnings);
            Ok(id)
        });
        let (executor, loaded, rejection) = match registered {
            Ok(id) => (Some(Arc::clone(&id)), Some(id), None),
            Err(error) => {
                let may_load_later = can_load_later(&error);
                let is_reported = is_reported || self.reject(definition, &error).await;
                (
                    running.clone(),
                    None,
                    Some(Rejection {
                        may_load_later,
                        is_reported,
                    }),
                )
            }
        };
        let name_is_free = running.is_some() && executor != running;
        let state = DefinitionState {
            version: definition.version,
            executor,
            rejection,
        };
        self.states().insert(definition.id, state);
        Ok(Applied {
            name_is_free,
            loaded,
        })
    }

    fn create_executor(
        &self,
        definition: &Breadcrumb,
        model_config: ModelConfig,
    ) -> Result<(Arc<dyn UniversalExecutor>, Vec<Finding>), BoxError> {
        // A maker is code of the service. A panic in it must not end the runtime.
        let created = catch_unwind(AssertUnwindSafe(|| {
            self.definitions.create_executor(definition, model_config)
        }));
        created.unwrap_or_else(|_| {
            Err("the code that creates the executor of this definition panicked".into())
        })
    }

    fn remove(&self, registry: &Registry, id: BreadcrumbId) -> bool {
        let state = self.states().remove(&id);
        let Some(executor) = state.and_then(|state| state.executor) else {
            return false;
        };
        tracing::info!(
            executor = &*executor,
            "executor removed because its definition was deleted"
        );
        registry.remove(&executor)
    }

    /// Logs the rejection of a definition, and creates one breadcrumb that reports the rejection. Returns `false` if this breadcrumb must
    /// be written later.
    async fn reject(&self, definition: &Breadcrumb, error: &BoxError) -> bool {
        let reason = reason(error);
        tracing::warn!(
            definition = %definition.id,
            version = definition.version,
            schema = definition.schema_name,
            title = definition.title,
            error = %Chain(&**error),
            "a definition was rejected; fix the cause and update the breadcrumb"
        );
        let rejection = NewBreadcrumb::new(StoredDefinitions::REJECTED)
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
        let added = AddedLedger::default();
        let store = added.with(&*self.definitions.store);
        let writes = vec![Write::Create(rejection)];
        let written = async {
            let run = RunRef::new(LEDGER_NAME, definition.id, definition.version);
            let end = match store.claim(&run, None).await? {
                Claim::Granted(Claimed { lease, .. }) => Some((lease, RunEnd::Done)),
                // The worker that holds the run may fail to write the rejection.
                Claim::Running { .. } | Claim::Paused { .. } => return Ok(false),
                Claim::Own | Claim::Done { .. } | Claim::Suspended { .. } | Claim::Superseded => {
                    return Ok(true);
                }
            };
            store.commit(Commit { writes, end }).await.map(|_| true)
        };
        match with_timeout(written).await {
            Ok(is_reported) => is_reported,
            Err(error) => {
                tracing::warn!(definition = %definition.id, code = error.code(), error = %Chain(&error), "cannot store the definition.rejected.v1 breadcrumb of a rejected definition, will retry");
                false
            }
        }
    }

    fn states(&self) -> MutexGuard<'_, HashMap<BreadcrumbId, DefinitionState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `true` if a definition can load later without a change, because its name or model configuration is the problem.
fn can_load_later(error: &BoxError) -> bool {
    matches!(error.downcast_ref(), Some(RuntimeError::DuplicateId { .. }))
        || matches!(error.downcast_ref(), Some(NotRegistered::ModelTool { .. }))
        || error.is::<BadModelConfig>()
}

/// Logs the warnings for an executor definition. The executor of the definition is loaded despite these problems.
fn log_warnings(definition: &Breadcrumb, warnings: &[Finding]) {
    for warning in warnings {
        tracing::warn!(
            definition = %definition.id,
            version = definition.version,
            path = warning.path.to_string(),
            problem = warning.message,
            "a definition has a problem; its executor was loaded anyway"
        );
    }
}

/// Registers the executor of a definition in place of the executor of its previous version.
fn register_executor(
    registry: &Registry,
    executor: Arc<dyn UniversalExecutor>,
    definition: BreadcrumbId,
    running: Option<&Arc<str>>,
) -> Result<Arc<str>, BoxError> {
    let id: Arc<str> = executor.id().into();
    registry.replace(executor, definition, running)?;
    tracing::info!(executor = &*id, "the executor of a definition was loaded");
    Ok(id)
}

/// Returns an error's message followed by the messages of its causes, to show to the author of a rejected definition.
fn reason(error: &BoxError) -> String {
    const MAX_REASON_LENGTH: usize = 2_000;
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !reason.ends_with(&message) {
            reason.push_str(": ");
            reason.push_str(&message);
        }
        cause = error.source();
    }
    crate::error::excerpt(&reason, MAX_REASON_LENGTH).into_owned()
}

/// Logs the number of executor definitions that are not loaded, because there are too many.
fn warn_of_omitted(omitted: usize) {
    if omitted > 0 {
        tracing::warn!(
            omitted,
            limit = MAX_DEFINITIONS,
            "the store has more executor definitions than the limit, so the newest are not loaded; delete some"
        );
    }
}

/// Logs the cycles of triggers that contain one of these executors.
fn warn_of_cycles(registry: &Registry, executors: &HashSet<Arc<str>>) {
    if executors.is_empty() {
        return;
    }
    let members = registry.all();
    let graph = Graph::of(members.iter().map(|member| &*member.executor));
    let closes = |cycle: &&crate::runtime::graph::Cycle| {
        let mut steps = cycle.steps().iter();
        steps.any(|step| executors.contains(&*step.executor))
    };
    for cycle in graph.cycles().iter().filter(closes) {
        tracing::warn!(
            cycle = cycle.to_string(),
            "executors may trigger one another in a cycle, which only the hop limit ends; check their triggers"
        );
    }
}
