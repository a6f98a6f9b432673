//! The conformance suite for sources, as far as a stream without IDs and deletions can satisfy it.

use super::server::Server;
use super::{OWNER, builder};
use std::time::Duration;
use universal_executor::source::conformance::{Abilities, Change, SourceUnderTest};
use universal_executor::store::conformance::announce;
use universal_executor::{BoxError, Event, EventSource, RcrtStore};

struct Stream;

impl SourceUnderTest for Stream {
    type Backend = (Server, RcrtStore);

    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    async fn fresh(&self) -> (Server, RcrtStore) {
        let server = Server::start().await;
        let store = builder(&server, OWNER).build().unwrap();
        (server, store)
    }

    async fn fresh_with_limit(&self, _: usize) -> Option<(Server, RcrtStore)> {
        None
    }

    async fn in_tenant(
        &self,
        (server, _): &(Server, RcrtStore),
        tenant: &str,
    ) -> Option<(Server, RcrtStore)> {
        let store = builder(server, tenant).build().ok()?;
        Some((server.clone(), store))
    }

    async fn restart(&self, _: (Server, RcrtStore)) -> Option<(Server, RcrtStore)> {
        None
    }

    fn source(&self, (_, store): &(Server, RcrtStore), _: &str) -> Box<dyn EventSource> {
        Box::new(store.events())
    }

    async fn commit(
        &self,
        (_, store): &(Server, RcrtStore),
        changes: Vec<Change>,
    ) -> Result<Vec<Event>, BoxError> {
        Ok(announce(store, changes).await?)
    }

    async fn advance_clock(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

// `every_commit_is_delivered` is omitted, because the server does not announce deletions. The other promises cover all other events.
universal_executor::source_conformance! { @promises sse, Stream,
    commits_are_delivered_in_order
    commits_at_the_same_time_are_all_delivered
    a_large_context_does_not_travel
    a_context_is_that_of_its_version
    events_of_tenants_are_isolated
    now_begins_with_the_next_commit
    the_beginning_is_the_oldest_event
    a_position_is_followed_by_the_next_event
    a_position_from_the_future_loses_no_event
    positions_increase
    dropped_events_are_reported
    deleted_events_after_a_position_are_reported
    deleted_events_before_the_beginning_are_not_reported
    no_event_is_lost_across_reconnects
    a_position_is_valid_after_a_restart
    an_unacknowledged_event_is_redelivered
    a_consumer_continues_after_its_acknowledged_events
    a_nacked_event_survives_a_restart
    consumers_are_saved_separately
    a_nacked_event_is_redelivered
    a_nacked_event_is_redelivered_after_its_delay
    an_acknowledged_event_is_not_redelivered
    repeated_and_late_acknowledgements_have_no_effect
    two_subscribers_both_receive_all_events
    many_subscribers_receive_all_events
    an_unread_stream_delays_no_other
    a_waiting_subscriber_is_woken
    cancel_safe
}
