//! Position in a NATS stream at which a new consumer starts, either the first consumer of a subscription or the
//! replacement of a lost one.

use crate::source::StartAt;
use async_nats::datetime::DateTime;

/// Position in a NATS stream from which a subscription receives events, also after its consumer was lost and created
/// again. The stream may be lost and created again.
pub(super) struct StreamPosition {
    requested: StartAt,
    known: Option<KnownStream>,
}

struct KnownStream {
    /// Creation time of the NATS stream, which distinguishes streams of the same name.
    stream: DateTime,
    /// Stream position up to which all events were delivered to the NATS subscription, or are older than the
    /// subscription's start.
    reached: u64,
}

impl StreamPosition {
    pub(super) fn new(requested: StartAt) -> Self {
        Self {
            requested,
            known: None,
        }
    }

    /// Returns the start position of a NATS consumer that has to be created in a stream whose last position is `last`.
    /// The consumer delivers the nacked events again, from `first_nacked` on. An event that another worker of the group
    /// holds is not repeated; if that worker dies, a sweep of the store finds the trigger.
    pub(super) fn begin(
        &mut self,
        stream: DateTime,
        last: u64,
        first_nacked: Option<u64>,
    ) -> StartAt {
        let begin = match (&self.known, self.requested) {
            (Some(known), _) if known.stream == stream => {
                let before = first_nacked.map_or(u64::MAX, |first| first.saturating_sub(1));
                StartAt::After(known.reached.min(before))
            }
            // Every event in a stream that was created since is new.
            (Some(_), _) | (None, StartAt::Beginning | StartAt::Since(_)) => StartAt::Beginning,
            (None, StartAt::After(position)) if position <= last => StartAt::After(position),
            // A position after the last one belongs to another stream. The subscription must not miss events of this
            // stream.
            (None, StartAt::Now | StartAt::After(_)) => StartAt::After(last),
        };
        let reached = match begin {
            StartAt::After(position) => position,
            StartAt::Beginning | StartAt::Now | StartAt::Since(_) => 0,
        };
        self.known = Some(KnownStream { stream, reached });
        begin
    }

    /// Returns the position of the last NATS stream event before the events that the consumer delivers, or `None` if no
    /// consumer was created yet.
    pub(super) fn start(&self) -> Option<u64> {
        self.known.as_ref().map(|known| known.reached)
    }

    /// Returns `true` if the last consumer of the subscription belongs to an earlier NATS stream of the same name.
    /// `stream` is the creation time of the current stream.
    pub(super) fn is_of_other_stream(&self, stream: DateTime) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| known.stream != stream)
    }

    /// Records that the NATS consumer exists, and that all events up to a position are acknowledged.
    pub(super) fn resume_after(&mut self, acknowledged: u64) {
        if let Some(known) = &mut self.known {
            known.reached = acknowledged;
        }
    }

    /// Records that all events up to a position in the NATS stream were delivered.
    pub(super) fn reached(&mut self, position: u64) {
        if let Some(known) = &mut self.known {
            known.reached = known.reached.max(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams() -> (DateTime, DateTime) {
        let first = DateTime::UNIX_EPOCH;
        (first, first + std::time::Duration::from_secs(1))
    }

    #[test]
    fn a_new_consumer_starts_at_the_requested_position() {
        let (stream, _) = streams();
        for (requested, begin) in [
            (StartAt::Now, StartAt::After(9)),
            (StartAt::Beginning, StartAt::Beginning),
            (StartAt::After(4), StartAt::After(4)),
            (StartAt::After(10), StartAt::After(9)),
        ] {
            assert_eq!(StreamPosition::new(requested).begin(stream, 9, None), begin);
        }
    }

    #[test]
    fn a_lost_consumer_continues_after_the_last_delivery_or_at_the_first_nacked_event() {
        let (stream, _) = streams();
        let mut position = StreamPosition::new(StartAt::Now);
        position.begin(stream, 9, None);
        assert_eq!(position.begin(stream, 20, None), StartAt::After(9));

        position.reached(15);

        assert_eq!(position.begin(stream, 20, None), StartAt::After(15));
        assert_eq!(position.begin(stream, 20, Some(12)), StartAt::After(11));
    }

    #[test]
    fn unacknowledged_events_are_redelivered_after_a_group_loses_its_consumer() {
        let (stream, _) = streams();
        let mut position = StreamPosition::new(StartAt::Now);
        position.begin(stream, 9, None);

        position.resume_after(3);

        assert_eq!(position.begin(stream, 20, None), StartAt::After(3));
    }

    #[test]
    fn everything_in_a_stream_that_was_made_anew_is_new() {
        let (stream, next) = streams();
        let mut position = StreamPosition::new(StartAt::Now);
        position.begin(stream, 9, None);

        assert_eq!(position.begin(next, 100, Some(3)), StartAt::Beginning);
        position.reached(2);
        assert_eq!(position.begin(next, 100, None), StartAt::After(2));
    }
}
