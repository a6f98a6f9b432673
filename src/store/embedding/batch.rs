//! Embedding of a batch of strings, which finds the strings that the embedder rejects and embeds all others.

use super::{EmbedError, EmbeddingConfig};
use crate::error::Chain;

/// Probe string that tests if the embedder works at all. An embedder that fails to embed this string is down, and no other string
/// is the cause.
const PROBE_TEXT: &str = "a plain text";

/// Result of embedding a batch of strings. Incomplete if `failed` is `Some`.
#[derive(Debug, Default)]
pub(super) struct BatchResult {
    /// Unit vector of each string, in the order of the strings. `None` for a zero vector and for a string that the embedder
    /// rejects.
    pub(super) directions: Vec<Option<Vec<f32>>>,
    /// Number of strings that the embedder rejects.
    pub(super) refused: usize,
    /// Error of the embedder that ended the batch early. The strings after `directions` are not embedded.
    pub(super) failed: Option<EmbedError>,
}

impl EmbeddingConfig {
    /// Embeds all strings of a batch in one call of the embedder. If the call fails and the embedder still embeds [`PROBE_TEXT`],
    /// splits the batch in halves and embeds each half. So one bad string does not prevent the search for the others.
    ///
    /// A string is rejected only if the embedder fails twice at this string alone and embeds [`PROBE_TEXT`] after each failure. A batch
    /// takes at most five calls per string, and few calls if most strings are valid. An embedder that is down receives two calls.
    /// If the embedder goes down during the batch, the number of further calls is about the number of times that the batch can be
    /// halved.
    pub(super) async fn embed_batch(&self, texts: &[String]) -> BatchResult {
        let mut result = BatchResult::default();
        let mut pending = Vec::from_iter((!texts.is_empty()).then_some(texts));
        let mut was_up = false;
        while let Some(texts) = pending.pop() {
            let error = match self.directions(texts).await {
                Ok(directions) => {
                    result.directions.extend(directions);
                    continue;
                }
                Err(error) => error,
            };
            let halves = texts.split_at(texts.len() / 2);
            let is_single = halves.0.is_empty();
            was_up = concerns_texts(&error) && ((was_up && !is_single) || self.is_up().await);
            if !was_up {
                result.failed = Some(error);
                break;
            }
            if !is_single {
                pending.extend([halves.1, halves.0]);
            } else if let Err(error) = self.retry_single(texts, &mut result).await {
                result.failed = Some(error);
                break;
            }
        }
        result
    }

    /// Embeds the text of one breadcrumb again, and rejects the text if the second attempt fails too.
    ///
    /// # Errors
    /// Fails if the cause is the embedder and not the string.
    async fn retry_single(
        &self,
        one: &[String],
        result: &mut BatchResult,
    ) -> Result<(), EmbedError> {
        match self.directions(one).await {
            Ok(direction) => result.directions.extend(direction),
            Err(error) if concerns_texts(&error) && self.is_up().await => {
                tracing::warn!(error = %Chain(&error), "embedding the text of a breadcrumb failed twice; the breadcrumb is stored without a vector");
                result.directions.push(None);
                result.refused += 1;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn is_up(&self) -> bool {
        self.directions(&[PROBE_TEXT.to_owned()]).await.is_ok()
    }
}

/// Returns `true` if the strings in the failed call of the embedder may have caused the error. A call of the embedder with fewer
/// or other strings can then succeed without a delay.
fn concerns_texts(error: &EmbedError) -> bool {
    match error {
        EmbedError::Failed { .. }
        | EmbedError::Refused { .. }
        | EmbedError::Unusable { .. }
        | EmbedError::BadAnswer { .. } => true,
        EmbedError::Unavailable { .. } | EmbedError::OtherModel { .. } => false,
    }
}
