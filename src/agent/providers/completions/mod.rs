//! The chat completions protocol of OpenAI, for models over HTTP and by breadcrumbs: pure.

mod answer;
pub(super) mod failure;
mod names;
mod request;
pub(super) mod thoughts;

pub(super) use answer::AnswerReader;
#[cfg(feature = "genai")]
pub(super) use answer::unreadable;
pub(super) use names::Names;
pub(super) use request::Form;
