//! A scripted embedder.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use universal_executor::async_trait;
use universal_executor::store::conformance::WordCounts;
use universal_executor::store::embedding::{EmbedError, Embedder};

/// An embedder that counts words, records its calls and follows a script.
#[derive(Clone, Debug)]
pub(crate) struct Told(Arc<State>);

#[derive(Debug)]
struct State {
    model: &'static str,
    asked: Mutex<Vec<Vec<String>>>,
    does: Mutex<Does>,
    /// A permit for each call that may continue.
    gate: Semaphore,
}

/// The reaction of the embedder to a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Does {
    Answer,
    /// Waits for a permit.
    Wait,
    Fail,
    /// Refuses calls with this word.
    Refuse(&'static str),
    /// Fails at calls with this word.
    Break(&'static str),
    /// Fails at calls with this word, and at all calls after this number.
    Sink(&'static str, usize),
    /// Panics at calls with this word.
    Panic(&'static str),
    /// Puts NaN into the vector of the first input with this word.
    SpoilOne(&'static str),
    /// Fails at calls with more inputs than this number.
    AtMost(usize),
    /// Omits the last vector.
    Forget,
    /// Shortens the first vector by one number.
    Shorten,
    /// Puts NaN into the first vector.
    Spoil,
    /// Answers with zero vectors.
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

    /// Adds a permit for one waiting call.
    pub(crate) fn let_on(&self) {
        self.0.gate.add_permits(1);
    }

    /// Returns the inputs of each call so far.
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
