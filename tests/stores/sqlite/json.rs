//! JSON is stored as text, and names with SQL are stored as data.

use crate::sqlite::{Folder, quick};
use universal_executor::store::Query;
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, Json, NewBreadcrumb, Selector};

#[tokio::test]
async fn a_context_is_read_back_as_the_original_string() {
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
