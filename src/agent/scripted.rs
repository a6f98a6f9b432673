use super::{ChatModel, ChatRequest, ChatResponse, ModelError};
use async_trait::async_trait;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A model that says what it was told to, and remembers what it was asked: for tests and examples.
pub struct ScriptedModel {
    script: Box<Script>,
    requests: Mutex<Vec<ChatRequest>>,
}

type Script = dyn Fn(usize, &ChatRequest) -> Result<ChatResponse, ModelError> + Send + Sync;

impl ScriptedModel {
    /// Gives these answers in order, then [`ModelError::ScriptEnded`].
    #[must_use]
    pub fn new<T: Into<String>>(answers: impl IntoIterator<Item = T>) -> Self {
        let answers: Vec<String> = answers.into_iter().map(Into::into).collect();
        Self::answering(move |number, _| match answers.get(number - 1) {
            Some(answer) => Ok(ChatResponse::new(answer)),
            None => Err(ModelError::ScriptEnded { number }),
        })
    }

    /// Answers with a function of the number of the request, from 1, and the request.
    #[must_use]
    pub fn answering<F>(script: F) -> Self
    where
        F: Fn(usize, &ChatRequest) -> Result<ChatResponse, ModelError> + Send + Sync + 'static,
    {
        Self {
            script: Box::new(script),
            requests: Mutex::default(),
        }
    }

    /// What it was asked so far.
    #[must_use]
    pub fn requests(&self) -> Vec<ChatRequest> {
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[async_trait]
impl ChatModel for ScriptedModel {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(request.clone());
        let number = requests.len();
        drop(requests);
        (self.script)(number, request)
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel")
            .field("requests", &self.requests().len())
            .finish_non_exhaustive()
    }
}
