//! Points between two steps of a run at which a worker kills or pauses itself.

use crate::BoxError;
use rustix::process::{Signal, getpid, kill_process};
use std::sync::atomic::{AtomicU64, Ordering};
use universal_executor::store::{Moment, Operation};

/// A point before or after a call of the store or the source.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Point {
    /// Name of the point.
    pub name: &'static str,
    operation: Operation,
    moment: Moment,
}

const fn point(name: &'static str, operation: Operation, moment: Moment) -> Point {
    Point {
        name,
        operation,
        moment,
    }
}

/// Point before the commit of a response.
pub const BEFORE_COMMIT: Point = point("before-commit", Operation::Commit, Moment::Before);

/// All points: from an event to its acknowledgement, and the steps of a run.
pub const POINTS: [Point; 11] = [
    point("event-received", Operation::Next, Moment::After),
    point("before-enqueue", Operation::Enqueue, Moment::Before),
    point("enqueued", Operation::Enqueue, Moment::After),
    point("before-ack", Operation::Ack, Moment::Before),
    point("leased", Operation::ClaimNext, Moment::After),
    point("claimed", Operation::Claim, Moment::After),
    BEFORE_COMMIT,
    point("committed", Operation::Commit, Moment::After),
    point("before-heartbeat", Operation::Heartbeat, Moment::Before),
    point("after-heartbeat", Operation::Heartbeat, Moment::After),
    point("in-sweep", Operation::Runs, Moment::After),
];

/// Action of a worker on itself at a point.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Deed {
    /// Kills the process.
    Kill,
    /// Pauses the process until it receives SIGCONT.
    Stop,
}

/// A point with the action of the worker there.
#[derive(Debug)]
pub struct Trap {
    point: Point,
    deed: Deed,
    /// Number of times that the worker passes the point before the action.
    remaining: AtomicU64,
}

impl Trap {
    /// Environment variable with the trap of a worker.
    pub const VARIABLE: &'static str = "TORTURE_TRAP";

    /// Returns the value of the variable.
    pub fn text(point: Point, deed: Deed, after: u64) -> String {
        let deed = match deed {
            Deed::Kill => "kill",
            Deed::Stop => "stop",
        };
        format!("{deed} {} {after}", point.name)
    }

    /// Reads the trap from the environment.
    pub fn from_env() -> Result<Option<Self>, BoxError> {
        let Ok(text) = std::env::var(Self::VARIABLE) else {
            return Ok(None);
        };
        let unclear = || format!("invalid value of {}: {text:?}", Self::VARIABLE);
        let mut words = text.split(' ');
        let deed = match words.next() {
            Some("kill") => Deed::Kill,
            Some("stop") => Deed::Stop,
            Some(_) | None => return Err(unclear().into()),
        };
        let name = words.next().unwrap_or_default();
        let point = POINTS.into_iter().find(|point| point.name == name);
        let after = words.next().unwrap_or_default().parse();
        Ok(Some(Self {
            point: point.ok_or_else(unclear)?,
            deed,
            remaining: AtomicU64::new(after.map_err(|_| unclear())?),
        }))
    }

    /// Returns the point and the action if this call triggers the trap.
    pub fn sprung(&self, operation: Operation, moment: Moment) -> Option<(Point, Deed)> {
        if (operation, moment) != (self.point.operation, self.point.moment) {
            return None;
        }
        // Of concurrent calls, only one reads zero. The counter then wraps around, so the trap never springs again.
        let remaining = self.remaining.fetch_sub(1, Ordering::Relaxed);
        (remaining == 0).then_some((self.point, self.deed))
    }
}

impl Deed {
    /// Performs the action on this process.
    pub fn execute(self) -> Result<(), BoxError> {
        let signal = match self {
            Self::Kill => Signal::KILL,
            Self::Stop => Signal::STOP,
        };
        Ok(kill_process(getpid(), signal)?)
    }
}
