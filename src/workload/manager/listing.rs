use super::files::Candidate;
use super::{Tried, WorkloadManager};
use crate::model::BreadcrumbId;
use std::path::PathBuf;

/// Origin of a listed workload: a file, a breadcrumb or code.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum WorkloadOrigin {
    /// The workload is defined in the file with this path.
    File(PathBuf),
    /// The workload is defined in the breadcrumb with this ID. The workload manager loads it as `store:<id>`, and not
    /// by its name.
    Store(BreadcrumbId),
    /// The workload is registered in code.
    Code,
}

/// All workloads that a [`WorkloadManager`] found.
///
/// Let a user select a workload from it, or check it when a service starts: each entry with an
/// [`error`](Listed::error) is a definition to fix.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Listing {
    /// The workloads that the manager found, in order of precedence.
    pub workloads: Vec<Listed>,
    /// Locations that were not searched for workloads, or not completely, each with the reason.
    pub unseen: Vec<Tried>,
}

/// A workload in a [`Listing`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Listed {
    /// The name of the workload. A breadcrumb without a `workflow_id` is listed as `store:<id>`.
    pub name: String,
    /// The origin of the workload.
    pub origin: WorkloadOrigin,
    /// The description of the workload, if its definition has one.
    pub description: Option<String>,
    /// The location and the error of the workload, if it cannot be loaded.
    pub error: Option<Tried>,
    /// If `true`, an earlier workload in the list has the same name, and loading by this name returns the earlier
    /// workload.
    pub is_hidden: bool,
}

impl WorkloadManager {
    /// Returns the sorted workload names that [`load`](Self::load) accepts, without reading the files. Workloads in the
    /// store have no such name and are not included. Needs a tokio runtime.
    pub async fn names(&self) -> Vec<String> {
        let found = self.find().await;
        let mut names: Vec<String> = found.candidates.into_iter().map(|one| one.name).collect();
        names.extend(self.native.keys().cloned());
        names.sort();
        names.dedup();
        names
    }

    /// Returns all workloads with their descriptions, in order of precedence. Reads all files. From the store, the
    /// listing contains the newest 500 definitions of the schema `workflow.def.v1`. Needs a tokio runtime.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use universal_executor::workload::{NativeDefinition, WorkloadManager, WorkloadOrigin};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let echo = NativeDefinition::new("echo", |_, message| async move {
    ///     Ok(message.unwrap_or_default().content)
    /// });
    /// let manager = WorkloadManager::builder().native(Arc::new(echo)).build()?;
    ///
    /// let listing = manager.list().await;
    /// assert_eq!(listing.workloads[0].name, "echo");
    /// assert_eq!(listing.workloads[0].origin, WorkloadOrigin::Code);
    /// assert_eq!(manager.names().await, ["echo"]);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
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
