//! Encrypted connections to a server with a verified identity.
//!
//! The PostgreSQL server of `scripts/services` does not support TLS, so a proxy terminates TLS in front of it. The certificate and the
//! key of the proxy are in this folder for tests only.
mod terminator;

use crate::postgres::server::Namespaces;
use std::error::Error as _;
use std::time::Duration;
use terminator::Terminator;
use universal_executor::store::PostgresError;
use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb, PostgresStore};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/services/tls/data");

async fn connect(
    terminator: &Terminator,
    host: &str,
    authority: &str,
    namespaces: &Namespaces,
) -> Result<PostgresStore, PostgresError> {
    let url = terminator.url(host);
    let url = format!("{url}?sslmode=verify-full&sslrootcert={DATA}/{authority}");
    let builder = PostgresStore::builder(url).schema(namespaces.one());
    builder.wait_timeout(Duration::from_secs(5)).connect().await
}

#[tokio::test]
async fn a_connection_to_a_server_with_a_valid_certificate_is_encrypted() {
    let (namespaces, terminator) = (Namespaces::default(), Terminator::start().await);
    let store = connect(&terminator, "localhost", "authority.pem", &namespaces).await;
    let store = store.unwrap();
    let text = "nobody shall read this on the way";

    let note = store
        .create(NewBreadcrumb::new("note.v1").title(text))
        .await;

    let note = note.unwrap();
    assert_eq!(store.latest("note.v1").await.unwrap(), Some(note));
    let (seen, passed_on) = terminator.seen();
    let has = |bytes: &[u8]| {
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    assert!(has(&passed_on), "the server must receive the plain text");
    assert!(!has(&seen), "the connection must not show the plain text");
}

#[tokio::test]
async fn a_server_that_another_authority_vouches_for_is_not_talked_to() {
    let (namespaces, terminator) = (Namespaces::default(), Terminator::start().await);

    let refused = connect(&terminator, "localhost", "stranger.pem", &namespaces).await;

    let refused = refused.unwrap_err();
    let told = format!("{refused} {:?}", refused.source().map(ToString::to_string));
    assert!(told.contains("certificate"), "{told}");
    assert!(
        terminator.seen().1.is_empty(),
        "no data must reach the server"
    );
}

#[tokio::test]
async fn a_server_that_shows_the_name_of_another_is_not_talked_to() {
    let (namespaces, terminator) = (Namespaces::default(), Terminator::start().await);

    let refused = connect(&terminator, "127.0.0.1", "authority.pem", &namespaces).await;

    let refused = refused.unwrap_err();
    let told = format!("{refused} {:?}", refused.source().map(ToString::to_string));
    assert!(told.contains("certificate"), "{told}");
    assert!(
        terminator.seen().1.is_empty(),
        "no data must reach the server"
    );
}
