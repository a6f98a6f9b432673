//! Semantic search: an [`Embedder`] turns strings into vectors, and a store finds the breadcrumbs with the most similar vectors.
//!
//! Use this module when agents or programs must find breadcrumbs by meaning, such as notes on a
//! topic. For exact values, tags and times, use a [`Query`](super::Query) without an embedder: it
//! is faster and calls no model.
//!
//! A store with an [`EmbeddingConfig`] saves a vector for each breadcrumb and supports
//! [`vector_search`](super::BreadcrumbStore::vector_search). A subscription with a `vector` fetch then finds the breadcrumbs whose
//! meaning is similar to the trigger.
//!
//! ```
//! use serde_json::json;
//! use universal_executor::store::embedding::{EmbedError, Embedder, EmbeddingConfig};
//! use universal_executor::store::{MemoryLimits, Query, VectorQuery};
//! use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Selector, async_trait};
//!
//! /// Counts letters. A real embedder runs a model.
//! #[derive(Debug)]
//! struct Letters;
//!
//! #[async_trait]
//! impl Embedder for Letters {
//!     async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
//!         let count = |text: &String| ('a'..='z').map(|letter| text.matches(letter).count() as f32).collect();
//!         Ok(texts.iter().map(count).collect())
//!     }
//!
//!     fn dimensions(&self) -> usize {
//!         26
//!     }
//!
//!     fn model(&self) -> &str {
//!         "letters"
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let store = MemoryStore::with_embeddings(MemoryLimits::default(), EmbeddingConfig::new(Letters));
//! for text in ["a balloon", "the zoo is full of zebras"] {
//!     store.create(NewBreadcrumb::new("note.v1").context(json!({"text": text}))).await?;
//! }
//!
//! let zebra = VectorQuery::new(Query::new(Selector::schema("note.v1")).limit(1), "zebra");
//! let found = store.vector_search(&zebra).await?;
//! assert_eq!(found[0].breadcrumb.context["text"], "the zoo is full of zebras");
//! # Ok::<(), universal_executor::BoxError>(())
//! # })?;
//! # Ok::<(), universal_executor::BoxError>(())
//! ```
//!
//! # Embedded text
//! The embedded text of a breadcrumb is its title and its context, one value per line. LLM hints filter the context in the same way
//! as for a model: the breadcrumb's hints, or else the hints of its schema definition. A string is a line by itself. A number or a
//! boolean follows its field name. The text ends after [`MAX_TEXT_BYTES`] bytes. A breadcrumb has no vector if its hints are invalid
//! or if its text is empty. A changed schema definition has no effect on existing vectors.
//!
//! A breadcrumb whose text the embedder rejects has no vector either. The store retries it after the breadcrumb changes or after the
//! vectors were deleted with `forget_vectors`. If the embedder is down, the store retries until the embedder answers.
//!
//! # Time of embedding
//! By default, a commit returns when its breadcrumbs have vectors, or after [`EmbeddingConfig::commit_timeout`]. With
//! [`EmbeddingConfig::later`], the store embeds in the background. A commit never fails because of the embedder.
//!
//! The next use of the tenant starts a background task that embeds all breadcrumbs without a vector. These include breadcrumbs
//! from before the store had an embedder, or from shortly before a crash.
//!
//! # Limits
//! The search compares vectors only and has no keyword search. Stores compare the query with the vector of every breadcrumb that the
//! selector matches. Only a PostgreSQL store can have an index, which is faster for large tables and approximate.
//!
//! # Types to start with
//! - [`Embedder`]: implement it for your embedding model. `LocalEmbedder` (feature `embed-local`)
//!   and `agent::OpenAiEmbedder` (feature `openai`) are ready.
//! - [`EmbeddingConfig`]: pass it to
//!   [`MemoryStore::with_embeddings`](super::MemoryStore::with_embeddings),
//!   `SqliteBuilder::embeddings` or `PostgresBuilder::embeddings`.
//! - [`VectorQuery`](super::VectorQuery): the query of
//!   [`vector_search`](super::BreadcrumbStore::vector_search).
//! - [`EmbedError`]: the error of an embedder.

mod batch;
#[cfg(feature = "embed-local")]
mod local;
mod maintainer;
mod nearest;
mod text;
mod vector;

pub use super::embed_error::EmbedError;
#[cfg(feature = "embed-local")]
pub use local::LocalEmbedder;

pub(in crate::store) use maintainer::{
    BreadcrumbVector, UnembeddedPage, VectorMaintainer, VectorMaintainers, VectorStore, deleted,
};
pub(in crate::store) use nearest::Nearest;
pub(in crate::store) use vector::similarity;
#[cfg(feature = "sqlite")]
pub(in crate::store) use vector::{from_bytes, to_bytes};

use async_trait::async_trait;
use futures::FutureExt as _;
use std::fmt::Debug;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of the embedded text of a breadcrumb or a query in bytes (4 KiB). The rest of a longer text is not embedded.
///
/// The text is cut at a character boundary.
pub const MAX_TEXT_BYTES: usize = 4 << 10;

/// A model that turns strings into vectors. Strings with a similar meaning have vectors of a similar direction.
///
/// The [module](self) has an example. An `Arc<dyn Embedder>` is an embedder too. A panic of
/// [`embed`](Self::embed) counts as [`EmbedError::Failed`].
#[async_trait]
pub trait Embedder: Debug + Send + Sync + 'static {
    /// Returns one vector per string, in the order of the strings. Stores use only the direction of a vector, so its length is
    /// arbitrary. A zero vector counts as no vector.
    ///
    /// A store passes at most [`batch`](EmbeddingConfig::batch()) strings, each of at most
    /// [`MAX_TEXT_BYTES`] bytes. A response with another number of vectors, another number of
    /// dimensions or a number that is not finite is [`EmbedError::BadAnswer`].
    ///
    /// # Errors
    /// Returns an [`EmbedError`], whose variant determines if and when the store retries.
    ///
    /// # Cancel safety
    /// A store drops the future after [`EmbeddingConfig::commit_timeout`], and embeds the strings
    /// again later.
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// Returns the number of elements of each vector that the embedder returns.
    ///
    /// The number must not change. PostgreSQL can index at most 2,000 dimensions.
    fn dimensions(&self) -> usize;

    /// Returns the unique name of the embedding model. A store saves the name, because vectors of two models cannot be compared.
    ///
    /// Choose another name for each version of a model whose vectors differ. SQLite and PostgreSQL
    /// stores reject an embedder with another name than the saved one.
    fn model(&self) -> &str;
}

#[async_trait]
impl<E: Embedder + ?Sized> Embedder for Arc<E> {
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        (**self).embed(texts).await
    }

    fn dimensions(&self) -> usize {
        (**self).dimensions()
    }

    fn model(&self) -> &str {
        (**self).model()
    }
}

/// Configuration of vector search in a store. It sets the embedder, the batch size, and whether commits wait for their vectors.
///
/// A commit that waits costs at least one call of the embedder. Use [`later`](Self::later()) for
/// writers that must be fast, and accept that a search can miss the newest breadcrumbs.
///
/// ```
/// # use universal_executor::async_trait;
/// # use universal_executor::store::embedding::{EmbedError, Embedder};
/// use std::time::Duration;
/// use universal_executor::store::embedding::EmbeddingConfig;
/// use universal_executor::store::MemoryLimits;
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
///
/// # #[derive(Debug)]
/// # struct MyEmbedder;
/// # #[async_trait]
/// # impl Embedder for MyEmbedder {
/// #     async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
/// #         Ok(texts.iter().map(|text| vec![text.len() as f32, 1.0]).collect())
/// #     }
/// #     fn dimensions(&self) -> usize { 2 }
/// #     fn model(&self) -> &str { "lengths" }
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let config = EmbeddingConfig::new(MyEmbedder)
///     .later()
///     .batch(100)
///     .commit_timeout(Duration::from_secs(2)); // has no effect with `later`
/// let store = MemoryStore::with_embeddings(MemoryLimits::default(), config);
/// store.create(NewBreadcrumb::new("note.v1").title("a balloon")).await?;
///
/// // Wait until each breadcrumb has a vector. The embedder rejected none.
/// assert_eq!(store.embedded().await?, 0);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct EmbeddingConfig {
    embedder: Arc<dyn Embedder>,
    later: bool,
    batch: usize,
    commit_timeout: Duration,
}

impl EmbeddingConfig {
    /// Creates a configuration with which each commit waits for the vectors of the breadcrumbs that it writes.
    #[must_use]
    pub fn new(embedder: impl Embedder) -> Self {
        Self {
            embedder: Arc::new(embedder),
            later: false,
            batch: 32,
            commit_timeout: Duration::from_secs(5),
        }
    }

    /// Embeds breadcrumbs in the background, so that no commit waits for the embedder.
    ///
    /// [`commit_timeout`](Self::commit_timeout) then has no effect. Call `embedded` of the store to
    /// wait for the vectors.
    #[must_use]
    pub fn later(mut self) -> Self {
        self.later = true;
        self
    }

    /// Sets the maximum number of strings in one call of the embedder, clamped to 1 to 1,000. Defaults to 32.
    ///
    /// Choose the maximum batch of the model's API, to save calls.
    #[must_use]
    pub fn batch(mut self, texts: usize) -> Self {
        self.batch = texts.clamp(1, 1_000);
        self
    }

    /// Sets the maximum time that a commit waits for the vectors of its breadcrumbs. After this time, the store embeds in the
    /// background. Defaults to 5 s.
    ///
    /// After a timeout or a failure, commits do not wait for the embedder until the background task
    /// has succeeded.
    #[must_use]
    pub fn commit_timeout(mut self, limit: Duration) -> Self {
        self.commit_timeout = limit;
        self
    }

    /// Embeds strings, validates the response of the embedder and normalizes the vectors to length one. Returns `None` for a zero
    /// vector.
    async fn directions(&self, texts: &[String]) -> Result<Vec<Option<Vec<f32>>>, EmbedError> {
        // A panic counts as a failure, so that it ends neither a commit nor the background task.
        let embedding = AssertUnwindSafe(async { self.embedder.embed(texts).await });
        let answer = embedding.catch_unwind().await.unwrap_or_else(|_| {
            let (model, source) = (
                self.embedder.model().to_owned(),
                "the embedder panicked".into(),
            );
            Err(EmbedError::Failed { model, source })
        })?;
        let (model, dimensions) = (self.embedder.model(), self.embedder.dimensions());
        let bad = |problem| EmbedError::BadAnswer {
            model: model.to_owned(),
            problem,
        };
        if answer.len() != texts.len() {
            let (vectors, texts) = (answer.len(), texts.len());
            return Err(bad(format!("{vectors} vectors for {texts} texts")));
        }
        let directions = answer.into_iter().map(|vector| match vector.len() {
            length if length != dimensions => Err(bad(format!(
                "a vector of {length} dimensions instead of {dimensions}"
            ))),
            _ if vector.iter().any(|one| !one.is_finite()) => {
                Err(bad("a vector with a number that is not finite".to_owned()))
            }
            _ => Ok(vector::normalize(vector)),
        });
        directions.collect()
    }

    /// Embeds the text of a vector search. Returns `None` if the text is blank or its vector is zero.
    pub(in crate::store) async fn of_query(
        &self,
        text: &str,
    ) -> Result<Option<Vec<f32>>, EmbedError> {
        let text = text::truncate(text.trim());
        if text.is_empty() {
            return Ok(None);
        }
        let found = self.directions(&[text.to_owned()]).await?;
        Ok(found.into_iter().next().flatten())
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(in crate::store) fn model(&self) -> &str {
        self.embedder.model()
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(in crate::store) fn dimensions(&self) -> usize {
        self.embedder.dimensions()
    }

    /// Returns an error if the stored vectors come from another model than the embedder's, or have another number of dimensions.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(in crate::store) fn check(
        &self,
        stored_model: &str,
        dimensions: usize,
    ) -> Result<(), EmbedError> {
        if stored_model == self.model() && dimensions == self.dimensions() {
            return Ok(());
        }
        Err(EmbedError::OtherModel {
            kept_model: stored_model.to_owned(),
            kept_dimensions: dimensions,
            model: self.model().to_owned(),
            dimensions: self.dimensions(),
        })
    }
}
