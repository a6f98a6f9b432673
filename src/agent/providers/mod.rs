mod by_breadcrumb;
#[cfg(feature = "cli")]
mod cli;
mod completions;
#[cfg(feature = "openai")]
mod openai;
mod secret;

pub use by_breadcrumb::model_tool;
pub(super) use by_breadcrumb::{input_of, response_of};
#[cfg(feature = "cli")]
pub use cli::{CliError, CliProvider, RawOutput};
#[cfg(feature = "openai")]
pub use openai::{OpenAiCompatible, OpenAiCompatibleBuilder, OpenAiEmbedder, ProviderError};
pub use secret::Secret;
