//! What a run is about to respond with, kept in its row until it is written. Pure.

use crate::model::{Json, NewBreadcrumb, parse_as};
use crate::store::{Lease, Write, canonical};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::borrow::Cow;

/// The field that tells it from what an executor saves, which may have no such field.
pub(super) const FIELD: &str = "ux:response";

/// A response, as text: so it may nest as deep as a breadcrumb may.
#[derive(Deserialize, Serialize)]
struct Kept<'c> {
    /// A run that is redone responds anew.
    epoch: u32,
    creates: Vec<Cow<'c, NewBreadcrumb>>,
}

/// The state that keeps a response. None for nothing, and for one that changes or deletes: by the time it is written from
/// here others may have changed the same.
pub(super) fn of(lease: &Lease, writes: &[Write]) -> Option<Json> {
    // What nests too deep must not be written out, and what is refused is refused by the store.
    let writes = canonical::writes(writes.to_vec(), Json::MAX_BYTES).ok()?;
    let creates: Option<Vec<_>> = writes
        .iter()
        .map(|write| match write {
            Write::Create(new) => Some(Cow::Borrowed(new)),
            Write::Update { .. } | Write::Delete { .. } => None,
        })
        .collect();
    let creates = creates.filter(|creates| !creates.is_empty())?;
    let epoch = lease.epoch;
    let text = serde_json::to_string(&Kept { epoch, creates }).ok()?;
    Some(json!({FIELD: text}).into())
}

/// Whether a state is a response that was kept.
pub(super) fn is_one(state: &Json) -> bool {
    state.get(FIELD).is_some()
}

/// The response that was kept; none if it is one of another epoch, or cannot be read.
pub(super) fn response(lease: &Lease, state: &Json) -> Option<Vec<Write>> {
    let text = state.get(FIELD)?.as_str()?;
    let kept: Kept<'_> = parse_as(text.as_bytes()).ok()?;
    let creates = kept.creates.into_iter().map(Cow::into_owned);
    (kept.epoch == lease.epoch).then(|| creates.map(Write::Create).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, Patch, Timestamp};
    use crate::store::RunRef;

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
    fn a_response_is_kept_whole_for_its_epoch() {
        let writes = vec![answer(), answer()];

        let state = of(&lease(1), &writes).unwrap();

        assert!(is_one(&state) && state.canonical(Json::MAX_BYTES).is_ok());
        assert_eq!(response(&lease(1), &state), Some(writes));
        assert_eq!(response(&lease(2), &state), None);
    }

    #[test]
    fn what_depends_on_what_others_write_is_not_kept() {
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
            assert_eq!(of(&lease(0), &writes), None);
        }
    }

    #[test]
    fn what_a_store_refuses_is_not_kept() {
        let mut context = json!(1);
        for _ in 0..100 {
            context = json!([context]);
        }
        let deep = Write::Create(NewBreadcrumb::new("answer.v1").context(context));

        assert_eq!(of(&lease(0), &[deep]), None);
    }

    #[test]
    fn what_an_executor_saves_is_no_response() {
        let states = [json!({"n": 1}), json!([FIELD]), json!(FIELD), json!(null)];

        assert!(states.into_iter().all(|state| !is_one(&state.into())));
        assert_eq!(response(&lease(0), &json!({FIELD: 7}).into()), None);
        assert_eq!(response(&lease(0), &json!({FIELD: "{}"}).into()), None);
    }
}
