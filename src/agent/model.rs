use super::ModelError;
use async_trait::async_trait;

/// A language model that answers a list of messages.
#[async_trait]
pub trait ChatModel: Send + Sync {
    /// Asks the model once.
    ///
    /// # Errors
    /// [`ModelError`] says whether asking again could succeed.
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError>;
}

/// What a model is asked.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ChatRequest {
    /// Which model, by the provider's name; the provider's default if absent.
    pub model: Option<String>,
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// How freely it answers; the provider's default if absent.
    pub temperature: Option<f64>,
}

impl ChatRequest {
    /// A request of some messages.
    #[must_use]
    pub fn new(messages: Vec<Message>) -> Self {
        Self {
            messages,
            ..Self::default()
        }
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Message {
    /// Who says it.
    pub speaker: Speaker,
    /// What is said.
    pub text: String,
}

impl Message {
    /// What the agent's author says.
    #[must_use]
    pub fn system(text: impl Into<String>) -> Self {
        Self {
            speaker: Speaker::System,
            text: text.into(),
        }
    }

    /// What comes from outside.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self {
            speaker: Speaker::User,
            text: text.into(),
        }
    }

    /// What the model said before.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self {
            speaker: Speaker::Assistant,
            text: text.into(),
        }
    }
}

/// Who says a message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Speaker {
    /// The agent's author: instructions.
    System,
    /// Whoever is outside: data.
    User,
    /// The model.
    Assistant,
}

/// What a model answered.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ChatResponse {
    /// What it said.
    pub text: String,
    /// What that cost.
    pub usage: Usage,
}

impl ChatResponse {
    /// An answer.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            usage: Usage::default(),
        }
    }
}

/// How many tokens a request took.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Usage {
    /// Read.
    pub input_tokens: u64,
    /// Written.
    pub output_tokens: u64,
}
