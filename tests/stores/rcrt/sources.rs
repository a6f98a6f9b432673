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

    async fn keeping(&self, _: usize) -> Option<(Server, RcrtStore)> {
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

// `every_commit` is omitted, because the server does not announce deletions. The other promises cover all other events.
universal_executor::source_conformance! { @promises sse, Stream,
    in_order
    commits_at_the_same_time_are_all_delivered
    a_large_context_does_not_travel
    a_context_is_that_of_its_version
    tenants_apart
    now_begins_with_the_next_commit
    the_beginning_is_the_oldest_event
    after_a_position_comes_what_is_behind_it
    a_position_from_the_future_misses_nothing
    positions_grow
    what_is_dropped_is_told
    what_is_gone_behind_a_position_is_told
    what_is_gone_before_the_beginning_is_not_missed
    nothing_is_lost_across_reconnects
    a_position_outlives_a_restart
    an_unacknowledged_event_comes_again
    a_consumer_goes_on_after_what_it_acknowledged
    what_is_given_back_is_not_lost
    consumers_are_remembered_apart
    an_event_given_back_comes_again
    an_event_given_back_waits_for_its_delay
    an_acknowledged_event_does_not_come_again
    telling_a_source_twice_or_late_is_harmless
    two_subscribers_both_get_all
    many_subscribe
    an_unread_stream_holds_up_nobody
    a_waiting_subscriber_is_woken
    cancel_safe
}
