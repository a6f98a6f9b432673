//! Requests: breadcrumbs that the ledger creates once for each executor and idempotency key.

use super::{StoreError, canonical};
use crate::hex::hex;
use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb, Timestamp, sorted_text};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// A breadcrumb for one executor, with an idempotency key that makes a repeated request safe. Pass it to
/// [`RunLedger::request`](super::RunLedger::request).
///
/// ```
/// use universal_executor::store::{NewRequest, Requested, RunRef};
/// use universal_executor::{MemoryStore, NewBreadcrumb, RunLedger};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let request = || NewRequest::new("summarizer", "order-7", NewBreadcrumb::new("user.message.v1"));
///
/// let first = store.request(request()).await?;
/// let again = store.request(request()).await?;
///
/// assert!(matches!(first, Requested::Created { .. }));
/// assert_eq!(first.trigger(), again.trigger());
/// let (id, version) = again.trigger();
/// let run = RunRef::new("summarizer", id, version);
/// # drop(run);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
///
/// Use it when a client may send the same order twice, for example after a timeout. The repeated
/// call returns the first breadcrumb and creates nothing.
/// [`Client::request`](crate::Client::request) with a key does the same, and returns a handle that
/// can wait for the response.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NewRequest {
    /// The ID of the executor that the breadcrumb triggers. Two executors can use the same key.
    pub executor: Arc<str>,
    /// The idempotency key of the request, 1 to [255](Self::MAX_KEY_BYTES) bytes.
    pub key: String,
    /// The breadcrumb to create, which triggers the executor. A repeated request must have an equal breadcrumb, in all fields.
    pub breadcrumb: NewBreadcrumb,
}

impl NewRequest {
    /// Maximum size of an idempotency key in bytes.
    pub const MAX_KEY_BYTES: usize = 255;
    /// Minimum time for which a ledger retains an idempotency key, 7 days. The ledger retains the key longer while it has the
    /// run.
    pub const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

    /// Creates a request for an executor, with an idempotency key and the breadcrumb that triggers the executor.
    #[must_use]
    pub fn new(
        executor: impl Into<Arc<str>>,
        key: impl Into<String>,
        breadcrumb: NewBreadcrumb,
    ) -> Self {
        Self {
            executor: executor.into(),
            key: key.into(),
            breadcrumb,
        }
    }
}

/// Answer of [`request`](super::RunLedger::request): the breadcrumb that this request or an earlier one created. The run of the
/// request is [`RunRef::new`](super::RunRef::new) with the executor ID and the [trigger](Self::trigger).
///
/// Both variants name the same run for the same key, so a caller can wait for it in both cases.
#[derive(Clone, Debug, PartialEq)]
pub enum Requested {
    /// The idempotency key is new, and the request created the breadcrumb.
    Created {
        /// The created breadcrumb, which is the trigger of the run.
        breadcrumb: Arc<Breadcrumb>,
    },
    /// An earlier request with the same key and an equal breadcrumb created the trigger. The trigger may have changed since.
    Existing {
        /// The ID of the breadcrumb that the earlier request created.
        id: BreadcrumbId,
        /// The breadcrumb version that the earlier request created.
        version: u64,
    },
}

impl Requested {
    /// Returns the ID and the version of the breadcrumb that triggers the run of the request.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::{NewRequest, Requested};
    /// use universal_executor::{MemoryStore, NewBreadcrumb, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let request = NewRequest::new("pricing", "order-17", NewBreadcrumb::new("order.v1"));
    /// let answer = store.request(request).await?;
    /// let (id, version) = answer.trigger();
    ///
    /// let Requested::Created { breadcrumb } = answer else {
    ///     return Err("the key was used before".into());
    /// };
    /// assert_eq!((id, version), (breadcrumb.id, 1));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn trigger(&self) -> (BreadcrumbId, u64) {
        match self {
            Self::Created { breadcrumb } => (breadcrumb.id, breadcrumb.version),
            Self::Existing { id, version } => (*id, *version),
        }
    }
}

/// A request with a valid idempotency key, and its breadcrumb in canonical form.
#[derive(Clone, Debug)]
pub(in crate::store) struct ValidRequest {
    pub(in crate::store) executor: Arc<str>,
    pub(in crate::store) key: Arc<str>,
    pub(in crate::store) breadcrumb: NewBreadcrumb,
    /// SHA-256 of the breadcrumb, as hexadecimal digits.
    pub(in crate::store) digest: String,
}

/// The record of an idempotency key in the ledger: the breadcrumb version that the request created, and the breadcrumb's digest.
#[derive(Clone, Debug)]
pub(in crate::store) struct RecordedKey {
    pub(in crate::store) id: BreadcrumbId,
    pub(in crate::store) version: u64,
    pub(in crate::store) digest: String,
}

impl ValidRequest {
    /// Maximum number of old idempotency keys that one request checks for deletion when the ledger has too many keys.
    pub(in crate::store) const SWEPT_IF_FULL: usize = 16_384;

    /// Checks the idempotency key of a request, and converts its breadcrumb to canonical form. `limit` is the maximum size of the
    /// context and of the hints in bytes.
    pub(in crate::store) fn new(request: NewRequest, limit: usize) -> Result<Self, StoreError> {
        let NewRequest {
            executor,
            key,
            breadcrumb,
        } = request;
        if key.is_empty() || key.len() > NewRequest::MAX_KEY_BYTES {
            return Err(StoreError::InvalidKey {
                executor,
                size: key.len(),
                limit: NewRequest::MAX_KEY_BYTES,
            });
        }
        let breadcrumb = canonical::new_breadcrumb(0, breadcrumb, limit)?;
        let json = serde_json::to_value(&breadcrumb).map_err(|error| StoreError::Forbidden {
            reason: format!("cannot write the breadcrumb of the request as JSON: {error}"),
        })?;
        Ok(Self {
            executor,
            key: key.into(),
            breadcrumb,
            digest: hex(&Sha256::digest(sorted_text(&json))),
        })
    }

    /// Returns the executor ID and the idempotency key, which identify the request.
    pub(in crate::store) fn name(&self) -> (Arc<str>, Arc<str>) {
        (Arc::clone(&self.executor), Arc::clone(&self.key))
    }

    /// Returns the ledger record of the idempotency key, for the breadcrumb that the request created.
    pub(in crate::store) fn recorded(&self, created: &Breadcrumb) -> RecordedKey {
        RecordedKey {
            id: created.id,
            version: created.version,
            digest: self.digest.clone(),
        }
    }

    /// Returns the answer to a repeated request, whose idempotency key is already recorded. Returns an error if the breadcrumbs
    /// of the two requests differ.
    pub(in crate::store) fn answer(&self, recorded: &RecordedKey) -> Result<Requested, StoreError> {
        if recorded.digest != self.digest {
            return Err(StoreError::KeyConflict {
                executor: Arc::clone(&self.executor),
                key: Arc::clone(&self.key),
                id: recorded.id,
            });
        }
        Ok(Requested::Existing {
            id: recorded.id,
            version: recorded.version,
        })
    }

    /// Returns the error of a ledger that has the maximum number of idempotency keys.
    pub(in crate::store) fn full(store: &'static str, limit: usize) -> StoreError {
        StoreError::Full {
            store,
            what: "request keys",
            limit,
        }
    }

    /// Returns a cutoff time: a request at `now` checks an idempotency key for deletion if the key was added or renewed no later
    /// than the cutoff.
    pub(in crate::store) fn from_validated_text(now: Timestamp) -> Timestamp {
        Self::before(now, NewRequest::KEPT)
    }

    /// Returns the renewal time to record for an old idempotency key that a check at `now` must not delete. A check retains the
    /// key while the ledger has its run. The next check of the key for deletion is then due one day after `now`.
    pub(in crate::store) fn renewed_at(now: Timestamp) -> Timestamp {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self::before(now, NewRequest::KEPT.saturating_sub(DAY))
    }

    fn before(now: Timestamp, by: Duration) -> Timestamp {
        let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(now.as_micros().saturating_sub(by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Json;
    use serde_json::json;

    fn digest(breadcrumb: NewBreadcrumb) -> String {
        let request = NewRequest::new("agent", "key", breadcrumb);
        ValidRequest::new(request, Json::MAX_BYTES).unwrap().digest
    }

    /// The digests are stored, so a change of this one needs a migration.
    #[test]
    fn a_digest_is_the_same_in_every_version_of_this_crate() {
        let breadcrumb = NewBreadcrumb::new("question.v1")
            .title("t")
            .tag("a")
            .created_by("ann")
            .context(json!({"b": [1, 2.5], "a": "x"}));

        let text = r#"{"context":{"a":"x","b":[1,2.5]},"created_by":"ann","schema_name":"question.v1","sensitivity":"low","tags":["a"],"title":"t","visibility":"team"}"#;
        assert_eq!(digest(breadcrumb), hex(&Sha256::digest(text)));
    }

    #[test]
    fn a_digest_depends_on_each_field_and_not_on_the_order_of_keys() {
        let new = || NewBreadcrumb::new("question.v1").context(json!({"a": 1, "b": 2}));
        let other: serde_json::Value = serde_json::from_str(r#"{"b": 2, "a": 1}"#).unwrap();
        let ttl = Timestamp::from_micros(1);
        let mut changed = vec![
            new().title("t"),
            new().tag("a"),
            new().created_by("ann"),
            new().description("d"),
            new().llm_hints(json!({})),
            new().context(json!({"a": 1, "b": 3})),
            NewBreadcrumb::new("question.v2").context(json!({"a": 1, "b": 2})),
        ];
        let mut expiring = new();
        expiring.ttl = Some(ttl);
        changed.push(expiring);

        assert_eq!(digest(new().context(other)), digest(new()));
        assert!(changed.into_iter().all(|one| digest(one) != digest(new())));
    }

    #[test]
    fn a_key_has_1_to_255_bytes() {
        for (size, is_valid) in [(0, false), (1, true), (255, true), (256, false)] {
            let request = NewRequest::new("agent", "k".repeat(size), NewBreadcrumb::default());
            let checked = ValidRequest::new(request, Json::MAX_BYTES);
            assert_eq!(checked.is_ok(), is_valid, "{size}");
        }
    }
}
