//! Hostile JSON in every operation of both stores. Both stores save accepted JSON in the same form and refuse other JSON with the same
//! error, and a refusal changes nothing.

use crate::sqlite::{Folder, quick};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use std::fmt::Debug;
use universal_executor::store::{
    Claim, Claimed, Commit, DeadLetter, FailureClass, Lease, RunEnd, RunLedger, RunRef, Saved,
    StoreError, Wake,
};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, Json, MemoryStore, NewBreadcrumb,
    Patch, Selector, SqliteStore,
};

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

/// Returns unchecked JSON from an event, or `None` if the text is not JSON.
fn unchecked(text: &str) -> Option<Json> {
    let frame = format!(
        r#"{{"type":"breadcrumb.created","breadcrumb_id":"01890a5d-ac96-774b-bcce-b302099a8057","version":1,
            "updated_at":"2026-11-21T20:33:40Z","context":{text}}}"#
    );
    serde_json::from_str::<Event>(&frame).ok()?.context
}

/// Returns the result of a write as text: the stored JSON and its value, or the error.
fn told(written: Result<String, StoreError>) -> String {
    written.unwrap_or_else(|error| format!("{error}: {error:?}"))
}

fn kept(json: &Json) -> String {
    format!("{json} {:?} {} bytes", &**json, json.size())
}

fn of_breadcrumb(breadcrumb: &Breadcrumb) -> String {
    let hints = breadcrumb.llm_hints.as_ref().map(kept);
    format!("{} {hints:?}", kept(&breadcrumb.context))
}

/// Writes JSON through every operation of a store. Returns the result of each operation.
async fn doors(store: &(impl BreadcrumbStore + RunLedger), json: &Json) -> Vec<String> {
    let safe = store
        .create(note().context(json!({"safe": 1})))
        .await
        .unwrap();
    let mut all = Vec::new();
    for new in [note().context(json.clone()), note().llm_hints(json.clone())] {
        let created = match store.create(new).await {
            Ok(created) => store.get(created.id).await,
            Err(error) => Err(error),
        };
        all.push(told(created.map(|created| of_breadcrumb(&created))));
    }
    let mut version = 1;
    for patch in [
        Patch::new().context(json.clone()),
        Patch::new().llm_hints(json.clone()),
    ] {
        let updated = store.update(safe.id, version, patch).await;
        version += u64::from(updated.is_ok());
        let there = store.get(safe.id).await.unwrap();
        assert_eq!(
            there.version, version,
            "a refused patch must change nothing"
        );
        all.push(told(updated.map(|_| of_breadcrumb(&there))));
    }
    all.extend(runs(store, RunRef::new("agent", safe.id, version), json).await);
    all
}

/// Writes JSON through the ledger: as a saved state, as the state of a suspension, and as the creator of a dead letter.
async fn runs(store: &(impl BreadcrumbStore + RunLedger), run: RunRef, json: &Json) -> Vec<String> {
    let mut all = Vec::new();
    let (lease, _) = claimed(store, &run).await;
    let saved = store.save(&lease, json.clone()).await;
    store.release(lease).await.unwrap();
    let (lease, state) = claimed(store, &run).await;
    all.push(told(saved.map(|()| state_of(state))));

    let end = |lease: &Lease, end| Commit {
        writes: Vec::new(),
        end: Some((lease.clone(), end)),
    };
    let waits = RunEnd::Suspended {
        wake: Wake::on(Selector::any()),
        state: json.clone(),
    };
    let suspended = store.commit(end(&lease, waits)).await.map(drop);
    let (lease, state) = match &suspended {
        Ok(()) => {
            store.resume(&run, run.trigger_id).await.unwrap();
            claimed(store, &run).await
        }
        // A refused end changes nothing, so the lease is still valid.
        Err(_) => (lease, None),
    };
    all.push(told(suspended.map(|()| state_of(state))));

    let mut letter = DeadLetter::new(FailureClass::Permanent, "error", 1);
    letter.creator = json.clone();
    let failed = store.commit(end(&lease, RunEnd::Failed(letter))).await;
    let is_over = failed.is_ok();
    all.push(told(
        failed.map(|failed| kept(&json_of(&failed.written[0]))),
    ));
    if !is_over {
        store.commit(end(&lease, RunEnd::Done)).await.unwrap();
    }
    all
}

/// Returns the creator in a dead letter.
fn json_of(letter: &Breadcrumb) -> Json {
    letter.context["creator"].clone().into()
}

fn state_of(state: Option<Saved>) -> String {
    state.map(|saved| kept(&saved.state)).unwrap_or_default()
}

async fn claimed(store: &impl RunLedger, run: &RunRef) -> (Lease, Option<Saved>) {
    match store.claim(run, None).await.unwrap() {
        Claim::Granted(Claimed { lease, state, .. }) => (lease, state),
        other => panic!("expected a granted claim, got {other:?}"),
    }
}

/// Writes JSON to both stores. Fails unless the results are equal, and returns them.
async fn both(
    file: &SqliteStore,
    memory: &MemoryStore,
    json: &Json,
    what: &dyn Debug,
) -> Vec<String> {
    let wanted = doors(memory, json).await;
    assert_eq!(doors(file, json).await, wanted, "{what:?}");
    wanted
}

fn deep(levels: usize, open: &str, close: &str) -> String {
    format!("{}1{}", open.repeat(levels), close.repeat(levels))
}

/// Returns JSON that both stores accept, with its stored form.
fn kept_texts() -> Vec<(String, String)> {
    let mut texts: Vec<(String, String)> = [
        (r#"{"nul":"a\u0000b"}"#, "{\"nul\":\"a\u{FFFD}b\"}"),
        (r#""\u0000""#, "\"\u{FFFD}\""),
        (r#"{"a\u0000":1}"#, "{\"a\u{FFFD}\":1}"),
        (r#"{"\u0000":1,"\ufffd":2}"#, "{\"\u{FFFD}\":2}"),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        (
            r#"{"a":{"b":1,"b":[]},"a":{"b":1,"b":{}}}"#,
            r#"{"a":{"b":{}}}"#,
        ),
        (r#"{"":{"":""}}"#, r#"{"":{"":""}}"#),
        (
            "{ \"spaced\" :\r\n [1 , 2.0, 1E2, -0.0, 1e-400] }",
            r#"{"spaced":[1,2.0,100.0,-0.0,0.0]}"#,
        ),
    ]
    .map(|(text, form)| (text.to_owned(), form.to_owned()))
    .to_vec();
    let same = [
        r#"{"pair":"\ud83d\ude00"}"#,
        "\"\u{FFFF}\u{10FFFF}\u{FEFF}\u{2028}\u{7F}\"",
        r#""\uffff\u0001\u001f\\\"\/""#,
        r#"{"$":{"'":"\"\\"},"--":"; DROP TABLE ux_runs","?1":"%_"}"#,
        "[18446744073709551615,18446744073709551616,-9223372036854775808,-9223372036854775809]",
        "[0.1,5e-324,2.2250738585072011e-308,1.7976931348623157e308,9007199254740993,1e23]",
        "null",
        "\"\"",
        "[]",
    ];
    let mut same = same.map(str::to_owned).to_vec();
    same.push(format!("\"{}\"", "\u{FFFF}\u{FFFE}".repeat(1_000)));
    same.extend([
        "1".repeat(300),
        format!("0.{}1", "0".repeat(5_000)),
        format!("{}e-5000", "9".repeat(5_000)),
        format!("{}.5", "1".repeat(309)),
        deep(63, "[", "]"),
        deep(64, "[", "]"),
        deep(64, "{\"k\":", "}"),
    ]);
    texts.extend(same.into_iter().map(|text| (text.clone(), text)));
    texts
}

/// Returns JSON that both stores refuse.
fn refused_texts() -> Vec<String> {
    let mut texts = [
        "1e400",
        "-1e400",
        "[1,[1e999999999999]]",
        r#""\ud800""#,
        r#""\udc00\ud800""#,
        r#"{"\ud800":1}"#,
        r#"{"a":"\udfff","a":1}"#,
        r#"{"$serde_json::private::RawValue":"[1]"}"#,
        r#"[{"a":1,"\u0024serde_json::private::RawValue":"{}"}]"#,
    ]
    .map(str::to_owned)
    .to_vec();
    texts.extend([
        "1".repeat(310),
        deep(65, "[", "]"),
        deep(65, "{\"k\":", "}"),
        deep(33, "[{\"k\":", "}]"),
        // The first of two equal keys is deep, and the last one would be stored.
        format!("{{\"a\":{},\"a\":1}}", deep(64, "[", "]")),
        deep(20_000, "[", "]"),
        deep(20_000, "{\"k\":", "}"),
    ]);
    texts
}

#[tokio::test]
async fn accepted_json_is_stored_in_one_form() {
    let (folder, memory) = (Folder::new(), MemoryStore::default());
    let file = quick(&folder.file()).open().await.unwrap();
    for (text, form) in kept_texts() {
        // An event with a `null` context has no context.
        let json = unchecked(&text).unwrap_or_default();
        let what = text.chars().take(80).collect::<String>();

        let said = both(&file, &memory, &json, &what).await;

        for said in [&said[0], &said[2], &said[4], &said[5]] {
            assert!(said.starts_with(&format!("{form} ")), "{what}: {said}");
        }
    }
}

#[tokio::test]
async fn refused_json_is_refused_by_every_operation() {
    let (folder, memory) = (Folder::new(), MemoryStore::default());
    let file = quick(&folder.file()).open().await.unwrap();
    for text in refused_texts() {
        let json = unchecked(&text).unwrap();
        let what = text.chars().take(80).collect::<String>();

        let said = both(&file, &memory, &json, &what).await;

        for said in &said {
            assert!(said.contains("see the cause: Rejected"), "{what}: {said}");
        }
        assert!(Json::from_text(text).is_err(), "{what}");
    }
}

#[tokio::test]
async fn values_without_a_source_string_are_refused_in_the_same_way() {
    let (folder, memory) = (Folder::new(), MemoryStore::default());
    let file = quick(&folder.file()).open().await.unwrap();
    for levels in [63, 64, 65, 20_000] {
        let nested = (0..levels).fold(json!("\0"), |inside, _| Value::Array(vec![inside]));

        let said = both(&file, &memory, &nested.into(), &levels).await;

        assert_eq!(
            said[0].contains("TooDeep"),
            levels > 64,
            "{levels}: {}",
            said[0]
        );
    }
    let large = json!("x".repeat(Json::MAX_BYTES));
    for said in both(&file, &memory, &large.into(), &"large").await {
        assert!(said.contains("TooLarge"), "{said}");
    }
}

#[test]
fn bytes_that_are_not_utf_8_are_refused_before_they_reach_a_store() {
    for bytes in [
        &b"\xff"[..],
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"a\xe2\x82",
    ] {
        for field in ["context", "llm_hints", "title", "schema_name"] {
            let body = [format!("{{\"{field}\":\"").as_bytes(), bytes, b"\"}"].concat();

            assert!(
                serde_json::from_slice::<NewBreadcrumb>(&body).is_err(),
                "{field}: {bytes:?}"
            );
            assert!(
                serde_json::from_slice::<Patch>(&body).is_err(),
                "{field}: {bytes:?}"
            );
        }
    }
}

/// Unusual numbers, strings and keys.
const LEAVES: [&str; 21] = [
    "0",
    "-0",
    "-0.0",
    "1e400",
    "-1e400",
    "1E+2",
    "1.0",
    "0.1",
    "18446744073709551616",
    "1e-400",
    "123456789012345678901234567890.5",
    "null",
    "true",
    "\"\"",
    r#""\u0000""#,
    r#""\ud800""#,
    r#""\ud83d\ude00""#,
    r#""\uffff""#,
    "\"\u{FFFF}\"",
    r#""\n\t""#,
    "\"\u{2028}'--\"",
];
const KEYS: [&str; 6] = ["a", "", r"\u0000", r"\ufffd", r"\ud800", "\u{FFFF}"];
const SPACES: [&str; 4] = ["", " ", "\n", "\r\n\t"];

/// Generates JSON from these parts.
fn text() -> impl Strategy<Value = String> {
    let leaf = select(LEAVES.to_vec()).prop_map(str::to_owned);
    leaf.prop_recursive(70, 90, 3, |inner| {
        let space = || select(SPACES.to_vec());
        let field = (select(KEYS.to_vec()), inner.clone(), space());
        let field = field.prop_map(|(key, value, space)| format!("\"{key}\":{space}{value}"));
        prop_oneof![
            3 => (vec(inner, 0..3), space()).prop_map(|(items, space)| format!("[{}{space}]", items.join(","))),
            2 => (vec(field, 0..3), space()).prop_map(|(fields, space)| format!("{{{space}{}}}", fields.join(","))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn both_stores_accept_or_refuse_any_json_in_the_same_way(texts in vec(text(), 1..16)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (folder, memory) = (Folder::new(), MemoryStore::default());
            let file = quick(&folder.file()).open().await.unwrap();
            for text in texts {
                if let Some(json) = unchecked(&text) {
                    both(&file, &memory, &json, &text).await;
                }
            }
        });
    }
}
