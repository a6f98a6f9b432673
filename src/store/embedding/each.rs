//! What an embedder makes of some texts, and which of them it cannot do.

use super::{EmbedError, EmbeddingConfig};
use crate::error::Chain;

/// A text that any embedder can do: if it fails at this, it is down, and no text is to blame.
const PLAIN: &str = "a plain text";

/// What came of texts, in their order, until the embedder went down.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// None for a text that points nowhere, and for one that the embedder cannot do.
    pub(super) directions: Vec<Option<Vec<f32>>>,
    /// How many it cannot do.
    pub(super) refused: usize,
    /// Why the others have to wait.
    pub(super) failed: Option<EmbedError>,
}

impl EmbeddingConfig {
    /// Asks for all texts at once. Where the embedder fails at them and still does a plain one, asks for ever smaller parts,
    /// so that a text it cannot do does not keep the others from being found.
    ///
    /// A text is given up only if the embedder fails at it alone, twice, and does a plain one after either time. That takes
    /// at most five calls for each text, and few for most of them as long as most can be done. An embedder that is down is
    /// called twice, and if it goes down meanwhile hardly more often than the texts can be halved.
    pub(super) async fn each(&self, texts: &[String]) -> Found {
        let mut found = Found::default();
        let mut left = Vec::from_iter((!texts.is_empty()).then_some(texts));
        let mut was_up = false;
        while let Some(some) = left.pop() {
            let error = match self.directions(some).await {
                Ok(directions) => {
                    found.directions.extend(directions);
                    continue;
                }
                Err(error) => error,
            };
            let halves = some.split_at(some.len() / 2);
            let is_one = halves.0.is_empty();
            was_up = concerns_texts(&error) && ((was_up && !is_one) || self.is_up().await);
            if !was_up {
                found.failed = Some(error);
                break;
            }
            if !is_one {
                left.extend([halves.1, halves.0]);
            } else if let Err(error) = self.last_try(some, &mut found).await {
                found.failed = Some(error);
                break;
            }
        }
        found
    }

    /// Asks for one text again and gives it up if that fails as well.
    async fn last_try(&self, one: &[String], found: &mut Found) -> Result<(), EmbedError> {
        match self.directions(one).await {
            Ok(direction) => found.directions.extend(direction),
            Err(error) if concerns_texts(&error) && self.is_up().await => {
                tracing::warn!(error = %Chain(&error), "a text is not embedded");
                found.directions.push(None);
                found.refused += 1;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn is_up(&self) -> bool {
        self.directions(&[PLAIN.to_owned()]).await.is_ok()
    }
}

/// Whether fewer texts, or others, may do better at once.
fn concerns_texts(error: &EmbedError) -> bool {
    match error {
        EmbedError::Failed { .. }
        | EmbedError::Refused { .. }
        | EmbedError::Unusable { .. }
        | EmbedError::BadAnswer { .. } => true,
        EmbedError::Unavailable { .. } | EmbedError::OtherModel { .. } => false,
    }
}
