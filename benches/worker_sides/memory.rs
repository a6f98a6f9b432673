//! Workers on clones of one [`MemoryStore`].

use super::SharedStore;
use universal_executor::{EventSource, MemoryStore};

pub(crate) struct Memory;

impl SharedStore for Memory {
    type Handle = MemoryStore;
    type Location = MemoryStore;

    fn create(&self) -> MemoryStore {
        MemoryStore::default()
    }

    async fn open(&self, location: &MemoryStore) -> MemoryStore {
        location.clone()
    }

    fn events(handle: &MemoryStore) -> impl EventSource + use<> {
        handle.events()
    }

    async fn close(handle: MemoryStore) {
        drop(handle);
    }

    fn remove(&self, location: MemoryStore) {
        drop(location);
    }
}
