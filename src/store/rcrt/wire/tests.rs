use super::*;
use proptest::prelude::*;
use serde_json::json;

const LIST: &str = r#"[
    {"id": "01890a5d-ac96-774b-bcce-b302099a8057", "title": "a", "tags": ["x"], "schema_name": "note.v1", "version": 2,
     "updated_at": "2026-11-21T20:33:40.535554Z", "context": {"n": 1}, "description": null, "llm_hints": null},
    {"id": "01890a5d-ac96-774b-bcce-b302099a8058", "title": "b", "tags": [], "version": 1,
     "updated_at": "2026-11-21T20:33:39Z", "context": {"n": 1e400}},
    {"id": "01890a5d-ac96-774b-bcce-b302099a8059", "title": "c", "tags": null, "schema_name": null, "version": 1,
     "updated_at": "2026-11-21T20:33:38Z"}
]"#;

#[test]
fn an_unreadable_row_is_omitted_and_counted() {
    let (rows, count) = rows(LIST.as_bytes()).unwrap();

    let titles: Vec<&str> = rows.iter().map(|row| &*row.breadcrumb.title).collect();
    assert_eq!((titles, count), (vec!["a", "c"], 3));
    assert_eq!(rows[0].breadcrumb.version, 2);
    assert_eq!(rows[0].breadcrumb.context["n"], 1);
}

#[test]
fn the_body_of_a_write_has_enums_in_lower_case_and_no_author() {
    let new = NewBreadcrumb::new("note.v1").created_by("ann");
    let patch = Patch::new().title("b").updated_by("ann");

    let (new, patch) = (create_body(&new).unwrap(), patch_body(&patch).unwrap());

    let new: Value = serde_json::from_str(&new).unwrap();
    assert_eq!(
        (&new["visibility"], &new["sensitivity"]),
        (&json!("team"), &json!("low"))
    );
    assert_eq!(new.get("created_by"), None);
    assert_eq!(patch, r#"{"title":"b"}"#);
}

#[test]
fn a_patch_that_clears_a_field_is_detected() {
    assert_eq!(unsupported_clearing(&Patch::new().context(json!({}))), None);
    assert!(unsupported_clearing(&Patch::new().context(json!(null))).is_some());
    assert!(unsupported_clearing(&Patch::new().llm_hints(json!(null))).is_some());
}

#[test]
fn a_version_created_by_a_patch_is_recognised_for_any_author() {
    let before =
        NewBreadcrumb::new("note.v1").first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
    let patch = Patch::new().context(json!({"n": 1}));
    let mut after = before.patched(patch.clone(), Timestamp::from_micros(7));
    after.updated_by = Some("somebody".to_owned());

    assert!(is_result_of(&after, &before, &patch));
    assert!(!is_result_of(
        &after,
        &before,
        &Patch::new().context(json!({"n": 2}))
    ));
    assert!(!is_result_of(&before, &before, &patch));
}

/// Byte strings that resemble responses of the server.
fn answer() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            LIST,
            "[",
            "]",
            "{",
            "}",
            ",",
            "{\"id\":",
            "\"01890a5d-ac96-774b-bcce-b302099a8057\"",
            "\"version\":",
            "1",
            "1e400",
            "\"\\ud800\"",
            "null",
            "\"context\":",
            "[[[[[[",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..8),
    ];
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(crate::fuzz::config())]

    #[test]
    fn any_bytes_are_read_or_refused(text in answer(), depth in 0_usize..5_000) {
        let nested = [vec![b'['; depth], text.clone(), vec![b']'; depth]].concat();
        for text in [text, nested] {
            if let Ok((rows, count)) = rows(&text) {
                prop_assert!(rows.len() <= count);
            }
            if let Ok(full) = full(&text) {
                prop_assert!(full.context.size() <= text.len() * 6);
            }
            created(&text).ok();
        }
    }
}

fn server_answer(tape: &mut crate::fuzz::Tape) -> crate::fuzz::Bytes {
    let text = crate::fuzz::SERVER_ANSWER.text(tape);
    crate::fuzz::bytes(tape, &text)
}

fn is_read_or_refused(text: &crate::fuzz::Bytes) -> bool {
    let rows = rows(text);
    if let Ok((rows, count)) = &rows {
        assert!(rows.len() <= *count);
        for row in rows {
            assert!(row.breadcrumb.context.size() <= text.len());
        }
    }
    let full = full(text);
    if let Ok(full) = &full {
        let new = NewBreadcrumb::new("a").context(full.context.clone());
        let body = create_body(&new).unwrap();
        assert!(
            serde_json::from_str::<serde::de::IgnoredAny>(&body).is_ok(),
            "{full:?}"
        );
    }
    let created = created(text);
    rows.is_ok() || full.is_ok() || created.is_ok()
}

#[test]
fn any_answer_of_a_server_is_read_or_refused() {
    crate::fuzz::structured(server_answer, is_read_or_refused);
}
