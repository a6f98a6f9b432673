//! JSON at the edges is kept, refused and read as by the store in memory.

use crate::{Folder, quick};
use serde_json::{Value, json};
use universal_executor::store::{Query, StoreError};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, Event, Json, MemoryStore, NewBreadcrumb, Patch, Selector,
};

/// Contexts as text: some are kept as they are, some in another form, some refused.
fn texts() -> Vec<String> {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let mut texts: Vec<String> = [
        r#"{"a":1,"a":2}"#,
        "{ \"spaced\" :\n [1 , 2.0, 1E2, -0.0, 1e-400] }",
        r#"{"nul":"\u0000","\u0000":1}"#,
        r#""a\u0000b""#,
        r#"{"pair":"\ud83d\ude00"}"#,
        r#"{"lone":"\ud800"}"#,
        r#"{"huge":1e400}"#,
        r#"[18446744073709551615,18446744073709551616,-9223372036854775808,0.1]"#,
        "null",
        "\"\u{2028}\u{FEFF}\"",
        r#"{"$":{"'":"\"\\"},"--":"; DROP TABLE ux_runs"}"#,
    ]
    .map(str::to_owned)
    .to_vec();
    texts.extend([deep(64), deep(65), deep(1_000)]);
    texts
}

/// What a store makes of a context: what it reads back, or how it refuses it.
async fn made_of(store: &impl BreadcrumbStore, text: &str) -> Result<(String, Value), String> {
    // An event carries a context that nobody has checked.
    let frame = format!(
        r#"{{"type":"breadcrumb.created","breadcrumb_id":"01890a5d-ac96-774b-bcce-b302099a8057","version":1,
            "updated_at":"2026-11-21T20:33:40Z","context":{text}}}"#
    );
    let event: Event = serde_json::from_str(&frame).unwrap();
    let context = event.context.unwrap_or_default();
    let created = store
        .create(NewBreadcrumb::new("note.v1").context(context.clone()))
        .await;
    let created = created.map_err(|error| format!("{error:?}"))?;
    let updated = store
        .update(created.id, 1, Patch::new().context(context))
        .await;
    let id = updated.map_err(|error| format!("{error:?}"))?.id;
    let read = store.get(id).await.map_err(|error| format!("{error:?}"))?;
    Ok((read.context.to_string(), (*read.context).clone()))
}

#[tokio::test]
async fn what_memory_keeps_the_file_keeps_and_what_memory_refuses_it_refuses() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let memory = MemoryStore::default();
    for text in texts() {
        assert_eq!(
            made_of(&store, &text).await,
            made_of(&memory, &text).await,
            "{text}"
        );
    }
    let refused = store
        .create(NewBreadcrumb::new("note.v1").context(json!("x".repeat(2 << 20))))
        .await;
    assert!(matches!(refused, Err(StoreError::Rejected { .. })));
}

#[tokio::test]
async fn what_is_read_stays_text_until_somebody_looks() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let text = r#"{"b": 1, "a": [1.0, 1E2]}"#;
    let new = NewBreadcrumb::new("note.v1").context(Json::from_text(text).unwrap());

    let written = store.create(new).await.unwrap();

    assert_eq!(
        store.get(written.id).await.unwrap().context.to_string(),
        text
    );
}

#[tokio::test]
async fn names_may_hold_any_character() {
    let folder = Folder::new();
    let odd = "'\"; -- \\ \u{0} %_? \u{1F600}";
    let store = quick(&folder.file()).open().await.unwrap().in_tenant(odd);

    let written = store
        .create(NewBreadcrumb::new("a'b").tag("%").tag("t?1").title(odd))
        .await
        .unwrap();

    for (tag, found) in [("%", 1), ("t?1", 1), ("_", 0)] {
        let tagged = Query::new(Selector::schema("a'b").all_tags([tag]));
        let read = store.search(&tagged).await.unwrap();
        assert_eq!(read.len(), found, "{tag}");
        assert!(read.iter().all(|read| *read == written), "{read:?}");
    }
}
