//! State of the notifications about new events that this process sends to other processes.

use std::sync::atomic::{AtomicU8, Ordering};
use uuid::Uuid;

/// State of this process's notifications about new events: none, one being sent, or one being sent and a further one needed.
#[derive(Debug)]
pub(super) struct NotificationState {
    state: AtomicU8,
    /// ID of this process in the event notifications that it sends. The process ignores received notifications with this ID.
    pub(super) sender: Uuid,
}

impl Default for NotificationState {
    fn default() -> Self {
        Self {
            state: AtomicU8::new(Self::IDLE),
            sender: Uuid::new_v4(),
        }
    }
}

impl NotificationState {
    const IDLE: u8 = 0;
    const SENDING: u8 = 1;
    /// A notification is being sent, and further events were committed after its start. A further notification must follow.
    const BEHIND: u8 = 2;

    /// Records that this process committed new events. Returns `true` if the caller must send a notification.
    pub(super) fn begin(&self) -> bool {
        let next = |state| match state {
            Self::IDLE => Self::SENDING,
            _ => Self::BEHIND,
        };
        let order = Ordering::SeqCst;
        let before = self
            .state
            .fetch_update(order, order, |state| Some(next(state)));
        before == Ok(Self::IDLE)
    }

    /// Records that a notification about new events was sent. Returns `true` if a further notification is needed for later events.
    pub(super) fn finish(&self) -> bool {
        let next = |state| match state {
            Self::BEHIND => Self::SENDING,
            _ => Self::IDLE,
        };
        let order = Ordering::SeqCst;
        let before = self
            .state
            .fetch_update(order, order, |state| Some(next(state)));
        before == Ok(Self::BEHIND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_are_committed_during_a_notification_are_announced_by_one_more() {
        let notifying = NotificationState::default();
        assert!(notifying.begin());

        let during = [notifying.begin(), notifying.begin()];

        assert_eq!(during, [false, false]);
        assert!(notifying.finish());
        assert!(!notifying.finish());
        assert!(notifying.begin(), "the next event is announced at once");
    }
}
