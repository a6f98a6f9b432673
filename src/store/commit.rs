use super::claim::Lease;
use super::lineage::Wake;
use super::run::RunRef;
use crate::model::{Breadcrumb, BreadcrumbId, Json, NewBreadcrumb, Patch};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt;
use std::sync::Arc;

/// Input of [`BreadcrumbStore::commit`](super::BreadcrumbStore::commit): writes, and optionally the end of a run.
///
/// A commit without an end belongs to no run: convert a list of writes with `Commit::from`. A
/// runtime creates the commits with an end.
/// [`BreadcrumbStore::commit`](super::BreadcrumbStore::commit) has an example of the first kind,
/// and [`RunEnd`] of the second.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// The breadcrumb writes of the commit, in the order in which the store applies them. At most [1,000](Self::MAX_WRITES).
    pub writes: Vec<Write>,
    /// The lease and the outcome of the run that makes this commit. The lease fences the whole commit. `None` for writes from
    /// outside of runs.
    pub end: Option<(Lease, RunEnd)>,
}

impl Commit {
    /// Maximum number of writes in one commit.
    ///
    /// A larger commit is [`StoreError::TooManyWrites`](super::StoreError::TooManyWrites). Split
    /// it, and note that other programs can then see a part of the writes.
    pub const MAX_WRITES: usize = 1_000;
}

impl From<Vec<Write>> for Commit {
    /// Creates a commit of these writes that belongs to no run.
    fn from(writes: Vec<Write>) -> Self {
        Self { writes, end: None }
    }
}

/// One write of a commit: the creation, update or deletion of a breadcrumb. Its JSON form is an object with one field: `create`,
/// `update` or `delete`.
///
/// ```
/// use serde_json::json;
/// use universal_executor::NewBreadcrumb;
/// use universal_executor::store::Write;
///
/// let write: Write = serde_json::from_value(json!({
///     "create": {"schema_name": "note.v1", "context": {"text": "a"}},
/// }))?;
/// let note = NewBreadcrumb::new("note.v1").context(json!({"text": "a"}));
/// assert_eq!(write, Write::Create(note));
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Write {
    /// Creates a breadcrumb.
    ///
    /// The store assigns the ID, version 1 and the times.
    Create(NewBreadcrumb),
    /// Updates a breadcrumb from the version that the caller read.
    ///
    /// A missing breadcrumb is [`StoreError::NotFound`](super::StoreError::NotFound). A write later
    /// in the same commit sees the new version.
    Update {
        /// The ID of the breadcrumb to update.
        id: BreadcrumbId,
        /// The version of the breadcrumb that the caller read. The update fails with a conflict if another version is current.
        version: u64,
        /// The fields of the breadcrumb to change, with their new values.
        patch: Patch,
    },
    /// Deletes a breadcrumb, at any version.
    ///
    /// A store with [`Capabilities::tombstones`](super::Capabilities::tombstones) retains the last
    /// version with the next version number.
    Delete {
        /// The ID of the breadcrumb to delete.
        id: BreadcrumbId,
        /// The author of the deletion. It is used only if the store lets the writer choose the author, see
        /// [`Capabilities::chosen_author`](super::Capabilities::chosen_author).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
}

/// The outcome of a run or of its current attempt, which a commit stores in the ledger together with the written breadcrumbs.
///
/// A runtime chooses the end from the result of the executor. An own worker passes it with the
/// lease of the [claim](super::RunLedger::claim):
///
/// ```
/// use universal_executor::store::{Claim, Commit, RunEnd, RunRef, Write};
/// use universal_executor::{
///     BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
/// let run = RunRef::new("pricing", order.id, order.version);
/// let Claim::Granted(claimed) = store.claim(&run, None).await? else {
///     return Err("another worker has the run".into());
/// };
/// let quote = Write::Create(NewBreadcrumb::new("quote.v1"));
/// let end = Some((claimed.lease, RunEnd::Done));
/// store.commit(Commit { writes: vec![quote], end }).await?;
///
/// let again = store.claim(&run, None).await?;
/// assert!(matches!(again, Claim::Done { written, .. } if written.len() == 1));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub enum RunEnd {
    /// The run succeeded, and the writes of the commit are its response.
    Done,
    /// The run waits for a breadcrumb or a time. Its lease ends, and its attempts are counted from 0 again. The commit fails if
    /// the run could wait for ever, see [`Wake::check`].
    Suspended {
        /// The breadcrumbs or the time that the suspended run waits for.
        wake: Wake,
        /// The state that the suspended run saved, from which its next attempt continues.
        state: Json,
    },
    /// The run failed for good. The store writes the dead letter in the same step.
    ///
    /// Only [`redo`](super::RunLedger::redo) repeats the run.
    Failed(DeadLetter),
    /// The executor had nothing to do for the trigger. The reason is `gone`, `unmatched`, `own` or `hop_limit`.
    ///
    /// `gone` means that the trigger was deleted. `unmatched` means that no subscription matches
    /// it, see [`UNMATCHED`](Self::UNMATCHED). `own` means that the executor itself wrote it.
    /// `hop_limit` means that the trigger is a dead letter at the hop limit.
    Skipped(&'static str),
    /// The run ends without a response, because a later version of its trigger has its own run.
    Superseded,
    /// The run is not over: its attempt continues after this commit. The ledger records the writes as the work of this run, and
    /// the lease fences them.
    ///
    /// A runtime commits the breadcrumbs that an executor writes during an attempt this way. The
    /// lease stays valid for the next commit.
    Continues,
}

impl RunEnd {
    /// Reason of a [skipped](Self::Skipped) run: the executor's subscriptions do not match the trigger.
    ///
    /// [`redo`](super::RunLedger::redo) repeats such a run, for example after the subscriptions
    /// changed.
    pub const UNMATCHED: &'static str = "unmatched";

    /// The string `cancelled`, which is the reason and the error code of a run that was [cancelled](super::RunLedger::cancel).
    pub const CANCELLED: &'static str = "cancelled";
}

/// Record of a run that failed for good: an `executor.failed.v1` breadcrumb that names the run and the cause, without the
/// trigger's payload.
///
/// A client finds dead letters by the schema name [`SCHEMA`](Self::SCHEMA), corrects the cause and
/// redoes the run. The breadcrumb has the tags `executor:failed` and `executor:<executor ID>`.
///
/// ```
/// use universal_executor::BreadcrumbId;
/// use universal_executor::model::Timestamp;
/// use universal_executor::store::{DeadLetter, FailureClass, Lease, RunRef};
///
/// let run = RunRef::new("pricing", BreadcrumbId::NIL, 1);
/// let lease = Lease::new(run, 1, Timestamp::UNIX_EPOCH);
/// let letter = DeadLetter::new(FailureClass::Permanent, "error", 1).breadcrumb(&lease, "default");
///
/// assert_eq!(letter.schema_name.as_deref(), Some(DeadLetter::SCHEMA));
/// assert_eq!(letter.context["class"], "permanent");
/// assert_eq!(letter.tags, ["executor:failed", "executor:pricing"]);
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The class of the run's failure.
    pub class: FailureClass,
    /// The code of the error that ended the run, such as `error`, `conflict` or `rate_limited`.
    pub code: String,
    /// SHA-256 of the error message, as hexadecimal digits. Equal failures can be counted by it without reading their messages.
    pub digest: String,
    /// Cause of the run's failure: the error and its sources, without credentials, at most [1,000 bytes](Self::LONGEST_CAUSE).
    /// [`Profile::hide_errors`](crate::Profile::hide_errors) omits the executor's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The number of attempts of the failed run.
    pub attempts: u32,
    /// The tags that the dead letter inherits from the trigger.
    pub tags: Vec<String>,
    /// The origin of the failure as JSON: executor, trigger and lineage, like the `creator` field of a response. Null if the
    /// trigger could not be read.
    pub creator: Json,
}

impl DeadLetter {
    /// The schema name of a dead letter.
    pub const SCHEMA: &'static str = "executor.failed.v1";

    /// Maximum length of a dead letter's cause in bytes, 1,000. A store truncates a longer cause.
    pub const LONGEST_CAUSE: usize = 1_000;

    /// Creates a dead letter without digest, cause, tags and creator.
    ///
    /// `attempts` is the number of attempts that the run has used. Set the other fields on the
    /// result.
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

    /// Returns the run whose failure a dead letter breadcrumb records, so that the caller can [redo](super::RunLedger::redo) the
    /// run. Returns `None` if the breadcrumb is not a dead letter.
    ///
    /// Any program can write a breadcrumb that looks like a dead letter. Check the permissions of the requester before you redo
    /// the run.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::{
    ///     Claim, Commit, DeadLetter, FailureClass, RunEnd, RunRef, RunState,
    /// };
    /// use universal_executor::{
    ///     BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// # let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// # let run = RunRef::new("pricing", order.id, order.version);
    /// # let claim = store.claim(&run, None).await?;
    /// # let Claim::Granted(claimed) = claim else { return Err("claimed".into()) };
    /// # let letter = DeadLetter::new(FailureClass::Permanent, "error", 1);
    /// # let end = Some((claimed.lease, RunEnd::Failed(letter)));
    /// # store.commit(Commit { writes: Vec::new(), end }).await?;
    /// // A run of the executor `pricing` has failed.
    /// for letter in store.recent(DeadLetter::SCHEMA, 100).await? {
    ///     if let Some(run) = DeadLetter::run_of(&letter) {
    ///         store.redo(&run).await?;
    ///     }
    /// }
    /// # let page = store.runs_page(&universal_executor::store::RunQuery::all()).await?;
    /// # assert_eq!(page.runs[0].state, RunState::Ready);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
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

    /// Returns the breadcrumb that records this dead letter in a store.
    ///
    /// A store calls it in the commit that ends the run. The executor ID in its tag is truncated to
    /// 200 bytes. The author is the executor.
    #[must_use]
    pub fn breadcrumb(&self, lease: &Lease, tenant: &str) -> NewBreadcrumb {
        /// Maximum length in bytes of the part of the executor ID that a tag contains, so that the tag is not too long to be
        /// stored.
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

/// Reason for which a run failed for good.
///
/// It is the field `class` of a dead letter, and [`Run::reason`](super::Run::reason) of a failed
/// run. Its [`code`](DeadLetter::code) names the error more precisely.
///
/// ```
/// use universal_executor::store::FailureClass;
///
/// assert_eq!(FailureClass::AttemptsUsedUp.as_str(), "attempts_used_up");
/// assert_eq!(serde_json::to_value(FailureClass::CrashLoop)?, "crash_loop");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureClass {
    /// A retry cannot fix the error that ended the run.
    ///
    /// An executor returns such an error with [`permanent`](crate::permanent). Correct the input,
    /// the code or the configuration, then redo the run.
    Permanent,
    /// The last permitted attempt of the run failed, or the run became too old while it was rate limited.
    ///
    /// The cause can be temporary, such as an outage. Redo the run after the outage.
    AttemptsUsedUp,
    /// The last attempt of the run reached its time limit.
    ///
    /// Raise the limit, or let the executor save its progress.
    Timeout,
    /// The last attempt of the run panicked.
    Panic,
    /// The worker died in each of several consecutive attempts of the run: in three by default, see
    /// [`RetryPolicy::crashes`](crate::executor::RetryPolicy::crashes).
    ///
    /// The trigger probably kills the process, for example by memory use. Inspect it before a redo.
    CrashLoop,
    /// The chain of runs that led to the trigger is longer than the hop limit.
    ///
    /// Two executors probably trigger each other without an end.
    HopLimit,
    /// The run may be executed at most once and was interrupted, so its outcome is unknown.
    ///
    /// Check the outcome at the external service before a redo.
    OutcomeUnknown,
}

impl FailureClass {
    /// Returns the name of the failure class in dead letters, such as `permanent`.
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

/// Result of a successful commit: the breadcrumbs that it wrote.
///
/// [`BreadcrumbStore::commit`](super::BreadcrumbStore::commit) returns it. Use the new versions for
/// the next updates, so that no read is necessary.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Committed {
    /// The written breadcrumbs, one for each write, in the order of the writes. A deletion has its tombstone. The dead letter of
    /// a failed run comes last.
    pub written: Vec<Arc<Breadcrumb>>,
}

impl Committed {
    /// Creates the result of a commit from the breadcrumbs that it wrote.
    #[must_use]
    pub fn new(written: Vec<Arc<Breadcrumb>>) -> Self {
        Self { written }
    }

    /// Returns the IDs of the breadcrumbs that the commit wrote.
    ///
    /// The order is that of [`written`](Self::written).
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
