//! Cursors into the events of a chat session's turn.

use crate::executor::Segment;
use crate::model::Timestamp;
use std::fmt;

/// A cursor into the events of a chat session's turn: the position after one event.
///
/// Its text has five numbers: the update time of an earlier segment in microseconds, the lease token, the segment, the number of
/// events read from the segment, and 1 if the lease has settled.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Cursor {
    /// Latest update time, in microseconds, of the fully read segments (breadcrumbs with events of the turn). Segments with an
    /// earlier update time are not read again.
    pub(super) after: i64,
    pub(super) token: u64,
    pub(super) number: u32,
    pub(super) events_read: usize,
    pub(super) is_settled: bool,
}

/// The result of a comparison of a cursor with a segment of the turn's events: which events of the segment follow the cursor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NextEvents {
    /// The events that follow the cursor start at this index in the segment's list of events.
    Events(usize),
    /// All events of the segment follow the cursor. They repeat the events of an earlier lease, which ended without a result.
    Restart,
    /// No event of the segment follows the cursor, or the segment was written under an earlier lease of the turn's run than the
    /// cursor's segment.
    Old,
}

impl Cursor {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let cursor = Self {
            after: parts.next()?.parse().ok()?,
            token: parts.next()?.parse().ok()?,
            number: parts.next()?.parse().ok()?,
            events_read: parts.next()?.parse().ok()?,
            is_settled: match parts.next()? {
                "0" => false,
                "1" => true,
                _ => return None,
            },
        };
        parts.next().is_none().then_some(cursor)
    }

    pub(super) fn next(&self, segment: &Segment) -> NextEvents {
        let (own, other) = ((self.token, self.number), (segment.token, segment.number));
        if segment.token < self.token || other < own {
            return NextEvents::Old;
        }
        if other == own {
            return match self.events_read < segment.events.len() {
                true => NextEvents::Events(self.events_read),
                false => NextEvents::Old,
            };
        }
        let is_same = segment.token == self.token || self.token == 0;
        match is_same || self.is_settled {
            true => NextEvents::Events(0),
            false => NextEvents::Restart,
        }
    }

    /// Moves the cursor to the position after the first `events_read` events of a segment of the turn's events.
    pub(super) fn advance(&mut self, segment: &Segment, events_read: usize) {
        (self.token, self.number, self.events_read) = (segment.token, segment.number, events_read);
        self.is_settled = segment.is_settled && events_read >= segment.events.len();
    }

    /// Moves the cursor to the position after the last event of a segment of the turn's events. `at` is the segment's update time in the
    /// store.
    pub(super) fn advance_past(&mut self, segment: &Segment, at: Timestamp) {
        self.advance(segment, segment.events.len());
        self.after = self.after.max(at.as_micros());
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settled = u8::from(self.is_settled);
        let Self {
            after,
            token,
            number,
            events_read,
            ..
        } = self;
        write!(f, "{after}.{token}.{number}.{events_read}.{settled}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::Record;
    use crate::model::BreadcrumbId;
    use proptest::prelude::*;

    fn segment(token: u64, number: u32, events: usize, is_settled: bool) -> Segment {
        Segment {
            trigger_id: BreadcrumbId::NIL,
            token,
            number,
            attempt: 1,
            events: vec![Record::Missed; events],
            is_settled,
        }
    }

    fn at(token: u64, number: u32, events_read: usize, is_settled: bool) -> Cursor {
        Cursor {
            after: 0,
            token,
            number,
            events_read,
            is_settled,
        }
    }

    #[test]
    fn events_follow_a_cursor_once_and_a_new_lease_restarts_unless_the_last_one_settled() {
        for (cursor, segment, next) in [
            (
                Cursor::default(),
                segment(3, 1, 2, false),
                NextEvents::Events(0),
            ),
            (
                at(3, 1, 1, false),
                segment(3, 1, 2, false),
                NextEvents::Events(1),
            ),
            (at(3, 1, 2, false), segment(3, 1, 2, false), NextEvents::Old),
            (at(3, 2, 1, false), segment(3, 1, 2, false), NextEvents::Old),
            (
                at(3, 1, 2, false),
                segment(3, 2, 1, false),
                NextEvents::Events(0),
            ),
            (
                at(3, 1, 2, false),
                segment(4, 1, 1, false),
                NextEvents::Restart,
            ),
            (
                at(3, 1, 2, true),
                segment(4, 1, 1, false),
                NextEvents::Events(0),
            ),
            // A worker that lost its lease still writes.
            (at(4, 1, 1, false), segment(3, 9, 1, false), NextEvents::Old),
        ] {
            assert_eq!(cursor.next(&segment), next, "{cursor} {segment:?}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_cursor_is_refused() {
        for text in ["", "1.2.3.4", "1.2.3.4.2", "1.2.3.4.1.0", "a.2.3.4.1"] {
            assert_eq!(Cursor::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_cursor_is_read_from_its_text(
            (after, token, number, events_read, is_settled) in
                (any::<i64>(), any::<u64>(), any::<u32>(), any::<usize>(), any::<bool>())
        ) {
            let cursor = Cursor { after, ..at(token, number, events_read, is_settled) };
            prop_assert_eq!(Cursor::parse(&cursor.to_string()), Some(cursor));
        }
    }
}
