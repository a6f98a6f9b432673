//! Search by meaning: texts become vectors, and what is near a text is found by them.
//!
//! A store that is given a [`EmbeddingConfig`] keeps beside each breadcrumb a vector of what it says, made by an [`Embedder`], and
//! answers [`vector_search`](super::BreadcrumbStore::vector_search); so a subscription with a `vector` fetch finds what
//! its trigger is about.
//!
//! ```
//! use serde_json::json;
//! use universal_executor::store::embedding::{EmbedError, Embedder, EmbeddingConfig};
//! use universal_executor::store::{MemoryLimits, Query, VectorQuery};
//! use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Selector, async_trait};
//!
//! /// Counts letters. A model knows more of what words mean.
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
//! # What becomes a vector
//! The title and what the hints leave of the context, as they do for a model: those of the breadcrumb, else those of the
//! definition of its schema. Texts stand for themselves, numbers after the name of their field; the first
//! [`MAX_TEXT_BYTES`] count. A breadcrumb whose hints cannot be used has no vector, and neither has one that says nothing.
//! A definition that changes has no effect on vectors that were made before.
//!
//! A text that the embedder cannot do has no vector either, and is not tried again until its breadcrumb changes or vectors
//! are forgotten. An embedder that can do nothing is waited for.
//!
//! # When
//! By default a commit returns once what it wrote has vectors, or after [`EmbeddingConfig::patience`]; with [`EmbeddingConfig::later`] they
//! are made in the background. A commit never fails because of them: what is missing, also from before the store was given
//! an embedder or since it crashed, is made up for in the background when the tenant is used next.
//!
//! # What it does not do
//! It never searches by words. Stores compare with every vector that the selector leaves; only one in PostgreSQL can have an
//! index, which is quicker among very many and approximate.

mod each;
mod error;
mod keeper;
#[cfg(feature = "embed-local")]
mod local;
mod nearest;
mod text;
mod vector;

pub use error::EmbedError;
#[cfg(feature = "embed-local")]
pub use local::LocalEmbedder;

pub(in crate::store) use keeper::{Keeper, Keepers, Made, Page, Vectors, deleted};
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

/// The most bytes of a text that is embedded: 4 KiB; what follows does not count.
pub const MAX_TEXT_BYTES: usize = 4 << 10;

/// Makes vectors of texts, so that texts that mean the same have vectors that point the same way.
#[async_trait]
pub trait Embedder: Debug + Send + Sync + 'static {
    /// One vector for each text, in their order. Of any length but zero: what counts is where they point.
    ///
    /// # Errors
    /// [`EmbedError`] says whether trying again could help.
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// How many numbers each vector has.
    fn dimensions(&self) -> usize;

    /// What tells this model from others, whose vectors cannot be compared with these; a store remembers it.
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

/// How a store keeps the meaning of what is written to it.
#[derive(Clone, Debug)]
pub struct EmbeddingConfig {
    embedder: Arc<dyn Embedder>,
    later: bool,
    batch: usize,
    patience: Duration,
}

impl EmbeddingConfig {
    /// Vectors by an embedder, made as part of each commit.
    #[must_use]
    pub fn new(embedder: impl Embedder) -> Self {
        Self {
            embedder: Arc::new(embedder),
            later: false,
            batch: 32,
            patience: Duration::from_secs(5),
        }
    }

    /// Makes them in the background instead, so that no commit waits for the embedder.
    #[must_use]
    pub fn later(mut self) -> Self {
        self.later = true;
        self
    }

    /// Sets how many texts the embedder is given at once: 32 by default, at least 1 and at most 1,000.
    #[must_use]
    pub fn batch(mut self, texts: usize) -> Self {
        self.batch = texts.clamp(1, 1_000);
        self
    }

    /// Sets how long a commit waits for its vectors; 5 s by default. After that they are made in the background.
    #[must_use]
    pub fn patience(mut self, limit: Duration) -> Self {
        self.patience = limit;
        self
    }

    /// The directions of texts; none for a text that has none. What an embedder answers is checked here.
    async fn directions(&self, texts: &[String]) -> Result<Vec<Option<Vec<f32>>>, EmbedError> {
        // A panic is a failure like others: commits outlive it, and so does what makes up for what is missing.
        let asked = AssertUnwindSafe(async { self.embedder.embed(texts).await });
        let answer = asked.catch_unwind().await.unwrap_or_else(|_| {
            let (model, source) = (self.embedder.model().to_owned(), "it panicked".into());
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
            _ => Ok(vector::direction(vector)),
        });
        directions.collect()
    }

    /// Where the text of a query points; none if it says nothing.
    pub(in crate::store) async fn of_query(
        &self,
        text: &str,
    ) -> Result<Option<Vec<f32>>, EmbedError> {
        let text = text::start_of(text.trim());
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

    /// Fails if vectors are by another model.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(in crate::store) fn check(&self, kept: &str, dimensions: usize) -> Result<(), EmbedError> {
        if kept == self.model() && dimensions == self.dimensions() {
            return Ok(());
        }
        Err(EmbedError::OtherModel {
            kept_model: kept.to_owned(),
            kept_dimensions: dimensions,
            model: self.model().to_owned(),
            dimensions: self.dimensions(),
        })
    }
}
