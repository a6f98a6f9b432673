#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "openai")]
mod openai;
#[cfg(feature = "openai")]
mod secret;

#[cfg(feature = "cli")]
pub use cli::{CliError, CliProvider, RawOutput};
#[cfg(feature = "openai")]
pub use openai::{OpenAiCompatible, OpenAiCompatibleBuilder, ProviderError};
#[cfg(feature = "openai")]
pub use secret::Secret;
