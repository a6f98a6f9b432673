//! A store's limit for consumer names.

use std::error::Error as _;
use universal_executor::EventSource;
use universal_executor::source::{SourceError, StartAt};

/// Subscribes with the maximum number of names that a tenant can have, and with one name more.
pub(crate) async fn one_consumer_too_many_is_refused(
    events: impl Fn(&str) -> Box<dyn EventSource>,
) {
    const MOST: usize = 1_000;
    let subscribe = async |number: usize| {
        let events = events(&format!("consumer-{number}"));
        events.subscribe(StartAt::Now).await.map(drop)
    };
    for number in 0..MOST {
        subscribe(number).await.unwrap();
    }

    let refused = subscribe(MOST).await.unwrap_err();

    assert!(
        matches!(refused, SourceError::Unavailable { .. }),
        "{refused:?}"
    );
    let refused = refused.source().unwrap().to_string();
    assert!(
        refused.contains("at most 1000 event consumers"),
        "{refused}"
    );
    subscribe(MOST - 1).await.unwrap();
}
