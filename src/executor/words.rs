//! Detection of triggers that carry the words of a session's user.

use super::context::ExecutionContext;
use super::context_error::ContextError;
use super::provenance::has_creator;
use crate::store::WrittenBy;

/// The schema of chat messages.
pub(crate) const CHAT_MESSAGE: &str = "user.message.v1";

/// The schema of the message of a supervisor's turn. No store contains it.
pub(crate) const TURN_MESSAGE: &str = "workload.message.v1";

impl ExecutionContext {
    /// Returns `true` if the trigger carries the words of a user: a chat message that no run wrote. Its text is an
    /// instruction to a model, and everything else is data.
    ///
    /// The records of the store decide, since a `creator` can be forged. Without records a message without `creator`
    /// counts: the library stamps every context that a run writes. In a run within a run the outer run decides.
    ///
    /// # Errors
    /// [`ContextError::Writer`] if the store cannot read its records.
    pub(crate) async fn is_from_user(&self) -> Result<bool, ContextError> {
        let run = self.run();
        if run.keeper.is_some() {
            return Ok(run.for_user);
        }
        if let Some(known) = run.from_user.get() {
            return Ok(*known);
        }
        let trigger = self.trigger();
        let schema = trigger.schema_name.as_deref();
        let found = match (&run.terms, schema) {
            (None, Some(TURN_MESSAGE)) => true,
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
