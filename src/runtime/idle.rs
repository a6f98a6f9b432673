//! Progress of a runtime, as the crate's testing kit observes it to detect an idle runtime.

use super::Runtime;
use crate::store::StoreId;
use tokio::sync::futures::Notified;

impl Runtime {
    /// Returns the identities of the stores of the runtime's executors and definitions.
    pub(crate) fn store_ids(&self) -> Vec<StoreId> {
        let store_contexts = self.registry.store_contexts().into_iter();
        let of_executors = store_contexts.map(|store_context| store_context.store().identity());
        let of_definitions = self
            .definition_loader
            .iter()
            .map(|loader| loader.store_id());
        of_executors.chain(of_definitions).collect()
    }

    /// Returns `true` if the runtime has handled every event up to a position of its source.
    pub(crate) fn has_handled(&self, position: Option<u64>) -> bool {
        self.progress.has_handled(position)
    }

    /// Returns a future that ends when the runtime next finishes the handling of an event.
    pub(crate) fn next_handled(&self) -> Notified<'_> {
        self.progress.next_handled()
    }
}
