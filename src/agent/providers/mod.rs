mod by_breadcrumb;
mod completions;
#[cfg(feature = "openai")]
mod openai;
mod secret;

pub use by_breadcrumb::model_tool;
#[expect(unused_imports, reason = "runs of agents take them up")]
pub(super) use by_breadcrumb::{input_of, response_of};
#[cfg(feature = "openai")]
pub use openai::{OpenAiCompatible, OpenAiCompatibleBuilder, ProviderError};
pub use secret::Secret;
