//! OpenAI's chat completions protocol, for models over HTTP and for models that are tools of another service. The module does no
//! I/O.

mod answer;
pub(super) mod failure;
mod names;
pub(super) mod provider_state;
mod request;

pub(super) use answer::AnswerReader;
#[cfg(feature = "genai")]
pub(super) use answer::unreadable;
pub(super) use names::Names;
pub(super) use request::Form;
