//! The user's words in a chat message, which a rendered context does not mark as data.

use super::ModelContext;
use crate::model::Json;

/// The schema of chat messages.
pub(crate) const CHAT_MESSAGE: &str = "user.message.v1";

/// The fields that can contain the words of a chat message, in order of preference.
pub(super) const FIELDS: [&str; 2] = ["message", "content"];

/// Returns the words in the context of a chat message: `message`, else `content`, if it is a string that is not blank.
pub(crate) fn user_text_of(context: &Json) -> Option<&str> {
    FIELDS
        .into_iter()
        .find_map(|field| text_in_field(context, field))
}

pub(super) fn text_in_field<'c>(context: &'c Json, field: &str) -> Option<&'c str> {
    context.text(field).filter(|text| !text.trim().is_empty())
}

impl ModelContext {
    /// Returns `true` if a rendered context has a section for the trigger. A trigger that contained only the words of the user has
    /// none.
    pub(super) fn shows_trigger(&self) -> bool {
        let rest = self.trigger.context.as_object();
        !self.user_text_removed || rest.is_none_or(|rest| !rest.is_empty())
    }
}
