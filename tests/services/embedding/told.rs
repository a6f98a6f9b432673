//! An embedder that does as it is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use universal_executor::async_trait;
use universal_executor::store::conformance::WordCounts;
use universal_executor::store::embedding::{EmbedError, Embedder};

/// Counts words, and remembers what it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Told(Arc<State>);

#[derive(Debug)]
struct State {
    model: &'static str,
    asked: Mutex<Vec<Vec<String>>>,
    does: Mutex<Does>,
    /// One place for each call that may go on.
    gate: Semaphore,
}

/// What it does with a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Does {
    Answer,
    /// Waits until it is let go on.
    Wait,
    Fail,
    /// Refuses all texts with this word.
    Refuse(&'static str),
    /// Fails at texts with this word.
    Break(&'static str),
    /// The same, and at everything after so many calls.
    Sink(&'static str, usize),
    /// Panics at texts with this word.
    Panic(&'static str),
    /// Answers texts with this word with a number that is none.
    SpoilOne(&'static str),
    /// Cannot answer more texts than this at once.
    AtMost(usize),
    /// Answers with one vector too few.
    Forget,
    /// Answers with vectors that are one number short.
    Shorten,
    /// Answers with a number that is none.
    Spoil,
    /// Answers with zeros.
    Zero,
}

impl Told {
    pub(crate) fn new() -> Self {
        Self::named("told")
    }

    pub(crate) fn named(model: &'static str) -> Self {
        Self(Arc::new(State {
            model,
            asked: Mutex::default(),
            does: Mutex::new(Does::Answer),
            gate: Semaphore::new(0),
        }))
    }

    pub(crate) fn shall(&self, does: Does) {
        *self.0.does.lock().unwrap() = does;
    }

    /// Lets one call go on.
    pub(crate) fn let_on(&self) {
        self.0.gate.add_permits(1);
    }

    /// The texts of each call, so far.
    pub(crate) fn asked(&self) -> Vec<Vec<String>> {
        self.0.asked.lock().unwrap().clone()
    }

    fn unavailable(&self) -> EmbedError {
        EmbedError::Unavailable {
            model: self.0.model.to_owned(),
            retry_after: Duration::ZERO,
            source: "as it was told".into(),
        }
    }
}

#[async_trait]
impl Embedder for Told {
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.0.asked.lock().unwrap().push(texts.to_vec());
        let does = *self.0.does.lock().unwrap();
        let mut counts = WordCounts.embed(texts).await?;
        let has = |word| texts.iter().any(|text| text.contains(word));
        let (model, source) = (self.0.model.to_owned(), "as it was told".into());
        match does {
            Does::Answer => {}
            Does::Wait => self.0.gate.acquire().await.unwrap().forget(),
            Does::Fail => return Err(self.unavailable()),
            Does::Refuse(word) if has(word) => return Err(EmbedError::Refused { model, source }),
            Does::Break(word) if has(word) => return Err(EmbedError::Failed { model, source }),
            Does::Sink(word, after) if has(word) || self.asked().len() > after => {
                return Err(EmbedError::Failed { model, source });
            }
            Does::Panic(word) if has(word) => panic!("as it was told"),
            Does::AtMost(most) if texts.len() > most => {
                return Err(EmbedError::Unusable { model, source });
            }
            Does::Refuse(_)
            | Does::Break(_)
            | Does::Sink(..)
            | Does::Panic(_)
            | Does::AtMost(_) => {}
            Does::SpoilOne(word) => {
                let found = texts.iter().position(|text| text.contains(word));
                found.into_iter().for_each(|at| counts[at][0] = f32::NAN);
            }
            Does::Forget => drop(counts.pop()),
            Does::Shorten => drop(counts[0].pop()),
            Does::Spoil => counts[0][0] = f32::NAN,
            Does::Zero => counts.iter_mut().for_each(|vector| vector.fill(0.0)),
        }
        Ok(counts)
    }

    fn dimensions(&self) -> usize {
        WordCounts.dimensions()
    }

    fn model(&self) -> &str {
        self.0.model
    }
}
