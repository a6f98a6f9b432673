use super::GenaiModel;
use super::reader::Reader;
use crate::agent::providers::key::{Key, KeySource};
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

/// Builder of a [`GenaiModel`].
///
/// [`GenaiModel::builder`] creates it.
///
/// # Examples
/// ```
/// use universal_executor::agent::{GenaiModel, ProviderError};
///
/// let error = GenaiModel::builder("Anthropic", "claude-sonnet-4-5").build().unwrap_err();
/// assert!(matches!(error, ProviderError::UnknownProvider { .. })); // lower case is needed
/// ```
#[must_use]
pub struct GenaiModelBuilder {
    provider: String,
    model: String,
    base_url: Option<String>,
    key: KeySource,
    timeouts: Timeouts,
    max_bytes: usize,
}

impl GenaiModelBuilder {
    pub(super) fn new(provider: String, model: String) -> Self {
        Self {
            provider,
            model,
            base_url: None,
            key: KeySource::Key(Key::Absent),
            timeouts: Timeouts::default(),
            max_bytes: 16 << 20,
        }
    }

    /// Sets the provider's base URL, for example `https://api.anthropic.com/v1`. Requests add the paths of the protocol to the base URL.
    /// Defaults to the provider's own endpoint.
    ///
    /// Use it for a proxy or a private endpoint. The URL must be `http` or `https`, without
    /// credentials, query and fragment.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Sets the API key of the provider. By default an empty key is sent; keys in the environment are not used.
    ///
    /// A later call of a method for keys replaces the key.
    ///
    /// # Examples
    /// ```no_run
    /// use universal_executor::agent::{GenaiModel, Secret};
    ///
    /// let model = GenaiModel::builder("gemini", "gemini-2.5-flash")
    ///     .key(Secret::new("key-1234"))
    ///     .build()?;
    /// assert!(!format!("{model:?}").contains("key-1234"));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn key(mut self, key: Secret) -> Self {
        self.key = KeySource::Key(Key::Fixed(key));
        self
    }

    /// Sets the name of the environment variable with the API key. [`build`](Self::build) reads the variable.
    ///
    /// A missing or empty variable is [`ProviderError::NoKey`]. A later change of the variable has
    /// no effect.
    pub fn key_from_env(mut self, variable: impl Into<String>) -> Self {
        self.key = KeySource::Variable(variable.into());
        self
    }

    /// Sets a function that returns the API key before each model request. Use it for an API key that changes. An error of the
    /// function becomes the source of [`ModelError::Unavailable`](crate::agent::ModelError::Unavailable), so it must not contain
    /// the key.
    ///
    /// A key with characters that an HTTP header cannot contain is
    /// [`ModelError::Unauthorized`](crate::agent::ModelError::Unauthorized).
    pub fn key_from<F, T>(mut self, ask: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Secret, BoxError>> + Send + 'static,
    {
        self.key = KeySource::Key(Key::from_function(ask));
        self
    }

    /// Sets the maximum time to connect to the provider. Defaults to ten seconds.
    ///
    /// After the limit the error is [`ModelError::TimedOut`](crate::agent::ModelError::TimedOut).
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.connect = limit;
        self
    }

    /// Sets the maximum time without data from the model endpoint, before and during a model answer. Defaults to two minutes,
    /// because a model may think for a long time before its first word.
    ///
    /// After the limit the error is [`ModelError::TimedOut`](crate::agent::ModelError::TimedOut).
    pub fn read_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.read = limit;
        self
    }

    /// Sets the maximum time of a whole model answer. Defaults to ten minutes.
    ///
    /// The timeout of the run's [profile](crate::Profile::timeout), 120 s by default, also limits
    /// each attempt.
    pub fn total_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.total = limit;
        self
    }

    /// Sets the maximum size of a model answer's events in bytes. Defaults to 16 MiB. The events are many times larger than their text.
    ///
    /// More events are [`ModelError::TooLarge`](crate::agent::ModelError::TooLarge).
    pub fn max_bytes(mut self, limit: usize) -> Self {
        self.max_bytes = limit;
        self
    }

    /// Builds the [`GenaiModel`]. This starts a thread that reads answers.
    ///
    /// The thread ends when the model and all its clones are dropped. No request is sent.
    ///
    /// # Errors
    /// [`ProviderError`] if the provider is unknown, the URL or the key cannot be used, the HTTP client cannot be created, or the
    /// operating system refuses the thread.
    pub fn build(self) -> Result<GenaiModel, ProviderError> {
        let provider = provider(self.provider)?;
        let key = self.key.resolve()?;
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

/// The providers that [`GenaiModel`] supports, none of which uses the chat completions protocol. For that protocol, `genai`
/// allocates as many calls as a number in the answer states, without a limit.
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

/// Returns the `genai` endpoint for a base URL. It ends with a slash, because `genai` appends paths without one.
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
    fn an_endpoint_ends_with_one_slash_for_any_base_url() {
        for base in ["http://localhost:1/v1", "http://localhost:1/v1/"] {
            let endpoint = endpoint(&base_url(base).unwrap());
            assert_eq!(endpoint.base_url(), "http://localhost:1/v1/");
        }
    }

    #[test]
    fn an_unknown_provider_is_refused_with_the_supported_names() {
        for name in ["Anthropic", "", "genai_1", "groq"] {
            let error = provider(name.to_owned()).unwrap_err().to_string();
            assert!(
                error.contains("supports anthropic, bedrock_api,"),
                "{error}"
            );
        }
        assert!(provider("anthropic".to_owned()).is_ok());
    }
}
