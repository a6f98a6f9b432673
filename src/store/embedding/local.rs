use super::{EmbedError, Embedder};
use crate::error::BoxError;
use crate::hex::hex;
use async_trait::async_trait;
use model2vec_rs::model::StaticModel;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// An embedder that runs a static [Model2Vec](https://github.com/MinishLab/model2vec) model from a local directory, without
/// network (feature `embed-local`).
///
/// The vector of a string is the mean of its token vectors. A static model is about a thousand times faster than a sentence
/// transformer, and ignores word order. The directory contains `tokenizer.json`, `model.safetensors` and `config.json`, like the
/// potion models on Hugging Face. The files are read into memory and are not validated: use only files from a trusted source.
///
/// ```no_run
/// use universal_executor::MemoryStore;
/// use universal_executor::store::MemoryLimits;
/// use universal_executor::store::embedding::{LocalEmbedder, EmbeddingConfig};
///
/// # async fn example() -> Result<(), universal_executor::BoxError> {
/// let embedder = LocalEmbedder::from_dir("models/potion-base-8M").await?;
/// let store = MemoryStore::with_embeddings(MemoryLimits::default(), EmbeddingConfig::new(embedder));
/// # Ok(())
/// # }
/// ```
///
/// Use it for tests and for services that may not send data to a model provider. The embedding runs
/// on threads of tokio's blocking pool.
#[derive(Clone)]
pub struct LocalEmbedder {
    model: StaticModel,
    name: String,
}

impl LocalEmbedder {
    /// Creates an embedder from the files of a static embedding model in a directory. The model name is the directory name and a
    /// digest of the files, so that changed files count as another model.
    ///
    /// Load the model once at the start of the process. The call needs a tokio runtime, because the
    /// files are read on a thread of its blocking pool.
    ///
    /// # Errors
    /// Returns [`EmbedError::Unusable`] if a file is missing, unreadable or not a valid model.
    pub async fn from_dir(folder: impl Into<PathBuf>) -> Result<Self, EmbedError> {
        let folder = folder.into();
        let name = folder.file_name().unwrap_or(folder.as_os_str());
        let name = name.to_string_lossy().into_owned();
        let loaded = on_thread(move || load(&folder)).await;
        let (model, digest) = loaded.map_err(|source| EmbedError::Unusable {
            model: name.clone(),
            source,
        })?;
        Ok(Self {
            model,
            name: format!("{name}@{digest}"),
        })
    }
}

#[async_trait]
impl Embedder for LocalEmbedder {
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let (model, texts) = (self.model.clone(), texts.to_vec());
        let embed = move || Ok(model.encode_with_args(&texts, None, texts.len().max(1)));
        // The tokenizer panics for strings that it cannot tokenize. `spawn_blocking` turns the panic into an error.
        on_thread(embed).await.map_err(|source| EmbedError::Failed {
            model: self.name.clone(),
            source,
        })
    }

    fn dimensions(&self) -> usize {
        self.model.dim()
    }

    fn model(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for LocalEmbedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalEmbedder")
            .field("model", &self.name)
            .finish_non_exhaustive()
    }
}

/// Runs CPU-bound or blocking work on a thread of tokio's blocking pool.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BoxError> + Send + 'static,
) -> Result<T, BoxError> {
    tokio::task::spawn_blocking(work).await?
}

/// Loads the static embedding model in a directory. Returns the model and the first six bytes of the digest of its files, in hexadecimal.
fn load(folder: &Path) -> Result<(StaticModel, String), BoxError> {
    let read = |name: &str| {
        let read = fs::read(folder.join(name));
        read.map_err(|error| format!("cannot read the model file {name}: {error}"))
    };
    let files = (
        read("tokenizer.json")?,
        read("model.safetensors")?,
        read("config.json")?,
    );
    let mut digest = Sha256::new();
    for file in [&files.0, &files.1, &files.2] {
        digest.update(Sha256::digest(file));
    }
    let digest = digest.finalize();
    let digest = hex(digest.get(..6).unwrap_or_default());
    let (tokenizer, model, config) = files;
    let model = StaticModel::from_bytes(tokenizer, model, config, None)?;
    Ok((model, digest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Retry;

    #[tokio::test]
    async fn a_folder_without_a_model_is_named_and_not_tried_again() {
        let error = LocalEmbedder::from_dir("/nowhere/tiny").await.unwrap_err();

        assert_eq!(
            error.to_string(),
            r#"the embedder "tiny" is misconfigured; check the API key, the model name and the model files"#
        );
        assert_eq!(error.retry(), Retry::Never);
        let EmbedError::Unusable { source, .. } = error else {
            panic!("{error:?}")
        };
        assert!(
            source
                .to_string()
                .starts_with("cannot read the model file tokenizer.json: "),
            "{source}"
        );
    }
}
