mod openai;
mod secret;

pub use openai::{OpenAiCompatible, OpenAiCompatibleBuilder, ProviderError};
pub use secret::Secret;
