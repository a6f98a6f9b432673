//! Reads and searches: incomplete lists, foreign rows, and the cost of a search.

use super::server::{Fault, Match, Server, token_of};
use super::{OWNER, THEIRS, builder, store};
use serde_json::json;
use std::error::Error;
use std::time::Duration;
use tokio::time::timeout;
use universal_executor::model::Timestamp;
use universal_executor::store::{Query, StoreError, VectorQuery};
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Patch, Selector};

const LIST: Match = Match("GET", "/breadcrumbs");
const FULL: Match = Match("GET", "/full");
const SOON: Duration = Duration::from_secs(20);

fn note(n: usize) -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1").context(json!({"n": n}))
}

/// Returns an error and all its sources as text.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

#[tokio::test]
async fn a_foreign_breadcrumb_in_a_list_is_omitted_and_read_only_once() {
    let server = Server::start().await;
    let (ours, theirs) = (store(&server), builder(&server, THEIRS).build().unwrap());
    for n in 0..5 {
        theirs.create(note(n)).await.unwrap();
    }
    let kept = ours.create(note(9)).await.unwrap();
    let before = server.seen("GET", "/breadcrumbs/").len();

    let found = [(); 2].map(|()| Query::new(Selector::schema("note.v1")));
    for query in found {
        assert_eq!(
            ours.search(&query).await.unwrap(),
            std::slice::from_ref(&kept)
        );
    }

    // Five requests find breadcrumbs of another owner, and two read our own breadcrumb.
    assert_eq!(server.seen("GET", "/breadcrumbs/").len() - before, 7);
    let foreign = theirs.latest("note.v1").await.unwrap().unwrap();
    assert!(matches!(
        ours.get(foreign.id).await,
        Err(StoreError::NotFound { .. })
    ));
}

#[tokio::test]
async fn a_search_result_contains_hints_that_lists_omit() {
    let store = store(&Server::start().await);
    let hints = json!({"include": ["n"]});
    store
        .create(note(1).llm_hints(hints.clone()))
        .await
        .unwrap();

    let found = store.latest("note.v1").await.unwrap().unwrap();

    assert_eq!(found.llm_hints, Some(hints.into()));
}

#[tokio::test]
async fn a_query_sends_the_schema_and_the_most_selective_tag() {
    let server = Server::start().await;
    let selector = Selector::schema("note.v1").all_tags(["workspace:tools", "request:1"]);

    store(&server).search(&Query::new(selector)).await.unwrap();

    let asked = server.seen("GET", "/breadcrumbs").remove(0);
    assert_eq!(asked.query["tag"], "request:1");
    assert_eq!(asked.query["schema_name"], "note.v1");
}

#[tokio::test]
async fn a_search_that_would_look_at_too_much_is_an_error_and_no_half_answer() {
    let server = Server::start().await;
    let store = builder(&server, OWNER).max_scanned(50).build().unwrap();
    for n in 0..60 {
        store.create(note(n)).await.unwrap();
    }

    let first = Query::new(Selector::schema("note.v1").matching("n", "eq", 0)).limit(1);
    let error = store.search(&first).await.unwrap_err();
    let last = Query::new(Selector::schema("note.v1").matching("n", "eq", 59)).limit(1);

    assert!(
        matches!(
            error,
            StoreError::TooFar {
                looked_at: 50..,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(store.search(&last).await.unwrap().len(), 1);
}

#[tokio::test]
async fn rows_that_are_written_while_a_list_is_read_do_not_hide_how_far_it_was_read() {
    let server = Server::start().await;
    let store = builder(&server, OWNER).max_scanned(40).build().unwrap();
    let mut notes = Vec::new();
    for n in 0..100 {
        notes.push(store.create(note(n)).await.unwrap());
    }
    let second_page = Fault::Before(|state| {
        for _ in 0..60 {
            let new = json!({"schema_name": "note.v1", "context": {"n": 1}});
            state.crumbs.create(OWNER, &new);
        }
    });
    server.fail(LIST, Fault::Before(|_| {}));
    server.fail(LIST, second_page);
    let first = Selector::schema("note.v1").matching("n", "eq", 0);
    let query = Query::new(first)
        .limit(1)
        .before(notes[99].order_key())
        .after(Timestamp::UNIX_EPOCH);

    let error = store.search(&query).await.unwrap_err();

    let StoreError::Partial(part) = error else {
        panic!("{error}");
    };
    // The first page has 20 rows.
    let read_to = notes[80].updated_at.as_micros();
    assert_eq!(part.next.unwrap().0.as_micros(), read_to + 1);
    assert!(part.found.is_empty() && part.unread.is_empty());
}

#[tokio::test]
async fn deletions_and_changes_between_pages_hide_no_breadcrumb() {
    let server = Server::start().await;
    let store = store(&server);
    for n in 0..100 {
        store.create(note(n)).await.unwrap();
    }
    server.fail(LIST, Fault::Before(|_| {}));
    server.fail(
        LIST,
        Fault::Before(|state| {
            let all: Vec<String> = state
                .crumbs
                .newest_first()
                .map(|one| one["id"].as_str().unwrap().to_owned())
                .collect();
            for gone in &all[..5] {
                state.crumbs.remove(gone);
            }
            state.crumbs.patch(&all[90], &json!({"title": "changed"}));
        }),
    );

    let found = store
        .search(&Query::new(Selector::schema("note.v1")).limit(500))
        .await
        .unwrap();

    let mut numbers: Vec<u64> = found
        .iter()
        .map(|one| one.context["n"].as_u64().unwrap())
        .collect();
    numbers.sort_unstable();
    // The lists contained the newest five breadcrumbs before they were deleted, so reading them in full fails.
    let wanted: Vec<u64> = (0..95).collect();
    assert!(wanted.iter().all(|n| numbers.contains(n)), "{numbers:?}");
    assert_eq!(found[0].title, "changed");
}

#[tokio::test]
async fn an_unreadable_breadcrumb_is_an_error_on_its_own_and_hides_no_other() {
    let server = Server::start().await;
    let store = store(&server);
    let poisoned = store.create(note(1)).await.unwrap();
    let healthy = store.create(note(2)).await.unwrap();
    let deep = (0..100).fold(json!(1), |inside, _| json!([inside]));
    server
        .lock()
        .crumbs
        .set(&poisoned.id.to_string(), "context", deep);

    let found = store.recent("note.v1", 10).await.unwrap();
    let error = store.get(poisoned.id).await.unwrap_err();

    assert_eq!(found, [healthy]);
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
}

#[tokio::test]
async fn a_read_that_fails_for_a_moment_is_tried_again() {
    let server = Server::start().await;
    let store = store(&server);
    let kept = store.create(note(1)).await.unwrap();

    for fault in [
        Fault::Refuse(500, "oops"),
        Fault::Close,
        Fault::Refuse(429, "slow down"),
    ] {
        server.fail(FULL, fault);
        assert_eq!(store.get(kept.id).await.unwrap(), kept);
    }
    for _ in 0..3 {
        server.fail(FULL, Fault::Refuse(503, "down for maintenance"));
    }
    let error = store.get(kept.id).await.unwrap_err();

    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(
        chain(&error).contains("503: down for maintenance"),
        "{}",
        chain(&error)
    );
}

#[tokio::test]
async fn a_server_error_message_is_truncated_and_the_token_is_removed() {
    let server = Server::start().await;
    let store = store(&server);
    let id = store.create(note(1)).await.unwrap().id;
    let said: &'static str =
        Box::leak(format!("{} {}", token_of(OWNER), "x".repeat(9_000)).into_boxed_str());
    server.fail(FULL, Fault::Refuse(400, said));

    let error = store.get(id).await.unwrap_err();

    let text = format!("{} {error:?}", chain(&error));
    assert!(matches!(error, StoreError::Refused { .. }), "{text}");
    assert!(text.contains("400") && text.len() < 2_000, "{text}");
    assert!(!text.contains(&token_of(OWNER)), "{text}");
}

#[tokio::test]
async fn an_answer_without_end_or_sense_is_refused() {
    let server = Server::start().await;
    let store = store(&server);
    let id = store.create(note(1)).await.unwrap().id;

    for body in [
        vec![b' '; 9 << 20],
        b"<html>".to_vec(),
        b"{}".to_vec(),
        Vec::new(),
        vec![b'['; 100_000],
    ] {
        server.fail(FULL, Fault::Say(body));
        let error = store.get(id).await.unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::Refused { .. } | StoreError::Unavailable { .. }
            ),
            "{error:?}"
        );
    }
    server.fail(LIST, Fault::Say(b"{}".to_vec()));
    assert!(store.recent("note.v1", 1).await.is_err());
}

#[tokio::test]
async fn a_list_whose_rows_are_large_is_read_in_smaller_pages() {
    let server = Server::start().await;
    let store = builder(&server, OWNER)
        .max_list_bytes(40_000)
        .build()
        .unwrap();
    for n in 0..45 {
        let large = json!({"n": n, "text": "x".repeat(10_000)});
        store
            .create(NewBreadcrumb::new("note.v1").context(large))
            .await
            .unwrap();
    }

    let found = store.recent("note.v1", 45).await.unwrap();

    assert_eq!(found.len(), 45);
}

#[tokio::test]
async fn an_oversized_row_is_skipped_and_the_other_rows_are_read() {
    let server = Server::start().await;
    let store = builder(&server, OWNER)
        .max_list_bytes(40_000)
        .build()
        .unwrap();
    // Two rows of 25,000 bytes do not fit into one answer, and a row of 50,000 bytes fits into no answer.
    for (n, bytes) in [
        (0, 25_000),
        (1, 25_000),
        (2, 50_000),
        (3, 50_000),
        (4, 25_000),
        (5, 9),
    ] {
        let large = json!({"n": n, "text": "x".repeat(bytes)});
        let new = NewBreadcrumb::new("note.v1").context(large);
        store.create(new).await.unwrap();
    }

    let found = timeout(SOON, store.recent("note.v1", 10)).await.unwrap();

    let found = found.unwrap();
    let numbers: Vec<_> = found.iter().map(|one| &one.context["n"]).collect();
    assert_eq!(numbers, [5, 4, 1, 0]);
}

#[tokio::test]
async fn an_oversized_row_that_arrives_between_pages_hides_no_other_new_row() {
    let server = Server::start().await;
    let store = builder(&server, OWNER).max_list_bytes(40_000);
    let store = store.build().unwrap();
    for n in 0..30 {
        store.create(note(n)).await.unwrap();
    }
    server.fail(LIST, Fault::Before(|_| {}));
    server.fail(
        LIST,
        Fault::Before(|state| {
            for (n, bytes) in [(30, 10), (31, 60_000), (32, 10), (33, 60_000)] {
                let large = json!({"n": n, "text": "x".repeat(bytes)});
                let new = json!({"schema_name": "note.v1", "context": large});
                state.crumbs.create(OWNER, &new);
            }
        }),
    );

    let found = timeout(SOON, store.recent("note.v1", 500)).await.unwrap();

    let mut numbers: Vec<_> = found
        .unwrap()
        .iter()
        .map(|one| one.context["n"].as_u64().unwrap())
        .collect();
    numbers.sort_unstable();
    let wanted: Vec<u64> = (0..=30).chain([32]).collect();
    assert_eq!(numbers, wanted);
}

#[tokio::test]
async fn a_server_whose_lists_are_always_too_large_is_an_error() {
    let server = Server::start().await;
    let store = builder(&server, OWNER)
        .max_list_bytes(1_000)
        .max_scanned(500)
        .build()
        .unwrap();
    for _ in 0..100 {
        server.fail(LIST, Fault::Say(vec![b' '; 2_000]));
    }

    let error = store.recent("note.v1", 10).await.unwrap_err();

    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    assert!(server.seen("GET", "/breadcrumbs").len() < 10);
}

#[tokio::test]
async fn by_meaning_comes_the_nearest_first_without_scores_and_within_the_selector() {
    let server = Server::start().await;
    let (store, theirs) = (store(&server), builder(&server, THEIRS).build().unwrap());
    for (schema, text) in [
        ("note.v1", "tea"),
        ("note.v1", "green tea"),
        ("other.v1", "green tea"),
        ("note.v1", "ink"),
    ] {
        store
            .create(NewBreadcrumb::new(schema).context(json!({"text": text})))
            .await
            .unwrap();
    }
    theirs
        .create(NewBreadcrumb::new("note.v1").context(json!({"text": "green tea"})))
        .await
        .unwrap();
    let query = VectorQuery::new(
        Query::new(Selector::schema("note.v1")).limit(2),
        "green tea",
    );

    let found = store.vector_search(&query).await.unwrap();
    let scored = store.vector_search(&query.min_score(0.5)).await;

    let texts: Vec<_> = found
        .iter()
        .map(|one| one.breadcrumb.context.text("text").unwrap())
        .collect();
    assert_eq!(texts, ["green tea", "tea"]);
    assert!(found.iter().all(|one| one.score.is_none()));
    assert!(
        matches!(scored, Err(StoreError::Unsupported { .. })),
        "{scored:?}"
    );
}

#[tokio::test]
async fn an_update_returns_the_written_version_despite_a_later_change() {
    let server = Server::start().await;
    let store = store(&server);
    let created = store.create(note(1)).await.unwrap();
    server.fail(FULL, Fault::Before(|_| {}));
    server.fail(
        FULL,
        Fault::Before(|state| {
            let id = state.crumbs.newest_first().next().unwrap()["id"]
                .as_str()
                .unwrap()
                .to_owned();
            state.crumbs.patch(&id, &json!({"context": {"n": 3}}));
        }),
    );

    let updated = store
        .update(created.id, 1, Patch::new().context(json!({"n": 2})))
        .await
        .unwrap();

    assert_eq!((updated.version, &updated.context["n"]), (2, &json!(2)));
    assert_eq!(store.get(created.id).await.unwrap().version, 3);
}
