use super::lane::Shared;
use crate::workload::WorkloadEvent;
use std::sync::{Arc, Weak};
use tokio::sync::broadcast::{self, error::RecvError};

/// Hears what happens in a session.
#[derive(Debug)]
pub struct Subscriber {
    pub(super) session: Arc<str>,
    pub(super) events: broadcast::Receiver<Arc<WorkloadEvent>>,
    pub(super) shared: Weak<Shared>,
}

/// What a subscriber hears.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// Something that happens.
    Event(Arc<WorkloadEvent>),
    /// It was too slow, and so many events were not kept for it. Those that follow were.
    Missed(u64),
}

impl Subscriber {
    /// What happens next; none when the supervisor is closed. Cancel safe.
    pub async fn next(&mut self) -> Option<Heard> {
        match self.events.recv().await {
            Ok(event) => Some(Heard::Event(event)),
            Err(RecvError::Lagged(missed)) => Some(Heard::Missed(missed)),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.forget(&self.session);
        }
    }
}
