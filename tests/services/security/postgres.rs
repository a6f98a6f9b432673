//! Hostile names and strings.

use crate::postgres::server::Namespaces;
use serde_json::json;
use universal_executor::source::StartAt;
use universal_executor::store::{Claim, Claimed, Query, RunFilter, RunLedger, RunRef};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, EventSource, NewBreadcrumb, Selector,
};

/// Strings that could break SQL, text without U+0000, or escapes.
const NASTY: [&str; 6] = [
    "a\0",
    "a\u{1A}0",
    "'; DROP TABLE ux_runs; --",
    "$1 \\ \" {,}",
    "NULL",
    "\u{FFFD}\u{10FFFF}",
];

#[tokio::test]
async fn names_with_any_characters_are_distinct_and_read_back_unchanged() {
    let namespaces = Namespaces::default();
    let store = namespaces.builder().connect().await.unwrap();
    let trigger = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();

    for name in NASTY {
        let run = RunRef::new(name, trigger.id, 1).ordered_by(Some(name));
        let claim = store.claim(&run, None).await.unwrap();
        assert!(
            matches!(claim, Claim::Granted(Claimed { attempt: 1, .. })),
            "{name:?}: {claim:?}"
        );
        let rows = store.runs(&RunFilter::all().executor(name)).await.unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (&*rows[0].run.executor, rows[0].run.order.as_deref()),
            (name, Some(name))
        );
        let apart = store.in_tenant(name);
        let made = apart.create(NewBreadcrumb::new("other.v1")).await.unwrap();
        assert_eq!(
            apart.search(&Query::new(Selector::any())).await.unwrap(),
            [made]
        );
        drop(store.events_of(name).subscribe(StartAt::Now).await.unwrap());
    }
    assert_eq!(
        store.runs(&RunFilter::all()).await.unwrap().len(),
        NASTY.len()
    );
}

#[tokio::test]
async fn strings_with_any_characters_are_found_by_exact_search() {
    let namespaces = Namespaces::default();
    let store = namespaces.builder().connect().await.unwrap();

    for text in NASTY {
        let new = NewBreadcrumb::new(text)
            .tags([text, text, ""])
            .title(text)
            .context(json!({text: text}));
        let made = store.create(new).await.unwrap();
        assert_eq!(store.get(made.id).await.unwrap(), made);
        let kept = text.replace('\0', "\u{FFFD}");
        for selector in [
            Selector::schema(&*kept),
            Selector::any().all_tags([&*kept]),
            Selector::any().any_tags([&*kept, "none"]),
        ] {
            assert_eq!(
                store.search(&Query::new(selector)).await.unwrap(),
                std::slice::from_ref(&made),
                "{text:?}"
            );
        }
        let asked = Query::new(Selector::schema("a\0").any_tags(["b\0"]).all_tags(["c\0"]));
        assert_eq!(store.search(&asked).await.unwrap(), []);
    }
}
