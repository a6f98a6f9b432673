//! Moments between two steps of a run at which a worker ends or stops itself.

use crate::BoxError;
use rustix::process::{Signal, getpid, kill_process};
use std::sync::atomic::{AtomicU64, Ordering};
use universal_executor::store::{Moment, Operation};

/// A moment, by the call of store or source that is about to be made or was just answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Point {
    /// What it is called.
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

/// Just before the response is committed.
pub const BEFORE_COMMIT: Point = point("before-commit", Operation::Commit, Moment::Before);

/// From the event to the acknowledgement, and what goes on beside it.
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

/// What a worker does to itself at a point.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Deed {
    /// It is killed.
    Kill,
    /// It is stopped, until somebody lets it go on.
    Stop,
}

/// What a worker is to do to itself, and when.
#[derive(Debug)]
pub struct Trap {
    point: Point,
    deed: Deed,
    /// How often the point is passed before.
    left: AtomicU64,
}

impl Trap {
    /// The environment variable that sets one.
    pub const VARIABLE: &'static str = "TORTURE_TRAP";

    /// The value of the variable.
    pub fn text(point: Point, deed: Deed, after: u64) -> String {
        let deed = match deed {
            Deed::Kill => "kill",
            Deed::Stop => "stop",
        };
        format!("{deed} {} {after}", point.name)
    }

    /// What the environment says.
    pub fn from_env() -> Result<Option<Self>, BoxError> {
        let Ok(text) = std::env::var(Self::VARIABLE) else {
            return Ok(None);
        };
        let unclear = || format!("{} is unclear: {text:?}", Self::VARIABLE);
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
            left: AtomicU64::new(after.map_err(|_| unclear())?),
        }))
    }

    /// The point, if it is sprung by this.
    pub fn sprung(&self, operation: Operation, moment: Moment) -> Option<(Point, Deed)> {
        if (operation, moment) != (self.point.operation, self.point.moment) {
            return None;
        }
        // Of those that pass at once only one finds nothing left; below zero it never springs again.
        let left = self.left.fetch_sub(1, Ordering::Relaxed);
        (left == 0).then_some((self.point, self.deed))
    }
}

impl Deed {
    /// Does it to this process.
    pub fn execute(self) -> Result<(), BoxError> {
        let signal = match self {
            Self::Kill => Signal::KILL,
            Self::Stop => Signal::STOP,
        };
        Ok(kill_process(getpid(), signal)?)
    }
}
