//! The executors of a runtime, the index of their subscriptions, and their stores.

use super::RuntimeError;
use super::store_context::StoreContext;
use crate::executor::{UniversalExecutor, check};
use crate::model::{BreadcrumbId, Event, Role, Route, SubscriptionIndex};
use crate::store::ExecutorVersion;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

/// An executor of a runtime, and the store on which it runs.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) executor: Arc<dyn UniversalExecutor>,
    pub(super) store_context: Arc<StoreContext>,
    /// ID of the breadcrumb that defines the executor, or `None` for an executor in the code of the service.
    pub(super) definition: Option<BreadcrumbId>,
    /// The executor's ID, its subscriptions and their hash, as this worker's record in the run ledger lists them.
    pub(super) version: Arc<ExecutorVersion>,
}

/// An executor that an event triggers: its version in this runtime, or a version on another worker.
pub(super) struct Triggered {
    pub(super) executor: Arc<str>,
    pub(super) store_context: Arc<StoreContext>,
    /// If `false`, the breadcrumb's context decides if the event triggers the executor, and the event does not contain the context.
    pub(super) is_certain: bool,
}

/// The executors of a runtime. They can change at any time, but each event is matched against one consistent state.
pub(super) struct Registry {
    members: RwLock<Members>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Members {
    index: SubscriptionIndex,
    by_id: BTreeMap<Arc<str>, Member>,
    /// The stores of the runtime, each with the number of its executors.
    store_contexts: Vec<(Arc<StoreContext>, usize)>,
    next_store: u64,
}

impl Registry {
    pub(super) fn new() -> Self {
        Self {
            members: RwLock::default(),
            changed: watch::Sender::new(0),
        }
    }

    /// Adds an executor to the runtime.
    ///
    /// # Errors
    /// Fails if the executor's settings are invalid, if its store lacks a needed feature, or if another executor has the same ID.
    pub(super) fn add(&self, executor: Arc<dyn UniversalExecutor>) -> Result<(), RuntimeError> {
        check(&*executor)?;
        let mut members = self.write();
        let id: Arc<str> = executor.id().into();
        if members.by_id.contains_key(&id) {
            return Err(RuntimeError::DuplicateId { id: id.to_string() });
        }
        log_problems(&*executor);
        members.insert(id, executor, None);
        drop(members);
        self.notify_changed();
        Ok(())
    }

    /// Replaces the executor of a definition by the executor of its new version, in one step: every event is matched against
    /// exactly one of them. The IDs of the two may differ.
    ///
    /// # Errors
    /// Fails if the executor's settings are invalid, if its store lacks a needed feature, or if another executor has the same ID.
    #[cfg(feature = "agents")]
    pub(super) fn replace(
        &self,
        executor: Arc<dyn UniversalExecutor>,
        definition: BreadcrumbId,
        previous: Option<&Arc<str>>,
    ) -> Result<(), RuntimeError> {
        check(&*executor)?;
        let id: Arc<str> = executor.id().into();
        let mut members = self.write();
        if previous != Some(&id) && members.by_id.contains_key(&id) {
            return Err(RuntimeError::DuplicateId { id: id.to_string() });
        }
        log_problems(&*executor);
        members.insert(Arc::clone(&id), executor, Some(definition));
        if let Some(previous) = previous.filter(|previous| **previous != id) {
            members.remove(previous);
        }
        drop(members);
        self.notify_changed();
        Ok(())
    }

    /// Removes an executor from the runtime. Returns `false` if the ID is unknown.
    #[cfg(feature = "agents")]
    pub(super) fn remove(&self, id: &str) -> bool {
        let removed = self.write().remove(id);
        if removed {
            self.notify_changed();
        }
        removed
    }

    pub(super) fn get(&self, id: &str) -> Option<Member> {
        self.read().by_id.get(id).cloned()
    }

    /// Returns all executors of the runtime with their stores, sorted by ID.
    pub(super) fn all(&self) -> Vec<Member> {
        self.read().by_id.values().cloned().collect()
    }

    /// Returns the IDs of the runtime's executors on a store, sorted.
    pub(super) fn of_store(&self, store_context: &StoreContext) -> Vec<Arc<str>> {
        let members = self.read();
        let of_store = members
            .by_id
            .iter()
            .filter(|(_, member)| member.store_context.number == store_context.number);
        of_store.map(|(id, _)| Arc::clone(id)).collect()
    }

    pub(super) fn store_contexts(&self) -> Vec<Arc<StoreContext>> {
        let members = self.read();
        members
            .store_contexts
            .iter()
            .map(|(store_context, _)| Arc::clone(store_context))
            .collect()
    }

    /// Returns the executors that an event triggers or may trigger. The match is uncertain if it depends on the context, and the event
    /// lacks the context.
    pub(super) fn triggered(&self, event: &Event) -> Vec<Triggered> {
        let members = self.read();
        let matching = members.index.matching(event).into_iter();
        let mut all: Vec<Triggered> = matching
            .filter_map(|(executor, route)| {
                let is_certain = match route {
                    Route::Trigger { .. } => true,
                    Route::NeedsContext => false,
                    Route::Unmatched | Route::Context => return None,
                };
                let store_context = Arc::clone(&members.by_id.get(&executor)?.store_context);
                Some(Triggered {
                    executor,
                    store_context,
                    is_certain,
                })
            })
            .collect();
        for (store_context, _) in &members.store_contexts {
            for (executor, is_certain) in store_context.other_versions().triggered(event) {
                match all.iter_mut().find(|known| known.executor == executor) {
                    Some(known) => known.is_certain |= is_certain,
                    None => all.push(Triggered {
                        executor,
                        store_context: Arc::clone(store_context),
                        is_certain,
                    }),
                }
            }
        }
        all
    }

    /// Returns a receiver that is notified whenever an executor of the runtime is added, replaced or removed.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn notify_changed(&self) {
        self.changed
            .send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    fn read(&self) -> RwLockReadGuard<'_, Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Members> {
        self.members.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    fn insert(
        &mut self,
        id: Arc<str>,
        executor: Arc<dyn UniversalExecutor>,
        definition: Option<BreadcrumbId>,
    ) {
        let store_context = self.acquire_store(&executor);
        self.index.insert(&id, executor.subscriptions());
        let version = Arc::new(ExecutorVersion::new(
            Arc::clone(&id),
            executor.subscriptions(),
        ));
        let member = Member {
            executor,
            store_context,
            definition,
            version,
        };
        if let Some(previous) = self.by_id.insert(id, member) {
            self.release_store(&previous.store_context);
        }
    }

    #[cfg(feature = "agents")]
    fn remove(&mut self, id: &str) -> bool {
        let Some(member) = self.by_id.remove(id) else {
            return false;
        };
        self.index.remove(id);
        member.store_context.checkpoint.remove_executor(id);
        self.release_store(&member.store_context);
        true
    }

    fn acquire_store(&mut self, executor: &Arc<dyn UniversalExecutor>) -> Arc<StoreContext> {
        let known = self
            .store_contexts
            .iter_mut()
            .find(|(store_context, _)| store_context.is_of(&**executor));
        if let Some((store_context, executors)) = known {
            *executors += 1;
            return Arc::clone(store_context);
        }
        let store_context = StoreContext::of(self.next_store, Arc::clone(executor));
        self.next_store += 1;
        self.store_contexts.push((Arc::clone(&store_context), 1));
        store_context
    }

    fn release_store(&mut self, released: &StoreContext) {
        self.store_contexts
            .retain_mut(|(store_context, executors)| {
                if store_context.number != released.number {
                    return true;
                }
                *executors -= 1;
                if *executors == 0 {
                    store_context.no_executors.cancel();
                }
                *executors > 0
            });
    }
}

/// Logs the problems of an executor's subscriptions. The executor runs despite the problems.
fn log_problems(executor: &dyn UniversalExecutor) {
    let (id, subscriptions) = (executor.id(), executor.subscriptions());
    for warning in subscriptions.warnings() {
        tracing::warn!(
            executor = id,
            warning = warning.to_string(),
            "a subscription of an executor has a problem; the executor runs anyway"
        );
    }
    let triggers = subscriptions
        .as_slice()
        .iter()
        .filter(|subscription| subscription.role == Role::Trigger);
    if triggers.count() == 0 {
        tracing::warn!(
            executor = id,
            "executor has no trigger subscription, so no event starts a run"
        );
    }
}
