use super::{BadRate, Execution, UniversalExecutor};
use crate::error::{Retry, excerpt};
use crate::model::{Breadcrumb, DefinitionError, EventKind, Method, Role, Subscription};

/// An executor can never work on its store.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidExecutor {
    /// It has no name.
    #[error("an executor has no id")]
    NoId,
    /// The executor ID is longer than the limit.
    #[error(
        "executor ID {executor:?} has {size} bytes where at most {limit} are allowed; use a shorter ID"
    )]
    LongId {
        /// The first bytes of the ID.
        executor: String,
        /// The size of the ID in bytes.
        size: usize,
        /// The maximum size in bytes.
        limit: usize,
    },
    /// The executor ID contains a control character. Stores replace U+0000, so the executor would not recognise its own
    /// breadcrumbs.
    #[error(
        "executor ID {executor:?} contains the control character U+{character:04X} at byte {at}; remove the character"
    )]
    ControlInId {
        /// The first bytes of the ID.
        executor: String,
        /// The code point of the first control character.
        character: u32,
        /// The position of that character in bytes.
        at: usize,
    },
    /// A subscription was passed to the builder method for the other role.
    #[error(
        "the {} subscription of executor {executor:?} to {schema:?} was passed to .{}(..); pass it to .{}(..)",
        role.as_str(), method(role.other()), method(*role)
    )]
    WrongRole {
        /// The executor ID.
        executor: String,
        /// The schema of the subscription, or `*` for any schema.
        schema: String,
        /// The role of the subscription.
        role: Role,
    },
    /// The executor has no trigger subscription, so it would never run.
    #[error(
        "executor {executor:?} has no trigger, so it would never run; add .on(Subscription::trigger(..))"
    )]
    NoTrigger {
        /// The executor ID.
        executor: String,
    },
    /// The subscriptions cannot work.
    #[error("the subscriptions of executor {executor:?} cannot be used")]
    Subscriptions {
        /// The executor ID.
        executor: String,
        /// The problem of the subscription.
        source: DefinitionError,
    },
    /// It may run or call tools at most once, or waits for others, on a store that cannot keep that.
    #[error(
        "executor {executor:?} needs a run ledger, which its store does not have, to run at most once, to call tools at most once, or to wait for others; give it a store with one, or WithLedger"
    )]
    NoLedger {
        /// The executor.
        executor: String,
    },
    /// None of its runs could ever start.
    #[error("executor {executor:?} may have no run in flight; set max_inflight to at least 1")]
    NoneInFlight {
        /// The executor.
        executor: String,
    },
    /// The rate of its runs is none.
    #[error("the rate of executor {executor:?} is none")]
    Rate {
        /// The executor.
        executor: String,
        /// Why.
        source: BadRate,
    },
    /// It asks for deletions on a store that keeps nothing of what was deleted.
    #[error(
        "subscription {subscription} of executor {executor:?} asks for deletions, but its store keeps no tombstones to read them from"
    )]
    NoTombstones {
        /// The executor.
        executor: String,
        /// The index of the subscription.
        subscription: usize,
    },
    /// None of its runs could ever be executed: it cannot do without what is found by meaning, on a store that does not
    /// search so.
    #[error(
        "subscription {subscription} of executor {executor:?} requires what a vector search finds, which its store cannot do; give the store an embedder, or leave out \"required\""
    )]
    NoVectors {
        /// The executor.
        executor: String,
        /// The index of the subscription.
        subscription: usize,
    },
}

impl InvalidExecutor {
    /// Never: the executor or its store has to change.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

/// The builder method that takes subscriptions of a role.
const fn method(role: Role) -> &'static str {
    match role {
        Role::Trigger => "on",
        Role::Context => "reads",
    }
}

/// Checks an executor against its store; whatever takes executors in does this first.
///
/// # Errors
/// [`InvalidExecutor`] says what cannot work.
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

/// Maximum length of an executor ID in bytes, the same as that of a tag.
const MAX_ID_BYTES: usize = Breadcrumb::MAX_TAG_BYTES;
/// Length of the part of an ID that an error shows, in bytes.
const SHOWN_BYTES: usize = 64;

/// Checks the ID of an executor: 1 to 256 bytes without control characters.
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
