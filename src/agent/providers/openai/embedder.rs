//! Embedder for the embeddings API of OpenAI, over the same HTTP client as chat requests.

use super::http::Body;
use super::{OpenAiCompatible, builder};
use crate::agent::ModelError;
use crate::agent::providers::ProviderError;
use crate::agent::providers::completions::failure::{ErrorResponse, classify};
use crate::error::Retry;
use crate::model::parse_as;
use crate::store::embedding::{EmbedError, Embedder};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

/// An [`Embedder`] for endpoints with OpenAI's embeddings API, such as OpenAI, Ollama, vLLM and llama.cpp (feature `openai`).
///
/// Create one with [`OpenAiCompatible::builder`], which sets keys, timeouts and limits. The embedder makes no retries; the store that
/// uses it does. Fields that hints exclude are not sent.
///
/// All strings of one call are one request. The
/// store rejects vectors with another number of dimensions.
///
/// ```no_run
/// use universal_executor::MemoryStore;
/// use universal_executor::agent::OpenAiCompatible;
/// use universal_executor::store::MemoryLimits;
/// use universal_executor::store::embedding::EmbeddingConfig;
///
/// # fn example() -> Result<(), universal_executor::BoxError> {
/// let embedder = OpenAiCompatible::builder("https://api.openai.com/v1")
///     .key_from_env("OPENAI_API_KEY")
///     .model("text-embedding-3-small")
///     .embedder(1_536)?;
/// let store = MemoryStore::with_embeddings(MemoryLimits::default(), EmbeddingConfig::new(embedder).later());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OpenAiEmbedder {
    inner: OpenAiCompatible,
    model: String,
    dimensions: usize,
    asks_for_dimensions: bool,
}

impl OpenAiEmbedder {
    pub(super) fn new(inner: OpenAiCompatible, model: String, dimensions: usize) -> Self {
        Self {
            inner,
            model,
            dimensions,
            asks_for_dimensions: false,
        }
    }

    /// Adds the embedder's number of dimensions to each request, so that the model shortens its vectors to this number. Only models that
    /// can shorten their vectors accept the number.
    ///
    /// By default the request has no number, and `dimensions` must be that of the model.
    ///
    /// # Examples
    /// ```no_run
    /// use universal_executor::agent::OpenAiCompatible;
    ///
    /// let embedder = OpenAiCompatible::builder("https://api.openai.com/v1")
    ///     .model("text-embedding-3-small") // 1,536 dimensions
    ///     .embedder(512)?
    ///     .shortened();
    /// # drop(embedder);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn shortened(mut self) -> Self {
        self.asks_for_dimensions = true;
        self
    }

    async fn request(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        let mut request_json =
            json!({"model": self.model, "input": texts, "encoding_format": "float"});
        if self.asks_for_dimensions
            && let Some(fields) = request_json.as_object_mut()
        {
            fields.insert("dimensions".to_owned(), self.dimensions.into());
        }
        let key = self.inner.key.get().await?;
        let body = Body::request(&self.inner, request_json.to_string(), key.as_ref()).await?;
        let text = body.read_all().await?;
        let answer: EmbeddingsResponse =
            parse_as(&text).map_err(|_| ModelError::bad_answer("expected a list of vectors"))?;
        if let Some(error) = answer.error.filter(|error| !error.is_null()) {
            return Err(classify(
                &ErrorResponse::from_answer(&error).without_key(key.as_ref()),
            ));
        }
        let mut data = answer.data;
        // Not every endpoint returns the vectors in the order of the texts.
        data.sort_by_key(|vector| vector.index);
        Ok(data.into_iter().map(|vector| vector.embedding).collect())
    }
}

#[async_trait]
impl Embedder for OpenAiEmbedder {
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let answer = self.request(texts).await;
        answer.map_err(|error| embed_error(&self.model, error))
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn model(&self) -> &str {
        &self.model
    }
}

/// The response of an embeddings endpoint: vectors or an error.
#[derive(Deserialize)]
struct EmbeddingsResponse {
    #[serde(default)]
    data: Vec<Data>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    index: usize,
    embedding: Vec<f32>,
}

/// Returns the [`EmbedError`] for a failed embeddings request.
fn embed_error(model: &str, error: ModelError) -> EmbedError {
    let model = model.to_owned();
    let is_about_the_text = matches!(
        error,
        ModelError::ContextTooLong
            | ModelError::Refused { .. }
            | ModelError::Rejected {
                status: 400 | 422,
                ..
            }
    );
    // Some servers return such errors for a text that they cannot embed.
    let may_be_about_the_text = matches!(
        error,
        ModelError::Unavailable(_) | ModelError::BadAnswer { .. }
    );
    match error.retry() {
        Retry::After(_) if may_be_about_the_text => EmbedError::Failed {
            model,
            source: error.into(),
        },
        Retry::After(retry_after) => EmbedError::Unavailable {
            model,
            retry_after,
            source: error.into(),
        },
        Retry::Never if is_about_the_text => EmbedError::Refused {
            model,
            source: error.into(),
        },
        Retry::Never => EmbedError::Unusable {
            model,
            source: error.into(),
        },
    }
}

impl builder::OpenAiCompatibleBuilder {
    /// Builds an embedder instead of a model. `dimensions` is the length of the model's vectors, and `/embeddings` is added to the base
    /// URL.
    ///
    /// The settings of the builder apply, except [`join_user_messages`](Self::join_user_messages).
    ///
    /// # Errors
    /// [`ProviderError`] if the URL or the key cannot be used, or if no [`model`](Self::model) is set.
    pub fn embedder(self, dimensions: usize) -> Result<OpenAiEmbedder, ProviderError> {
        let inner = self.build_at(&["embeddings"])?;
        let model = inner.model.clone().ok_or(ProviderError::NoModel)?;
        Ok(OpenAiEmbedder::new(inner, model, dimensions))
    }
}
