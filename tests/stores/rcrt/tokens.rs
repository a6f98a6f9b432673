//! Tokens: they are requested and renewed, and appear in a header and nowhere else.

use super::server::{Fault, Match, Server, token_of};
use super::{OWNER, THEIRS, builder, store};
use crate::support::log::Log;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use universal_executor::error::Retry;
use universal_executor::source::{BearerToken, StartAt};
use universal_executor::store::{RcrtError, StoreError};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, EventSource as _, NewBreadcrumb, RcrtStore, Secret,
};

fn of_agent(server: &Server, agent: &str) -> RcrtStore {
    let builder = RcrtStore::builder(server.base_url(), OWNER)
        .agent(agent)
        .role("emitter");
    builder.build().unwrap()
}

/// Fails unless the error for refused credentials permits a retry after one minute.
fn expect_unauthorized(error: &StoreError) {
    let minute = Duration::from_secs(60);
    assert_eq!(error.retry(), Retry::After(minute), "{error:?}");
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("token"), "{cause}");
}

/// Returns an error and all its sources as text.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

#[tokio::test]
async fn an_error_names_the_request_the_status_and_the_words_of_the_server_or_the_cause() {
    let server = Server::start().await;
    let url = format!("{}/breadcrumbs", server.base_url());
    let store = store(&server);
    server.fail(
        Match("POST", "/breadcrumbs"),
        Fault::Refuse(401, "token expired"),
    );
    let refused = store.create(NewBreadcrumb::new("note.v1")).await;
    let unreachable = RcrtStore::builder("http://127.0.0.1:1", OWNER)
        .build()
        .unwrap();
    let closed = unreachable.latest("note.v1").await;

    let refused = chain(&refused.unwrap_err());
    for part in [
        &*format!("POST {url}"),
        "401",
        "token expired",
        "check the API token",
    ] {
        assert!(refused.contains(part), "{part} is not in {refused}");
    }
    let closed = chain(&closed.unwrap_err());
    for part in ["GET http://127.0.0.1:1/breadcrumbs", "refused"] {
        assert!(closed.contains(part), "{part} is not in {closed}");
    }
}

#[tokio::test]
async fn a_token_is_requested_once_and_sent_only_in_the_header() {
    let server = Server::start().await;
    let store = of_agent(&server, "agent-1");

    for _ in 0..3 {
        store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    }

    let asked = server.seen("POST", "/auth/token");
    assert_eq!(asked.len(), 1);
    let body = asked[0].json();
    assert_eq!(
        (&body["owner_id"], &body["agent_id"], &body["roles"][0]),
        (&OWNER.into(), &"agent-1".into(), &"emitter".into())
    );
    for seen in server
        .seen("POST", "/breadcrumbs")
        .iter()
        .chain(&server.seen("GET", "/breadcrumbs"))
    {
        let token = format!("issued:{OWNER}:1");
        assert_eq!(
            seen.header("authorization"),
            Some(&*format!("Bearer {token}"))
        );
        assert!(
            !seen.path.contains(&token) && !seen.query.values().any(|value| value.contains(&token))
        );
    }
    assert!(!format!("{store:?}").contains("issued:"));
}

#[tokio::test]
async fn a_token_that_the_server_refuses_is_renewed_once() {
    let server = Server::start().await;
    let store = of_agent(&server, "agent-1");
    store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    server.lock().expired.insert(format!("issued:{OWNER}:1"));

    store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    assert_eq!(server.seen("POST", "/auth/token").len(), 2);

    for n in 2..=3 {
        server.lock().expired.insert(format!("issued:{OWNER}:{n}"));
    }
    let error = store
        .create(NewBreadcrumb::new("note.v1"))
        .await
        .unwrap_err();
    expect_unauthorized(&error);
    assert_eq!(server.seen("POST", "/auth/token").len(), 3);
}

#[tokio::test]
async fn a_fixed_token_that_ended_is_an_error_that_does_not_have_it() {
    let server = Server::start().await;
    let store = store(&server);
    server.lock().expired.insert(token_of(OWNER));

    let error = store
        .create(NewBreadcrumb::new("note.v1"))
        .await
        .unwrap_err();

    expect_unauthorized(&error);
    assert!(!format!("{error} {error:?} {store:?}").contains(&token_of(OWNER)));
    assert_eq!(server.seen("POST", "/breadcrumbs").len(), 1);
}

#[tokio::test]
async fn a_refused_stream_reports_the_reason_without_the_token() {
    let server = Server::start().await;
    let said: &'static str = Box::leak(format!("invalid {}", token_of(OWNER)).into_boxed_str());
    for _ in 0..100 {
        server.fail(Match("GET", "/events/stream"), Fault::Refuse(401, said));
    }

    let error = store(&server)
        .events()
        .subscribe(StartAt::Now)
        .await
        .err()
        .unwrap();

    let text = format!("{error} {error:?} {error:#?}");
    assert!(text.contains("401") && text.contains("invalid"), "{text}");
    assert!(!text.contains(&token_of(OWNER)), "{text}");
}

#[tokio::test]
async fn a_token_that_comes_with_another_success_is_taken() {
    let server = Server::start().await;
    let answer = Fault::DoAndSay(201, r#"{"token": "issued:theirs:1"}"#);
    server.fail(Match("POST", "/auth/token"), answer);

    let found = of_agent(&server, "agent-1").latest("note.v1").await;

    assert_eq!(found.unwrap(), None);
    let listed = server.seen("GET", "/breadcrumbs").remove(0);
    assert_eq!(
        listed.header("authorization"),
        Some("Bearer issued:theirs:1")
    );
}

#[tokio::test]
async fn a_success_without_a_token_is_quoted_nowhere() {
    let server = Server::start().await;
    let answer = Fault::DoAndSay(203, r#"{"access_token": "s3cret"}"#);
    for _ in 0..3 {
        server.fail(Match("POST", "/auth/token"), answer.clone());
    }

    let error = of_agent(&server, "agent-1")
        .latest("note.v1")
        .await
        .unwrap_err();

    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("s3cret"));
}

#[tokio::test]
async fn an_agent_that_receives_no_token_gets_the_reason() {
    let server = Server::start().await;

    let error = of_agent(&server, "nobody")
        .latest("note.v1")
        .await
        .unwrap_err();

    expect_unauthorized(&error);
    assert!(format!("{error:?}").contains("no such agent"), "{error:?}");
}

#[tokio::test]
async fn a_create_with_another_owners_token_is_forbidden() {
    let server = Server::start().await;
    let token = Secret::new(token_of(THEIRS));
    let store = builder(&server, OWNER).token(token).build().unwrap();

    let error = store
        .create(NewBreadcrumb::new("note.v1"))
        .await
        .unwrap_err();

    assert!(matches!(error, StoreError::Forbidden { .. }), "{error}");
    assert!(error.to_string().contains("another owner"), "{error}");
    assert_eq!(store.latest("note.v1").await.unwrap(), None);
}

#[test]
fn an_owner_that_is_not_a_uuid_is_refused_without_a_token_in_its_place() {
    let refused = |owner: &str| {
        let builder = RcrtStore::builder("http://127.0.0.1:1", owner);
        builder.build().unwrap_err()
    };

    let error = refused("ann");
    let swapped = refused("eyJhbGciOiJSUzI1NiJ9.planted.token");

    assert!(matches!(error, RcrtError::BadOwner { .. }), "{error:?}");
    assert_eq!(error.retry(), Retry::Never);
    for part in ["\"ann\"", "not a UUID", "owner_id of the API token"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(!format!("{swapped:?} {swapped}").contains("planted"));
}

#[tokio::test(start_paused = true)]
async fn an_empty_search_with_a_token_that_the_server_refuses_is_an_error() {
    let server = Server::start().await;
    let store = store(&server);
    let token = token_of(OWNER);

    assert_eq!(store.latest("note.v1").await.unwrap(), None);
    server.lock().expired.insert(token.clone());
    assert_eq!(store.latest("note.v1").await.unwrap(), None);
    tokio::time::advance(Duration::from_secs(60)).await;
    let refused = [
        store.latest("note.v1").await.unwrap_err(),
        store.latest("note.v1").await.unwrap_err(),
    ];
    server.lock().expired.clear();
    tokio::time::advance(Duration::from_secs(60)).await;

    assert_eq!(store.latest("note.v1").await.unwrap(), None);
    for error in &refused {
        expect_unauthorized(error);
        assert!(!format!("{error:?}").contains(&token), "{error:?}");
    }
    let nil = "/breadcrumbs/00000000-0000-0000-0000-000000000000/full";
    assert_eq!(server.seen("GET", nil).len(), 3);
}

#[tokio::test]
async fn an_owner_is_the_same_in_capitals() {
    let server = Server::start().await;
    let owner = "0000000a-0000-0000-0000-000000000001";
    let token = Secret::new(token_of(owner));
    let store = builder(&server, &owner.to_uppercase())
        .token(token)
        .build()
        .unwrap();

    let created = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();

    assert_eq!(store.get(created.id).await.unwrap(), created);
}

#[tokio::test]
async fn a_function_may_give_the_tokens() {
    let server = Server::start().await;
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let token = BearerToken::asked(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok((Secret::new(token_of(OWNER)), None)) }
    });
    let store = RcrtStore::builder(server.base_url(), OWNER)
        .token_from(token)
        .build()
        .unwrap();

    for _ in 0..2 {
        store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    }

    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (server, target) = (Server::start().await, Server::start().await);
    for method in ["GET", "POST"] {
        let moved = Fault::Redirect(target.base_url() + "/breadcrumbs");
        server.fail(Match(method, "/breadcrumbs"), moved);
    }
    let store = store(&server);

    let listed = store.latest("note.v1").await;
    let created = store.create(NewBreadcrumb::new("note.v1")).await;

    assert!(listed.is_err(), "{listed:?}");
    assert!(created.is_err(), "{created:?}");
    assert!(
        target.lock().seen.is_empty(),
        "the token must not be sent to another host"
    );
}

#[test]
fn a_token_for_another_machine_over_http_is_warned_of_once_and_not_printed() {
    const TOKEN: &str = "planted-token";
    Log::expect_warning_of_exposure(TOKEN, |url, has_token| {
        let token = match has_token {
            true => BearerToken::fixed(Secret::new(TOKEN)),
            false => BearerToken::none(),
        };
        let builder = RcrtStore::builder(url, OWNER).token_from(token);
        builder.build().unwrap();
    });
}
