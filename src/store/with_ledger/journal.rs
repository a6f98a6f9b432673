//! Format in which the ledger saves the response or failure of a run until the store has written it. Pure.

use crate::model::{Json, NewBreadcrumb, parse_as};
use crate::store::{DeadLetter, Lease, RunEnd, StoreError, Write, canonical};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::borrow::Cow;

/// The field that marks the saved state of a run as a saved response. States of executors may not have this field.
const FIELD: &str = "ux:response";

/// Response of a run, as the ledger saves it until the breadcrumb store has written it. The response is stored as a JSON string,
/// so that its breadcrumbs may have the full depth.
#[derive(Deserialize, Serialize)]
struct StoredResponse<'c> {
    /// The run's epoch (number of redos) when its response was saved. A response of an earlier epoch is ignored, because a run
    /// that is redone responds again.
    epoch: u32,
    creates: Vec<Cow<'c, NewBreadcrumb>>,
    /// The dead letter of the run, if the run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    letter: Option<Cow<'c, DeadLetter>>,
}

/// A response or failure that an earlier attempt of a run saved in the ledger, to write it to the breadcrumb store.
pub(super) struct Response {
    pub(super) writes: Vec<Write>,
    letter: Option<DeadLetter>,
}

impl Response {
    /// Returns the [`RunEnd`] that was saved with this response: failed with a dead letter, or done.
    pub(super) fn end(&self) -> RunEnd {
        match &self.letter {
            Some(letter) => RunEnd::Failed(letter.clone()),
            None => RunEnd::Done,
        }
    }
}

/// Encodes a run's response as a run state for the ledger, or returns `None` if the response cannot be saved. A saved response
/// consists of the writes and the end of a run. It cannot be saved for any end but [`RunEnd::Done`] and [`RunEnd::Failed`], or
/// for a done run without writes. It cannot be saved with an update or a deletion either, because other writers may have changed
/// the same breadcrumb before the saved response is written.
pub(super) fn encode(lease: &Lease, writes: &[Write], end: &RunEnd) -> Option<Json> {
    let letter = match end {
        RunEnd::Done => None,
        RunEnd::Failed(letter) => Some(Cow::Borrowed(letter)),
        RunEnd::Suspended { .. } | RunEnd::Skipped(_) | RunEnd::Superseded | RunEnd::Continues => {
            return None;
        }
    };
    // A breadcrumb that is nested too deeply must not be serialized, and the store rejects such a response anyway.
    let writes = canonical::writes(writes.to_vec(), Json::MAX_BYTES).ok()?;
    let creates: Option<Vec<_>> = writes
        .iter()
        .map(|write| match write {
            Write::Create(new) => Some(Cow::Borrowed(new)),
            Write::Update { .. } | Write::Delete { .. } => None,
        })
        .collect();
    let creates = creates.filter(|creates| !creates.is_empty() || letter.is_some())?;
    let stored = StoredResponse {
        epoch: lease.epoch,
        creates,
        letter,
    };
    let text = serde_json::to_string(&stored).ok()?;
    Some(json!({FIELD: text}).into())
}

/// Returns `true` if the saved state of a run contains a saved response.
pub(super) fn is_response(state: &Json) -> bool {
    state.get(FIELD).is_some()
}

/// Returns the saved response in the saved state of a run. `None` for a response of another epoch, or one that cannot be read.
pub(super) fn decode(lease: &Lease, state: &Json) -> Option<Response> {
    let text = state.get(FIELD)?.as_str()?;
    let stored: StoredResponse<'_> = parse_as(text.as_bytes()).ok()?;
    let creates = stored.creates.into_iter().map(Cow::into_owned);
    (stored.epoch == lease.epoch).then(|| Response {
        writes: creates.map(Write::Create).collect(),
        letter: stored.letter.map(Cow::into_owned),
    })
}

/// Returns an error if the state that a run wants to save has the field that marks saved responses. A saved response is written
/// without further checks.
pub(super) fn check(state: &Json) -> Result<(), StoreError> {
    match is_response(state) {
        true => Err(StoreError::Forbidden {
            reason: format!(
                "cannot save a run state with the field {FIELD:?}, which marks saved responses; put the state into another field"
            ),
        }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, Patch, Timestamp};
    use crate::store::{FailureClass, RunRef};

    fn lease(epoch: u32) -> Lease {
        let run = RunRef::new("echo", BreadcrumbId::NIL, 1);
        let now = Timestamp::UNIX_EPOCH;
        Lease::new(run, 1, now).history(epoch, 0, now)
    }

    fn answer() -> Write {
        let mut context = json!("deep");
        for _ in 0..60 {
            context = json!([context]);
        }
        let new = NewBreadcrumb::new("answer.v1").tag("a").created_by("echo");
        Write::Create(new.llm_hints(json!({"exclude": ["b"]})).context(context))
    }

    #[test]
    fn a_response_is_saved_completely_and_read_only_in_its_epoch() {
        let writes = vec![answer(), answer()];

        let state = encode(&lease(1), &writes, &RunEnd::Done).unwrap();

        assert!(is_response(&state) && state.canonical(Json::MAX_BYTES).is_ok());
        let read = decode(&lease(1), &state).unwrap();
        assert_eq!(read.writes, writes);
        assert!(matches!(read.end(), RunEnd::Done));
        assert!(decode(&lease(2), &state).is_none());
    }

    #[test]
    fn a_failure_is_saved_with_its_dead_letter() {
        let mut letter = DeadLetter::new(FailureClass::Timeout, "timeout", 5);
        letter.tags = vec!["session:1".to_owned()];
        letter.creator = json!({"id": "echo"}).into();

        for writes in [vec![], vec![answer()]] {
            let end = RunEnd::Failed(letter.clone());
            let state = encode(&lease(1), &writes, &end).unwrap();

            let read = decode(&lease(1), &state).unwrap();
            assert_eq!(read.writes, writes);
            assert!(matches!(read.end(), RunEnd::Failed(read) if read == letter));
        }
    }

    #[test]
    fn a_response_with_an_update_or_a_deletion_is_not_saved() {
        let id = BreadcrumbId::NIL;
        let update = Write::Update {
            id,
            version: 1,
            patch: Patch::new(),
        };

        for writes in [
            vec![],
            vec![answer(), update],
            vec![Write::Delete { id, by: None }],
        ] {
            assert_eq!(encode(&lease(0), &writes, &RunEnd::Done), None);
        }
    }

    #[test]
    fn a_response_that_a_store_would_refuse_is_not_saved() {
        let mut context = json!(1);
        for _ in 0..100 {
            context = json!([context]);
        }
        let deep = Write::Create(NewBreadcrumb::new("answer.v1").context(context));

        assert_eq!(encode(&lease(0), &[deep], &RunEnd::Done), None);
    }

    #[test]
    fn the_saved_state_of_an_executor_is_not_a_response() {
        let states = [json!({"n": 1}), json!([FIELD]), json!(FIELD), json!(null)];

        assert!(states.into_iter().all(|state| !is_response(&state.into())));
        for unreadable in [json!({FIELD: 7}), json!({FIELD: "{}"})] {
            assert!(decode(&lease(0), &unreadable.into()).is_none());
        }
    }
}
