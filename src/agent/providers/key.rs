//! Where the key of a provider comes from.

use super::{ProviderError, Secret};
use crate::agent::ModelError;
use crate::error::BoxError;
use crate::http;
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::Url;
use std::sync::Arc;

/// The key that is sent with a request.
#[derive(Clone)]
pub(super) enum Key {
    Absent,
    Fixed(Secret),
    Asked(Arc<AskForKey>),
}

type AskForKey = dyn Fn() -> BoxFuture<'static, Result<Secret, BoxError>> + Send + Sync;

impl Key {
    /// The key that a function gives before every request.
    pub(super) fn asked<F, T>(ask: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Secret, BoxError>> + Send + 'static,
    {
        Self::Asked(Arc::new(move || ask().boxed()))
    }

    /// Logs a warning if there is a key that this URL would expose.
    pub(super) fn warn_if_exposed(&self, url: &Url) {
        match self {
            Self::Absent => {}
            Self::Fixed(_) | Self::Asked(_) => http::warn_if_exposed(url),
        }
    }

    /// The key of the next request.
    pub(super) async fn get(&self) -> Result<Option<Secret>, ModelError> {
        match self {
            Self::Absent => Ok(None),
            Self::Fixed(key) => Ok(Some(key.clone())),
            Self::Asked(ask) => ask().await.map(Some).map_err(ModelError::Unavailable),
        }
    }
}

/// Where the key shall come from, once a model is built.
pub(super) enum Wanted {
    Key(Key),
    Variable(String),
}

impl Wanted {
    /// The key, or how to get it.
    pub(super) fn found(self) -> Result<Key, ProviderError> {
        let key = match self {
            Self::Key(key) => key,
            Self::Variable(name) => {
                let key = std::env::var(&name).unwrap_or_default();
                if key.trim().is_empty() {
                    return Err(ProviderError::NoKey { name });
                }
                Key::Fixed(Secret::new(key))
            }
        };
        match &key {
            Key::Fixed(secret) if !can_be_sent(secret) => Err(ProviderError::BadKey),
            Key::Fixed(_) | Key::Absent | Key::Asked(_) => Ok(key),
        }
    }
}

/// Whether an HTTP header can hold a key.
pub(super) fn can_be_sent(key: &Secret) -> bool {
    key.reveal().chars().all(|c| c.is_ascii_graphic())
}
