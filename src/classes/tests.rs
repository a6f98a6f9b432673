use super::*;
use crate::agent::{AgentError, FailedModel, ModelError};
use crate::error::{BoxError, ErrorExt as _, permanent, retry_after};
use crate::executor::InvalidExecutor;
use crate::model::BreadcrumbId;
use crate::source::SourceError;
use crate::store::{RunRef, StoreError};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn marked_and_known_errors_determine_their_retry_and_others_are_transient() {
    let json = serde_json::from_str::<u8>("x").unwrap_err();
    let missing = StoreError::NotFound {
        id: BreadcrumbId::NIL,
        tombstone: None,
    };
    let busy = StoreError::Unavailable {
        store: "s",
        retry_after: SECOND,
        source: "down".into(),
    };
    for (error, expected) in [
        (permanent("no"), Verdict::Permanent),
        (
            retry_after(SECOND, "slow down"),
            Verdict::RateLimited(SECOND),
        ),
        (json.into(), Verdict::Permanent),
        (missing.into(), Verdict::Permanent),
        (busy.into(), Verdict::Transient(SECOND)),
        (
            "connection reset".into(),
            Verdict::Transient(Duration::ZERO),
        ),
    ] {
        assert_eq!(verdict(error.as_ref()), expected, "{error}");
    }
}

#[test]
fn no_error_requests_a_delay_of_more_than_an_hour() {
    let day = || 24 * 60 * 60 * SECOND;
    let hour = 60 * 60 * SECOND;
    let unavailable = StoreError::Unavailable {
        store: "s",
        retry_after: day(),
        source: "down".into(),
    };
    let source_error = SourceError::Unavailable {
        retry_after: day(),
        source: "down".into(),
    };
    let limited = || ModelError::rate_limited(day());
    let overloaded = ModelError::overloaded(day());
    for (error, expected) in [
        (unavailable.into(), Verdict::Transient(hour)),
        (source_error.into(), Verdict::Transient(hour)),
        (overloaded.into(), Verdict::Transient(hour)),
        (limited().into(), Verdict::RateLimited(hour)),
        (retry_after(day(), "slow down"), Verdict::RateLimited(hour)),
    ] {
        let error: BoxError = error;
        assert_eq!(verdict(error.as_ref()), expected, "{error}");
    }
}

#[test]
fn errors_of_models_agents_and_tools_determine_their_own_retry_class() {
    let down = || ModelError::Unavailable("connection reset".into());
    let no_id = || InvalidExecutor::NoId;
    let no_model = |code| ModelError::AllUnavailable {
        models: vec![
            FailedModel::new("large", FailedModel::TOKEN_LIMIT),
            FailedModel::new("small", code),
        ],
        retry: Retry::After(SECOND),
        source: None,
    };
    let errors: [(BoxError, Verdict); 9] = [
        (
            no_model("rate_limited").into(),
            Verdict::RateLimited(SECOND),
        ),
        (no_model("timeout").into(), Verdict::Transient(SECOND)),
        (
            (ModelError::rate_limited(SECOND)).into(),
            Verdict::RateLimited(SECOND),
        ),
        (ModelError::unauthorized().into(), Verdict::Permanent),
        (ModelError::ContextTooLong.into(), Verdict::Permanent),
        (down().into(), Verdict::Transient(Duration::ZERO)),
        (no_id().into(), Verdict::Permanent),
        (AgentError::from(no_id()).into(), Verdict::Permanent),
        (
            (ToolError::BadName {
                name: String::new(),
            })
            .into(),
            Verdict::Permanent,
        ),
    ];
    for (error, expected) in errors {
        assert_eq!(verdict(error.as_ref()), expected, "{error}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one value of each variant")]
fn only_transient_store_errors_are_retried() {
    let run = || RunRef::new("x", BreadcrumbId::NIL, 1);
    let text = String::new;
    let id = BreadcrumbId::NIL;
    let conflict = StoreError::Conflict {
        id,
        expected: 1,
        found: 2,
    };
    let full = StoreError::Full {
        store: "s",
        what: "runs",
        limit: 1,
    };
    let [count, size, limit] = [2, 2, 1];

    assert_eq!(conflict.retry(), Retry::After(Duration::ZERO));
    assert!(matches!(full.retry(), Retry::After(delay) if !delay.is_zero()));
    for never in [
        StoreError::NotFound {
            id,
            tombstone: None,
        },
        StoreError::LeaseLost { run: run() },
        StoreError::UnknownRun { run: run() },
        StoreError::Rejected {
            what: text(),
            source: crate::model::JsonError::TooDeep,
        },
        StoreError::Forbidden { reason: text() },
        StoreError::TooManyWrites { count, limit },
        StoreError::TooManyTags {
            write: 0,
            count,
            limit,
        },
        StoreError::TagTooLong {
            write: 0,
            size,
            limit,
        },
        StoreError::SchemaTooLong {
            write: 0,
            size,
            limit,
        },
        StoreError::EmptyWake,
        StoreError::PositionTooLarge {
            executor: "e".into(),
            size: count,
            limit,
        },
        StoreError::InvalidKey {
            executor: "e".into(),
            size: count,
            limit,
        },
        StoreError::KeyConflict {
            executor: "e".into(),
            key: "k".into(),
            id,
        },
        StoreError::TooFar {
            store: "s",
            looked_at: count,
        },
        StoreError::Refused {
            store: "s",
            source: "no".into(),
        },
        StoreError::Unsupported {
            store: "s",
            operation: "o",
        },
    ] {
        assert_eq!(never.retry(), Retry::Never, "{never}");
    }
}

#[test]
fn a_crate_error_inside_a_user_error_keeps_its_retry_class() {
    #[derive(Debug, thiserror::Error)]
    #[error("could not look up the customer")]
    struct Lookup(#[source] StoreError);

    let error = Lookup(StoreError::Unsupported {
        store: "s",
        operation: "o",
    });

    assert_eq!(verdict(&error), Verdict::Permanent);
}

#[derive(Debug, thiserror::Error)]
#[error("could not look up the customer")]
struct Lookup(#[source] BoxError);

#[test]
fn a_users_error_has_the_class_of_its_source() {
    let down = StoreError::Unavailable {
        store: "s",
        retry_after: SECOND,
        source: "down".into(),
    };
    let shared = Arc::new(StoreError::EmptyWake);
    let deep = |error: BoxError| Lookup(Lookup(error).into());
    for (error, verdict, code) in [
        (down.into(), Verdict::Transient(SECOND), "unavailable"),
        (shared.into(), Verdict::Permanent, "empty_wake"),
        (permanent("no"), Verdict::Permanent, "error"),
        (
            retry_after(SECOND, "busy"),
            Verdict::RateLimited(SECOND),
            "rate_limited",
        ),
        (
            SessionError::deleted(&"s".into()).into(),
            Verdict::Permanent,
            "session",
        ),
        ("reset".into(), Verdict::Transient(Duration::ZERO), "error"),
        // Inside another error, invalid JSON need not come from the input of the run.
        (
            serde_json::from_str::<u8>("x").unwrap_err().into(),
            Verdict::Transient(Duration::ZERO),
            "error",
        ),
    ] {
        let error = deep(error);
        assert_eq!(class_of(&error), ErrorClass { verdict, code }, "{error:?}");
    }
}

#[test]
fn the_outermost_decision_and_the_outermost_code_count() {
    let missing = || StoreError::EmptyWake;
    let again = Lookup(missing().transient().into());
    let named = Lookup(missing().with_code("no_wake").into());
    let both = Lookup(named.permanent().into()).with_code("outer");

    let class = class_of(&again);
    assert_eq!(
        (class.retry(), class.code()),
        (Retry::After(Duration::ZERO), "empty_wake")
    );
    let class = class_of(&both);
    assert_eq!((class.retry(), class.code()), (Retry::Never, "outer"));
    assert_eq!(decided(&Lookup("x".with_code("y").into())), None);
}

#[test]
fn a_chain_without_an_end_has_the_class_of_a_foreign_error() {
    #[derive(Debug, thiserror::Error)]
    #[error("again")]
    struct Cycle;
    let deep = (0..5_000).fold(BoxError::from(Cycle), |error, _| Lookup(error).into());

    let class = class_of(deep.as_ref());

    assert_eq!(class.retry(), Retry::After(Duration::ZERO));
    // Dropping each level separately avoids a deep recursion.
    let mut next = Some(deep);
    while let Some(level) = next.take() {
        next = level.downcast::<Lookup>().ok().map(|level| level.0);
    }
}
