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
    /// The executor's entry in this worker's record: its ID, its subscriptions and their hash.
    pub(super) version: Arc<ExecutorVersion>,
}

/// An executor that an event triggers: its version in this runtime, or a version on another worker.
pub(super) struct Triggered {
    pub(super) executor: Arc<str>,
    pub(super) store_context: Arc<StoreContext>,
    /// If `false`, the breadcrumb's context decides if the event triggers the executor, and the event does not contain the context.
    pub(super) surely: bool,
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
        log_oddities(&*executor);
        members.put(id, executor, None);
        drop(members);
        self.tell();
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
        before: Option<&Arc<str>>,
    ) -> Result<(), RuntimeError> {
        check(&*executor)?;
        let id: Arc<str> = executor.id().into();
        let mut members = self.write();
        if before != Some(&id) && members.by_id.contains_key(&id) {
            return Err(RuntimeError::DuplicateId { id: id.to_string() });
        }
        log_oddities(&*executor);
        members.put(Arc::clone(&id), executor, Some(definition));
        if let Some(before) = before.filter(|before| **before != id) {
            members.take(before);
        }
        drop(members);
        self.tell();
        Ok(())
    }

    /// Removes an executor from the runtime. Returns `false` if the ID is unknown.
    #[cfg(feature = "agents")]
    pub(super) fn remove(&self, id: &str) -> bool {
        let removed = self.write().take(id);
        if removed {
            self.tell();
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
                let surely = match route {
                    Route::Trigger { .. } => true,
                    Route::NeedsContext => false,
                    Route::Unmatched | Route::Context => return None,
                };
                let store_context = Arc::clone(&members.by_id.get(&executor)?.store_context);
                Some(Triggered {
                    executor,
                    store_context,
                    surely,
                })
            })
            .collect();
        for (store_context, _) in &members.store_contexts {
            for (executor, surely) in store_context.others().triggered(event) {
                match all.iter_mut().find(|known| known.executor == executor) {
                    Some(known) => known.surely |= surely,
                    None => all.push(Triggered {
                        executor,
                        store_context: Arc::clone(store_context),
                        surely,
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

    fn tell(&self) {
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
    fn put(
        &mut self,
        id: Arc<str>,
        executor: Arc<dyn UniversalExecutor>,
        definition: Option<BreadcrumbId>,
    ) {
        let store_context = self.move_in(&executor);
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
        if let Some(before) = self.by_id.insert(id, member) {
            self.move_out(&before.store_context);
        }
    }

    #[cfg(feature = "agents")]
    fn take(&mut self, id: &str) -> bool {
        let Some(member) = self.by_id.remove(id) else {
            return false;
        };
        self.index.remove(id);
        member.store_context.checkpoint.forget(id);
        self.move_out(&member.store_context);
        true
    }

    fn move_in(&mut self, executor: &Arc<dyn UniversalExecutor>) -> Arc<StoreContext> {
        let known = self
            .store_contexts
            .iter_mut()
            .find(|(store_context, _)| store_context.is_of(&**executor));
        if let Some((store_context, living)) = known {
            *living += 1;
            return Arc::clone(store_context);
        }
        let store_context = StoreContext::of(self.next_store, Arc::clone(executor));
        self.next_store += 1;
        self.store_contexts.push((Arc::clone(&store_context), 1));
        store_context
    }

    fn move_out(&mut self, left: &StoreContext) {
        self.store_contexts.retain_mut(|(store_context, living)| {
            if store_context.number != left.number {
                return true;
            }
            *living -= 1;
            if *living == 0 {
                store_context.empty.cancel();
            }
            *living > 0
        });
    }
}

/// Logs the problems of an executor's subscriptions. The executor runs despite the problems.
fn log_oddities(executor: &dyn UniversalExecutor) {
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
