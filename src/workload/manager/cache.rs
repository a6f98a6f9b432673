use super::LoaderSource;
use crate::error::BoxError;
use crate::workload::Definition;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Cache of loaded workload definitions by their content. A full cache removes the oldest definition.
#[derive(Default)]
pub(super) struct Cache(Mutex<CachedDefinitions>);

#[derive(Default)]
struct CachedDefinitions {
    by_key: HashMap<Key, Arc<dyn Definition>>,
    order: VecDeque<Key>,
}

type Key = [u8; 32];

impl Cache {
    const MAX_DEFINITIONS: usize = 256;

    /// Returns the cached workload definition for the same content, otherwise loads it. Errors are not cached.
    pub(super) fn get_or(
        &self,
        format: &str,
        source: &LoaderSource<'_>,
        load: impl FnOnce() -> Result<Arc<dyn Definition>, BoxError>,
    ) -> Result<Arc<dyn Definition>, BoxError> {
        let key = key(format, source);
        let found = self.lock().by_key.get(&key).cloned();
        if let Some(found) = found {
            return Ok(found);
        }
        let loaded = load()?;
        let mut cached = self.lock();
        if cached.by_key.insert(key, Arc::clone(&loaded)).is_none() {
            cached.order.push_back(key);
        }
        while cached.order.len() > Self::MAX_DEFINITIONS
            && let Some(oldest) = cached.order.pop_front()
        {
            cached.by_key.remove(&oldest);
        }
        Ok(loaded)
    }

    fn lock(&self) -> MutexGuard<'_, CachedDefinitions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(format: &str, source: &LoaderSource<'_>) -> Key {
    let policy = format!("{:?}", source.policy);
    let entry = source
        .entry
        .map_or(String::new(), |entry| format!("#{entry}"));
    let mut digest = Sha256::new();
    for field in [format, source.name, &entry, &policy, source.text] {
        digest.update(field.len().to_le_bytes());
        digest.update(field);
    }
    digest.finalize().into()
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cache")
    }
}
