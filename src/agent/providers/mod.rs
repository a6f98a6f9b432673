mod by_breadcrumb;
#[cfg(feature = "cli")]
mod cli;
mod completions;
#[cfg(feature = "genai")]
mod genai;
#[cfg(any(feature = "genai", feature = "openai"))]
mod key;
#[cfg(feature = "openai")]
mod openai;
#[cfg(any(feature = "genai", feature = "openai"))]
mod provider_error;
#[cfg(any(feature = "genai", feature = "openai"))]
mod web;

#[cfg(feature = "genai")]
pub use self::genai::{GenaiModel, GenaiModelBuilder};
pub use crate::secret::Secret;
pub use by_breadcrumb::model_tool;
pub(super) use by_breadcrumb::{input_of, response_of};
#[cfg(feature = "cli")]
pub use cli::{CliError, CliProvider, RawOutput};
#[cfg(feature = "openai")]
pub use openai::{OpenAiCompatible, OpenAiCompatibleBuilder, OpenAiEmbedder};
#[cfg(any(feature = "genai", feature = "openai"))]
pub use provider_error::ProviderError;
