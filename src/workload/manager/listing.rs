use super::files::Candidate;
use super::{Tried, WorkloadManager};
use crate::model::BreadcrumbId;
use std::path::PathBuf;

/// Where a workload comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// A breadcrumb.
    Store(BreadcrumbId),
    /// It was registered in code.
    Code,
}

/// A workload in a [listing](WorkloadManager::list).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
    /// What it is good for, if it says so.
    pub description: Option<String>,
    /// Why it cannot be loaded, if it cannot.
    pub error: Option<Tried>,
    /// Whether another one of that name comes before it.
    pub is_hidden: bool,
}

impl WorkloadManager {
    /// The names there are, sorted, without reading what they name. Needs a tokio runtime.
    pub async fn names(&self) -> Vec<String> {
        let found = self.find().await;
        let mut names: Vec<String> = found.candidates.into_iter().map(|one| one.name).collect();
        names.extend(self.native.keys().cloned());
        names.sort();
        names.dedup();
        names
    }

    /// All there are with what they say of themselves, in the order of precedence: this reads them. Needs a tokio runtime.
    pub async fn list(&self) -> Vec<Listed> {
        let mut listed: Vec<Listed> = Vec::new();
        for candidate in self.find().await.candidates {
            let Candidate { name, path } = candidate.clone();
            let is_hidden = listed.iter().any(|listed| listed.name == name);
            let (description, error) = match self.read(candidate, None).await {
                Ok(definition) => (definition.meta().description.clone(), None),
                Err(tried) => (None, Some(tried)),
            };
            listed.push(Listed {
                name,
                origin: Origin::File(path),
                description,
                error,
                is_hidden,
            });
        }
        for (name, definition) in &self.native {
            let is_hidden = listed.iter().any(|listed| listed.name == *name);
            listed.push(Listed {
                name: name.clone(),
                origin: Origin::Code,
                description: definition.meta().description.clone(),
                error: None,
                is_hidden,
            });
        }
        listed
    }
}
