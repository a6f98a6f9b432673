use super::SupervisorError;
use super::session_queue::Shared;
use crate::workload::WorkloadEvent;
use std::sync::{Arc, Weak};
use tokio::sync::broadcast::{self, error::RecvError};

/// Receiver of the workload events of a session.
///
/// Each event names its run: a turn that is dropped while it waits can end while another turn runs, and each nested run
/// has a separate stream. [`SupervisedTurn::outcome`](super::SupervisedTurn::outcome) resolves at the end of a turn,
/// also for a subscriber that [missed](SubscriberItem::Missed) the end.
///
/// [`Supervisor::subscribe`](super::Supervisor::subscribe) has an example. A subscriber that is
/// dropped no longer counts towards the limit.
#[derive(Debug)]
pub struct Subscriber {
    session: Arc<str>,
    /// Receiver that is `None` only while the subscriber is dropped, because an existing receiver counts as a
    /// subscriber of the session.
    events: Option<broadcast::Receiver<Arc<WorkloadEvent>>>,
    shared: Weak<Shared>,
}

/// An event of a session that a [`Subscriber`] receives, or the number of events that it missed.
#[derive(Clone, Debug, PartialEq)]
pub enum SubscriberItem {
    /// An event of a workload run in the session.
    Event(Arc<WorkloadEvent>),
    /// The subscriber was too slow, and this number of the session's events was dropped. Later events follow.
    Missed(u64),
}

impl Subscriber {
    pub(super) fn new(shared: &Arc<Shared>, session: &str) -> Result<Self, SupervisorError> {
        let session: Arc<str> = session.into();
        Ok(Self {
            events: Some(shared.add_subscriber(&session)?),
            session,
            shared: Arc::downgrade(shared),
        })
    }

    /// Returns the next event of the session or a report of dropped events, or `None` after the supervisor was closed.
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<SubscriberItem> {
        match self.events.as_mut()?.recv().await {
            Ok(event) => Some(SubscriberItem::Event(event)),
            Err(RecvError::Lagged(missed)) => Some(SubscriberItem::Missed(missed)),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.events = None;
        if let Some(shared) = self.shared.upgrade() {
            shared.remove_subscriber(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Retry;
    use crate::services::Services;
    use crate::store::MemoryStore;
    use crate::workload::{NativeDefinition, Supervisor};
    use serde_json::Value;
    use std::sync::Barrier;
    use std::thread;

    fn supervisor() -> Supervisor {
        limited(10)
    }

    fn limited(subscribers: usize) -> Supervisor {
        let nothing = NativeDefinition::new("nothing", |_, _| async { Ok(Value::Null) });
        let store = MemoryStore::default();
        Supervisor::builder(Arc::new(nothing), &Services::new(), &store)
            .subscribers(subscribers)
            .build()
            .unwrap()
    }

    #[test]
    fn subscribers_that_leave_at_once_leave_nothing_behind() {
        let supervisor = supervisor();

        for _ in 0..2_000 {
            let both = [(); 2].map(|()| supervisor.subscribe("one").unwrap());
            let start = Barrier::new(2);
            thread::scope(|scope| {
                for subscriber in both {
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        drop(subscriber);
                    });
                }
            });

            assert_eq!(supervisor.shared.sessions(), 0);
        }
    }

    #[test]
    fn a_subscriber_beyond_the_limit_is_refused_until_another_leaves() {
        let supervisor = limited(2);
        let [first, _second] = ["one", "two"].map(|name| supervisor.subscribe(name).unwrap());

        let refused = supervisor.subscribe("three").unwrap_err();
        let before = supervisor.health().subscribers;
        drop(first);
        let third = supervisor.subscribe("three");

        assert!(
            matches!(&refused, SupervisorError::TooManySubscribers { session, limit: 2 } if session == "three"),
            "{refused}"
        );
        assert_ne!(refused.retry(), Retry::Never);
        assert_eq!(before, 2);
        assert!(third.is_ok(), "{third:?}");
        assert_eq!(supervisor.shared.sessions(), 2);
    }

    #[tokio::test]
    async fn a_subscriber_receives_events_after_another_one_is_dropped() {
        let supervisor = supervisor();
        let [dropped, mut remaining] = [(); 2].map(|()| supervisor.subscribe("one").unwrap());

        drop(dropped);
        supervisor.send("one", "go").unwrap().outcome().await;
        supervisor.close().await;

        assert!(matches!(
            remaining.next().await,
            Some(SubscriberItem::Event(_))
        ));
    }
}
