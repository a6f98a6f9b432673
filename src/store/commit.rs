use super::claim::Lease;
use super::lineage::Wake;
use super::run::RunRef;
use crate::model::{Breadcrumb, BreadcrumbId, Json, NewBreadcrumb, Patch};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt;
use std::sync::Arc;

/// What a store does in one step: writes, the end of a run, and the events of both.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// What to write, in order.
    pub writes: Vec<Write>,
    /// The run this belongs to and how it ends. The lease fences the whole commit.
    pub end: Option<(Lease, RunEnd)>,
}

impl Commit {
    /// The most writes of one commit.
    pub const MAX_WRITES: usize = 1_000;
}

impl From<Vec<Write>> for Commit {
    /// Writes that belong to no run.
    fn from(writes: Vec<Write>) -> Self {
        Self { writes, end: None }
    }
}

/// One write. Its JSON form is an object with one field: `create`, `update` or `delete`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Write {
    /// A new breadcrumb.
    Create(NewBreadcrumb),
    /// A change of a breadcrumb.
    Update {
        /// Its id.
        id: BreadcrumbId,
        /// The version the change was made from.
        version: u64,
        /// The change.
        patch: Patch,
    },
    /// The end of a breadcrumb.
    Delete {
        /// Its id.
        id: BreadcrumbId,
        /// Who deletes it, where the store lets the caller choose.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
}

/// How a run ends.
#[derive(Clone, Debug)]
pub enum RunEnd {
    /// It responded.
    Done,
    /// It waits; the lease ends and the attempts start anew. Refused if it could wait for ever, see
    /// [`Wake::check`].
    Suspended {
        /// What it waits for.
        wake: Wake,
        /// What it goes on with.
        state: Json,
    },
    /// It gave up; the store writes the dead letter in the same step.
    Failed(DeadLetter),
    /// There was nothing to do: `gone`, `unmatched`, `own`.
    Skipped(&'static str),
    /// A later version of the trigger has its own run.
    Superseded,
    /// It does not end yet: these writes are recorded under it and fenced by its lease.
    Continues,
}

impl RunEnd {
    /// Reason of a [skipped](Self::Skipped) run whose executor does not match the trigger.
    pub const UNMATCHED: &'static str = "unmatched";

    /// Reason and code of a run that was [cancelled](super::RunLedger::cancel).
    pub const CANCELLED: &'static str = "cancelled";
}

/// Record of a failed run: an `executor.failed.v1` breadcrumb that names the run and its cause, and holds no payload.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Why it gave up.
    pub class: FailureClass,
    /// The kind of error, for machines: `error`, `conflict`, `rate_limited`.
    pub code: String,
    /// SHA-256 of the error's message, so that equal failures can be counted without keeping what they say.
    pub digest: String,
    /// Cause of the failure: the error and its sources, without credentials, at most [1,000 bytes](Self::LONGEST_CAUSE).
    /// [`Profile::hide_errors`](crate::Profile::hide_errors) omits the words of the executor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// How many attempts were made.
    pub attempts: u32,
    /// Tags it inherits from the trigger.
    pub tags: Vec<String>,
    /// Who gave up, and because of what.
    pub creator: Json,
}

impl DeadLetter {
    /// The schema of a dead letter.
    pub const SCHEMA: &'static str = "executor.failed.v1";

    /// Maximum length of a cause: 1,000 bytes. A store cuts a longer one.
    pub const LONGEST_CAUSE: usize = 1_000;

    /// A dead letter.
    #[must_use]
    pub fn new(class: FailureClass, code: impl Into<String>, attempts: u32) -> Self {
        Self {
            class,
            code: code.into(),
            digest: String::new(),
            cause: None,
            attempts,
            tags: Vec::new(),
            creator: Json::default(),
        }
    }

    /// The run that a dead letter names, for [`redo`](super::RunLedger::redo); none if the breadcrumb is no dead letter.
    ///
    /// Anybody may write a breadcrumb that looks like one: whoever does a run again looks at who asks.
    #[must_use]
    pub fn run_of(breadcrumb: &Breadcrumb) -> Option<RunRef> {
        #[derive(Deserialize)]
        struct Named {
            executor: String,
            trigger_id: BreadcrumbId,
            trigger_version: u64,
        }
        if breadcrumb.schema_name.as_deref() != Some(Self::SCHEMA) {
            return None;
        }
        let named: Named = breadcrumb.context.parse().ok()?;
        Some(RunRef::new(
            named.executor,
            named.trigger_id,
            named.trigger_version,
        ))
    }

    /// The breadcrumb it becomes.
    #[must_use]
    pub fn breadcrumb(&self, lease: &Lease, tenant: &str) -> NewBreadcrumb {
        /// The longest part of an executor's id in a tag, so that the tag can be stored.
        const LONGEST: usize = 200;
        let run = &lease.run;
        let executor = crate::error::excerpt(&run.executor, LONGEST);
        let mut context = json!({
            "run_key": lease.key(tenant),
            "executor": &*run.executor,
            "trigger_id": run.trigger_id,
            "trigger_version": run.trigger_version,
            "attempts": self.attempts,
            "class": self.class.as_str(),
            "code": self.code,
            "digest": self.digest,
            "creator": *self.creator,
        });
        if let (Some(context), Some(cause)) = (context.as_object_mut(), &self.cause) {
            context.insert("cause".to_owned(), cause.as_str().into());
        }
        NewBreadcrumb::new(Self::SCHEMA)
            .title(format!("Run failed: {}", run.executor))
            .tags(["executor:failed".to_owned(), format!("executor:{executor}")])
            .tags(self.tags.iter().cloned())
            .created_by(&*run.executor)
            .context(context)
    }
}

/// Why a run gave up.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureClass {
    /// An error that trying again cannot fix.
    Permanent,
    /// Every attempt failed, or the run became too old while it was rate limited.
    AttemptsUsedUp,
    /// The last attempt ran out of time.
    Timeout,
    /// The last attempt panicked.
    Panic,
    /// As many workers in a row died during the run as its profile permits: three by default, see
    /// [`RetryPolicy::crashes`](crate::executor::RetryPolicy::crashes).
    CrashLoop,
    /// The chain of executors that led here is too long.
    HopLimit,
    /// It may run at most once and was interrupted, so nobody knows how far it came.
    OutcomeUnknown,
}

impl FailureClass {
    /// The name in dead letters.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::AttemptsUsedUp => "attempts_used_up",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
            Self::CrashLoop => "crash_loop",
            Self::HopLimit => "hop_limit",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a commit wrote.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Committed {
    /// The new versions, one for each write in order (of a deletion its tombstone), then the dead letter if any.
    pub written: Vec<Arc<Breadcrumb>>,
}

impl Committed {
    /// What was written.
    #[must_use]
    pub fn new(written: Vec<Arc<Breadcrumb>>) -> Self {
        Self { written }
    }

    /// The ids of what was written.
    #[must_use]
    pub fn ids(&self) -> Vec<BreadcrumbId> {
        self.written
            .iter()
            .map(|breadcrumb| breadcrumb.id)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Timestamp;

    #[test]
    fn a_dead_letter_names_its_run_and_nothing_else_does() {
        let run = RunRef::new("echo", BreadcrumbId::NIL, 3);
        let lease = Lease::new(run.clone(), 1, Timestamp::UNIX_EPOCH);
        let letter = DeadLetter::new(FailureClass::Permanent, "error", 1);
        let letter = letter.breadcrumb(&lease, "default");
        let other = NewBreadcrumb::new("note.v1").context(letter.context.clone());
        let read = |new: NewBreadcrumb| {
            let breadcrumb = new.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
            DeadLetter::run_of(&breadcrumb)
        };

        assert_eq!(read(letter), Some(run));
        assert_eq!(read(other), None);
    }
}
