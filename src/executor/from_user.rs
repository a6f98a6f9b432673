//! Detection of triggers that contain the words of a user.

use super::context::ExecutionContext;
use super::context_error::ContextError;
use super::for_model::CHAT_MESSAGE;
use super::provenance::has_creator;
use crate::store::WrittenBy;

/// The tag of a chat message that contains no words of a user. The library writes such messages outside of a run.
pub(crate) const DATA_TAG: &str = "ux:data";

impl ExecutionContext {
    /// Sets the result of [`is_from_user`](Self::is_from_user) for a message to a workload, because no ledger records the writer
    /// of the message.
    #[cfg(feature = "workloads")]
    pub(crate) fn with_from_user(self, is_from_user: bool) -> Self {
        self.run().from_user.get_or_init(|| is_from_user);
        self
    }

    /// Returns `true` if the trigger contains the words of a user: a chat message that no run wrote. A model receives these words
    /// as instructions, and everything else as data.
    ///
    /// The records of the store decide, because a `creator` can be forged. Without records, a message without `creator` counts,
    /// because the library stamps every context that a run writes. In a run within a run, the outer run decides.
    ///
    /// # Errors
    /// [`ContextError::Store`] if the store cannot read its records.
    pub(crate) async fn is_from_user(&self) -> Result<bool, ContextError> {
        let run = self.run();
        if run.state_storage.is_some() {
            return Ok(run.for_user);
        }
        if let Some(known) = run.from_user.get() {
            return Ok(*known);
        }
        let trigger = self.trigger();
        let schema = trigger.schema_name.as_deref();
        if trigger.tags.iter().any(|tag| tag == DATA_TAG) {
            return Ok(false);
        }
        let found = match (&run.terms, schema) {
            (None, Some(CHAT_MESSAGE)) => !has_creator(trigger),
            (Some(_), Some(CHAT_MESSAGE)) => match run.written_by(trigger).await? {
                Some(WrittenBy::Outside) => true,
                Some(WrittenBy::Executor(_) | WrittenBy::Unknown) => false,
                None => !has_creator(trigger),
            },
            (Some(_) | None, Some(_) | None) => false,
        };
        Ok(*run.from_user.get_or_init(|| found))
    }
}
