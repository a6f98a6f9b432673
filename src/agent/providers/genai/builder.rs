use super::GenaiModel;
use super::reader::Reader;
use crate::agent::providers::key::{Key, Wanted};
use crate::agent::providers::web::{Timeouts, base_url, endpoint_name};
use crate::agent::providers::{ProviderError, Secret};
use crate::error::BoxError;
use ::genai::Client;
use ::genai::adapter::AdapterKind;
use ::genai::resolver::Endpoint;
use reqwest::Url;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Makes a [`GenaiModel`].
#[must_use]
pub struct GenaiModelBuilder {
    provider: String,
    model: String,
    base_url: Option<String>,
    key: Wanted,
    timeouts: Timeouts,
    max_bytes: usize,
}

impl GenaiModelBuilder {
    pub(super) fn new(provider: String, model: String) -> Self {
        Self {
            provider,
            model,
            base_url: None,
            key: Wanted::Key(Key::Absent),
            timeouts: Timeouts::default(),
            max_bytes: 16 << 20,
        }
    }

    /// Asks another endpoint than the provider's own: the URL to which the paths of its protocol are added, as
    /// `https://api.anthropic.com/v1`.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Sends this key with every request; without one an empty key is sent, and none of the environment.
    pub fn key(mut self, key: Secret) -> Self {
        self.key = Wanted::Key(Key::Fixed(key));
        self
    }

    /// Sends the key that an environment variable has when the model is built.
    pub fn key_from_env(mut self, variable: impl Into<String>) -> Self {
        self.key = Wanted::Variable(variable.into());
        self
    }

    /// Asks for the key before every request, for keys that change. An error of the function is
    /// [`ModelError::Unavailable`](crate::agent::ModelError::Unavailable), so it must not have the key in it.
    pub fn key_from<F, T>(mut self, ask: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Secret, BoxError>> + Send + 'static,
    {
        self.key = Wanted::Key(Key::asked(ask));
        self
    }

    /// How long a connection may take; ten seconds by default.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.connect = limit;
        self
    }

    /// How long the endpoint may say nothing, before it answers or in the middle; two minutes by default, as a model may
    /// think for long before the first word.
    pub fn read_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.read = limit;
        self
    }

    /// How long a whole answer may take; ten minutes by default.
    pub fn total_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.total = limit;
        self
    }

    /// How many bytes of events are read of an answer; 16 MiB by default. An answer has many times the bytes of its text.
    pub fn max_bytes(mut self, limit: usize) -> Self {
        self.max_bytes = limit;
        self
    }

    /// The model.
    ///
    /// # Errors
    /// [`ProviderError`] if there is no such provider, the URL or the key cannot be used, or the operating system refuses
    /// the thread that reads answers.
    pub fn build(self) -> Result<GenaiModel, ProviderError> {
        let provider = provider(self.provider)?;
        let key = self.key.found()?;
        let url = self.base_url.as_deref().map(base_url).transpose()?;
        if let Some(url) = &url {
            key.warn_if_exposed(url);
        }
        let endpoint = url.as_ref().map(endpoint);
        let name = match &url {
            Some(url) => format!("genai:{}:{}", provider.as_lower_str(), endpoint_name(url)),
            None => format!("genai:{}", provider.as_lower_str()),
        };
        let client = Client::builder()
            .with_reqwest(self.timeouts.client()?)
            .build()
            .map_err(|error| ProviderError::Http(error.into()))?;
        Ok(GenaiModel {
            client,
            provider,
            name,
            endpoint,
            key,
            model: self.model,
            max_bytes: self.max_bytes,
            total_timeout: self.timeouts.total,
            reader: Arc::new(Reader::start().map_err(ProviderError::Thread)?),
        })
    }
}

/// The providers that do not speak chat completions. Of those that do `genai` makes room for as many calls as a number in
/// the answer says, without a limit.
const PROVIDERS: [AdapterKind; 10] = [
    AdapterKind::Anthropic,
    AdapterKind::BedrockApi,
    AdapterKind::Cohere,
    AdapterKind::Gemini,
    AdapterKind::GeminiIx,
    AdapterKind::MiniMax,
    AdapterKind::Ollama,
    AdapterKind::OllamaCloud,
    AdapterKind::OpenAIResp,
    AdapterKind::Vertex,
];

fn provider(name: String) -> Result<AdapterKind, ProviderError> {
    let mut all = PROVIDERS.into_iter();
    all.find(|kind| kind.as_lower_str() == name).ok_or_else(|| {
        let known = PROVIDERS.map(|kind| kind.as_lower_str()).join(", ");
        ProviderError::UnknownProvider { name, known }
    })
}

/// Paths are added to it as they are, so it has to end with a slash.
fn endpoint(base: &Url) -> Endpoint {
    let text = base.as_str().trim_end_matches('/');
    Endpoint::from_owned(format!("{text}/"))
}

impl fmt::Debug for GenaiModelBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenaiModelBuilder")
            .field("provider", &self.provider)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_ends_with_one_slash_whether_or_not_the_url_does() {
        for base in ["http://localhost:1/v1", "http://localhost:1/v1/"] {
            let endpoint = endpoint(&base_url(base).unwrap());
            assert_eq!(endpoint.base_url(), "http://localhost:1/v1/");
        }
    }

    #[test]
    fn a_provider_that_is_not_known_is_refused_with_those_that_are() {
        for name in ["Anthropic", "", "genai_1", "groq"] {
            let error = provider(name.to_owned()).unwrap_err().to_string();
            assert!(
                error.contains("known are anthropic, bedrock_api,"),
                "{error}"
            );
        }
        assert!(provider("anthropic".to_owned()).is_ok());
    }
}
