use crate::agent::ModelError;
use crate::error::Retry;
use std::time::Duration;

/// The consequences of a model's error for the request and for the state of the model.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Reaction {
    /// If `true`, the next model receives the request. Otherwise, the caller receives the error.
    pub(super) moves_on: bool,
    /// If `true`, the error counts as a failure for the circuit breaker of the model.
    pub(super) is_failure: bool,
    /// The time for which requests skip the model because its provider requested a delay.
    pub(super) hold: Duration,
}

/// The shortest time for which requests skip a model after a rate limit, which can be without a delay.
const MIN_HOLD: Duration = Duration::from_secs(1);

/// Decides the consequences of a model's error.
pub(super) fn reaction(error: &ModelError) -> Reaction {
    let next = |is_failure, hold| Reaction {
        moves_on: true,
        is_failure,
        hold,
    };
    let answer = Reaction {
        moves_on: false,
        is_failure: false,
        hold: Duration::ZERO,
    };
    match error {
        ModelError::RateLimited { .. } => next(false, delay(error).max(MIN_HOLD)),
        ModelError::Overloaded { .. } => next(true, delay(error)),
        ModelError::Unavailable(_)
        | ModelError::TimedOut { .. }
        | ModelError::BadAnswer { .. }
        | ModelError::Unauthorized { .. } => next(true, Duration::ZERO),
        ModelError::Rejected { status, .. } if !rejects_every_request(*status) => answer,
        ModelError::Rejected { .. } => next(true, Duration::ZERO),
        ModelError::ContextTooLong | ModelError::Unsupported { .. } => next(false, Duration::ZERO),
        ModelError::AllUnavailable { .. } => next(false, delay(error)),
        ModelError::Refused { .. }
        | ModelError::TooLarge { .. }
        | ModelError::Media { .. }
        | ModelError::ScriptEnded { .. }
        | ModelError::NotRecorded { .. }
        | ModelError::Recording { .. } => answer,
    }
}

/// Returns `true` if the HTTP status concerns the account, the model name or the server, and not the content of the request.
const fn rejects_every_request(status: u16) -> bool {
    match status {
        402 | 403 | 404 | 410 | 429 => true,
        _ => !matches!(status, 400..=499),
    }
}

fn delay(error: &ModelError) -> Duration {
    match error.retry() {
        Retry::After(delay) => delay,
        Retry::Never => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::BreadcrumbId;

    fn rejected(status: u16) -> ModelError {
        ModelError::Rejected {
            status,
            source: "no".into(),
        }
    }

    #[test]
    fn errors_of_one_provider_move_on_and_errors_of_the_request_do_not() {
        let soon = Duration::from_secs(20);
        let unsupported = ModelError::Unsupported {
            provider: "cohere",
            what: "images",
        };
        for (error, is_failure, hold) in [
            (ModelError::rate_limited(soon), false, soon),
            (ModelError::rate_limited(Duration::ZERO), false, MIN_HOLD),
            (ModelError::overloaded(soon), true, soon),
            (ModelError::overloaded(Duration::ZERO), true, Duration::ZERO),
            (ModelError::Unavailable("503".into()), true, Duration::ZERO),
            (ModelError::TimedOut { to: "answer" }, true, Duration::ZERO),
            (ModelError::bad_answer("html"), true, Duration::ZERO),
            (ModelError::unauthorized(), true, Duration::ZERO),
            (rejected(402), true, Duration::ZERO),
            (rejected(404), true, Duration::ZERO),
            (rejected(307), true, Duration::ZERO),
            (ModelError::ContextTooLong, false, Duration::ZERO),
            (unsupported, false, Duration::ZERO),
            (
                ModelError::AllUnavailable {
                    models: Vec::new(),
                    retry: Retry::After(soon),
                    source: None,
                },
                false,
                soon,
            ),
        ] {
            let expected = Reaction {
                moves_on: true,
                is_failure,
                hold,
            };
            assert_eq!(reaction(&error), expected, "{error}");
        }
        let reason = String::new();
        for error in [
            rejected(400),
            rejected(422),
            ModelError::Refused {
                reason: reason.clone(),
            },
            ModelError::TooLarge { what: "", limit: 1 },
            ModelError::Media {
                breadcrumb: BreadcrumbId::NIL,
                path: reason.clone(),
                media_type: reason.clone(),
                reason: reason.clone(),
            },
            ModelError::ScriptEnded { number: 1 },
            ModelError::NotRecorded { difference: reason },
            ModelError::Recording {
                path: "a.jsonl".into(),
                source: "gone".into(),
            },
        ] {
            let reaction = reaction(&error);
            assert!(!reaction.moves_on && !reaction.is_failure, "{error}");
        }
    }
}
