use super::files::Candidate;
use super::{Tried, WorkloadManager};
use crate::model::BreadcrumbId;
use std::path::PathBuf;

/// Where a workload comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum WorkloadOrigin {
    /// A file.
    File(PathBuf),
    /// A breadcrumb. It is loaded as `store:<id>`, and not by its name.
    Store(BreadcrumbId),
    /// It was registered in code.
    Code,
}

/// All workloads there are, as far as could be looked.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Listing {
    /// The workloads.
    pub workloads: Vec<Listed>,
    /// What was not looked at, or not to its end, and why.
    pub unseen: Vec<Tried>,
}

/// A workload in a [listing](WorkloadManager::list).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Where it comes from.
    pub origin: WorkloadOrigin,
    /// What it is good for, if it says so.
    pub description: Option<String>,
    /// Why it cannot be loaded, if it cannot.
    pub error: Option<Tried>,
    /// Whether another one of that name comes before it.
    pub is_hidden: bool,
}

impl WorkloadManager {
    /// The names there are, sorted, without reading what they name: those that [`load`](Self::load) takes, and so none of the
    /// store. Needs a tokio runtime.
    pub async fn names(&self) -> Vec<String> {
        let found = self.find().await;
        let mut names: Vec<String> = found.candidates.into_iter().map(|one| one.name).collect();
        names.extend(self.native.keys().cloned());
        names.sort();
        names.dedup();
        names
    }

    /// All there are with what they say of themselves, in the order of precedence: this reads them. Of the store these are the
    /// newest 500 definitions of the schema `workflow.def.v1`. Needs a tokio runtime.
    pub async fn list(&self) -> Listing {
        let found = self.find().await;
        let mut listing = Listing::default();
        for candidate in found.candidates {
            let Candidate { name, path } = candidate.clone();
            let (description, error) = match self.read(candidate, None).await {
                Ok(definition) => (definition.meta().description.clone(), None),
                Err(tried) => (None, Some(tried)),
            };
            let is_hidden = listing.has(&name);
            listing.workloads.push(Listed {
                name,
                origin: WorkloadOrigin::File(path),
                description,
                error,
                is_hidden,
            });
        }
        for (name, definition) in &self.native {
            let is_hidden = listing.has(name);
            listing.workloads.push(Listed {
                name: name.clone(),
                origin: WorkloadOrigin::Code,
                description: definition.meta().description.clone(),
                error: None,
                is_hidden,
            });
        }
        let unseen = found.unseen.iter();
        let unseen = unseen.map(|(path, reason)| Tried::new(path.display().to_string(), &**reason));
        listing.unseen.extend(unseen);
        self.list_stored(&mut listing).await;
        listing
    }
}

impl Listing {
    fn has(&self, name: &str) -> bool {
        self.workloads.iter().any(|listed| listed.name == name)
    }
}
