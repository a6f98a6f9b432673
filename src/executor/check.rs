use super::{BadRate, Execution, UniversalExecutor};
use crate::error::{Retry, excerpt};
use crate::model::{Breadcrumb, DefinitionError, EventKind, Method, Role, Subscription};

/// Reason why an executor can never work: its ID, a setting or a subscription is invalid, or its store lacks a capability.
///
/// [`Executor::bind`](super::Executor::bind), the builder of a [`Runtime`](crate::Runtime) and
/// [`check`] return this error at startup, before any run. Change the executor or its store.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidExecutor {
    /// The executor ID is empty.
    #[error("the executor ID is empty; set an ID of 1 to 256 bytes")]
    NoId,
    /// The executor ID is longer than 256 bytes.
    #[error(
        "executor ID {executor:?} has {size} bytes where at most {limit} are allowed; use a shorter ID"
    )]
    LongId {
        /// The first bytes of the executor ID that is too long.
        executor: String,
        /// The size of the executor ID in bytes.
        size: usize,
        /// The maximum size of an executor ID in bytes.
        limit: usize,
    },
    /// The executor ID contains a control character. Stores replace U+0000, so the executor would not recognise its own
    /// breadcrumbs.
    #[error(
        "executor ID {executor:?} contains the control character U+{character:04X} at byte {at}; remove the character"
    )]
    ControlInId {
        /// The first bytes of the executor ID that contains a control character.
        executor: String,
        /// The code point of the first control character in the executor ID.
        character: u32,
        /// The position of the first control character in the executor ID, in bytes.
        at: usize,
    },
    /// A trigger subscription was passed to the builder method `reads`, or a context subscription to `on`.
    ///
    /// Pass it to the other method, or create it with the other function of [`Subscription`].
    #[error(
        "the {} subscription of executor {executor:?} to {schema:?} was passed to .{}(..); pass it to .{}(..)",
        role.as_str(), method(role.other()), method(*role)
    )]
    WrongRole {
        /// The ID of the refused executor.
        executor: String,
        /// The schema that the misplaced subscription selects, or `*` for any schema.
        schema: String,
        /// The role of the misplaced subscription: trigger or context.
        role: Role,
    },
    /// The executor has no trigger subscription, so it would never run.
    #[error(
        "executor {executor:?} has no trigger, so it would never run; add .on(Subscription::trigger(..))"
    )]
    NoTrigger {
        /// The ID of the refused executor.
        executor: String,
    },
    /// The subscriptions of the executor are invalid.
    ///
    /// The source names the subscription and the field.
    #[error("the subscriptions of executor {executor:?} are invalid; see the cause")]
    Subscriptions {
        /// The ID of the refused executor.
        executor: String,
        /// The problem of the executor's subscriptions.
        source: DefinitionError,
    },
    /// The executor needs a run ledger, and its store has none. At-most-once runs, at-most-once tools, and waits for agents or tools need a
    /// ledger.
    #[error(
        "the store of executor {executor:?} has no run ledger, which at-most-once runs, at-most-once tools and waits for agents or tools \
         need; use a store with a run ledger, or add a ledger with WithLedger"
    )]
    NoLedger {
        /// The ID of the refused executor.
        executor: String,
    },
    /// The executor's maximum number of runs in flight is 0, so no run could start.
    #[error(
        "max_inflight of executor {executor:?} is 0, so no run could start; set max_inflight to at least 1"
    )]
    NoneInFlight {
        /// The ID of the refused executor.
        executor: String,
    },
    /// The rate limit of the executor is invalid.
    #[error("the rate limit of executor {executor:?} is invalid; see the cause")]
    Rate {
        /// The ID of the refused executor.
        executor: String,
        /// The reason why the rate limit of the executor is invalid.
        source: BadRate,
    },
    /// A trigger subscription selects deletions, and the store does not retain deleted breadcrumbs.
    #[error(
        "subscription {subscription} of executor {executor:?} selects deletions, but its store retains no \
         tombstones of deleted breadcrumbs; use another store, or remove \"deleted\" from the events of the subscription"
    )]
    NoTombstones {
        /// The ID of the refused executor.
        executor: String,
        /// The index of the subscription that selects deletions, from 0.
        subscription: usize,
    },
    /// A required context subscription needs a vector search, and the store does not support vector search. No run could
    /// execute.
    ///
    /// An optional vector source would only be missing in each run.
    #[error(
        "subscription {subscription} of executor {executor:?} requires a vector search, which its store does not \
         support; configure an embedder for the store, or remove \"required\""
    )]
    NoVectors {
        /// The ID of the refused executor.
        executor: String,
        /// The index of the subscription that requires a vector search, from 0.
        subscription: usize,
    },
}

impl InvalidExecutor {
    /// Returns [`Retry::Never`]: a retry cannot succeed before the executor or its store is changed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

/// Returns the name of the executor builder's method that takes subscriptions of a role, either `on` or `reads`.
const fn method(role: Role) -> &'static str {
    match role {
        Role::Trigger => "on",
        Role::Context => "reads",
    }
}

/// Checks that an executor can work on its store: the executor ID, the limits, and the capabilities that the store needs for the executor.
///
/// A [`Runtime`](crate::Runtime) calls this function for every executor. The syntax of the subscriptions is not checked here, but by
/// [`Subscriptions::new`](crate::Subscriptions::new).
///
/// Call it in a unit test of an executor type, to find mistakes before a deployment.
///
/// # Errors
/// [`InvalidExecutor`] with the first problem that is found.
///
/// # Examples
/// ```
/// use universal_executor::executor::check;
/// use universal_executor::{MemoryStore, Response, Subscription, executor};
///
/// let clerk = executor("clerk")
///     .on(Subscription::trigger("order.v1"))
///     .execute(|_| async { Ok(Response::none()) })
///     .bind(&MemoryStore::default())?;
/// assert_eq!(check(&clerk), Ok(()));
/// # Ok::<(), universal_executor::executor::InvalidExecutor>(())
/// ```
pub fn check(executor: &(impl UniversalExecutor + ?Sized)) -> Result<(), InvalidExecutor> {
    check_id(executor.id())?;
    let profile = executor.profile();
    if profile.max_inflight == Some(0) {
        return Err(InvalidExecutor::NoneInFlight {
            executor: executor.id().to_owned(),
        });
    }
    if let Some(Err(source)) = profile.rate.map(|rate| rate.check()) {
        return Err(InvalidExecutor::Rate {
            executor: executor.id().to_owned(),
            source,
        });
    }
    let once = executor.profile().execution == Execution::AtMostOnce;
    if once && executor.store().ledger().is_none() {
        return Err(InvalidExecutor::NoLedger {
            executor: executor.id().to_owned(),
        });
    }
    let can = executor.store().capabilities();
    let subscriptions = executor.subscriptions().as_slice();
    let first = |is: fn(&Subscription) -> bool| subscriptions.iter().position(is);
    if let Some(subscription) = first(wants_deletions).filter(|_| !can.tombstones) {
        return Err(InvalidExecutor::NoTombstones {
            executor: executor.id().to_owned(),
            subscription,
        });
    }
    match first(requires_vectors).filter(|_| !can.vector_search) {
        Some(subscription) => Err(InvalidExecutor::NoVectors {
            executor: executor.id().to_owned(),
            subscription,
        }),
        None => Ok(()),
    }
}

/// Maximum length of an executor ID in bytes, the same as the maximum length of a tag.
const MAX_ID_BYTES: usize = Breadcrumb::MAX_TAG_BYTES;
/// Maximum length of the excerpt of an executor ID in an [`InvalidExecutor`] error, in bytes.
const SHOWN_BYTES: usize = 64;

/// Checks that an executor ID has 1 to 256 bytes and no control characters.
///
/// # Errors
/// Returns the problem with the ID.
pub(crate) fn check_id(id: &str) -> Result<(), InvalidExecutor> {
    if id.is_empty() {
        return Err(InvalidExecutor::NoId);
    }
    let executor = || excerpt(id, SHOWN_BYTES).into_owned();
    if id.len() > MAX_ID_BYTES {
        return Err(InvalidExecutor::LongId {
            executor: executor(),
            size: id.len(),
            limit: MAX_ID_BYTES,
        });
    }
    match id.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, character)) => Err(InvalidExecutor::ControlInId {
            executor: executor(),
            character: character.into(),
            at,
        }),
        None => Ok(()),
    }
}

fn wants_deletions(subscription: &Subscription) -> bool {
    subscription.role == Role::Trigger && subscription.on.contains(&EventKind::Deleted)
}

fn requires_vectors(subscription: &Subscription) -> bool {
    subscription.role == Role::Context
        && subscription.required
        && subscription.fetch.method == Method::Vector
}
