//! Ways to obtain a provider's API key: a fixed key, an environment variable, or a function.

use super::{ProviderError, Secret};
use crate::agent::ModelError;
use crate::error::BoxError;
use crate::http;
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::Url;
use std::sync::Arc;

/// The API key for model requests: no key, a fixed key, or a function that returns the key before each request.
#[derive(Clone)]
pub(super) enum Key {
    Absent,
    Fixed(Secret),
    FromFunction(Arc<KeyFunction>),
}

type KeyFunction = dyn Fn() -> BoxFuture<'static, Result<Secret, BoxError>> + Send + Sync;

impl Key {
    /// Creates an API key source that calls a function before each request.
    pub(super) fn from_function<F, T>(function: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Secret, BoxError>> + Send + 'static,
    {
        Self::FromFunction(Arc::new(move || function().boxed()))
    }

    /// Logs a warning if requests to this URL would send the API key without encryption.
    pub(super) fn warn_if_exposed(&self, url: &Url) {
        match self {
            Self::Absent => {}
            Self::Fixed(_) | Self::FromFunction(_) => http::warn_if_exposed(url),
        }
    }

    /// Returns the API key for the next model request.
    pub(super) async fn get(&self) -> Result<Option<Secret>, ModelError> {
        match self {
            Self::Absent => Ok(None),
            Self::Fixed(key) => Ok(Some(key.clone())),
            Self::FromFunction(function) => {
                function().await.map(Some).map_err(ModelError::Unavailable)
            }
        }
    }
}

/// The source of the API key in the builder of a model: a key, or the name of an environment variable.
pub(super) enum KeySource {
    Key(Key),
    Variable(String),
}

impl KeySource {
    /// Returns the API key, from the environment variable if one is named. Fails if a fixed key, or a key
    /// from the variable, cannot be sent in an HTTP header.
    pub(super) fn resolve(self) -> Result<Key, ProviderError> {
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
            Key::Fixed(_) | Key::Absent | Key::FromFunction(_) => Ok(key),
        }
    }
}

/// Returns `true` if an API key can be sent in an HTTP header.
pub(super) fn can_be_sent(key: &Secret) -> bool {
    key.reveal().chars().all(|c| c.is_ascii_graphic())
}
