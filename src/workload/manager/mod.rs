//! Search and loading of workloads by name, from files, the store and code.

mod builder;
mod cache;
mod error;
mod files;
mod ident;
mod listing;
mod loaders;
mod stored;

pub use builder::WorkloadManagerBuilder;
pub use error::{ManagerError, Tried, WorkloadLoadError};
pub use ident::{Ident, IdentError};
pub use listing::{Listed, Listing, WorkloadOrigin};
pub use loaders::{Loader, LoaderSource};

use super::{Definition, EntryPolicy};
use crate::model::nearest;
use crate::store::BreadcrumbStore;
use builder::home;
use cache::Cache;
use files::{Candidate, Roots, SearchResult};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Manager that finds and loads workloads by their [identifiers](Ident).
///
/// A name is searched below the roots in their order, then among the workloads registered in code. The first match
/// wins. In each folder below a root, the files come before the subfolders, both sorted by name, regardless of the file
/// system. Hidden and excluded files and folders are skipped; the root itself may have any name. A file is read only
/// when it is loaded or listed, and loading never executes any part of it. Loaded definitions are cached by their
/// content, at most 256.
///
/// # Security
/// A caller with control over an identifier can select any name, and any definition in the
/// [store](WorkloadManagerBuilder::store) if there is one. Other files are read only if
/// [paths are allowed](WorkloadManagerBuilder::allow_paths).
///
/// ```
/// use std::sync::Arc;
/// use universal_executor::workload::{NativeDefinition, WorkloadManager};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let echo = NativeDefinition::new("echo", |_, message| async move { Ok(message.unwrap_or_default().content) });
/// let manager = WorkloadManager::builder().root("agents").native(Arc::new(echo)).build()?;
///
/// assert_eq!(manager.load("echo").await?.meta().name, "echo");
/// let error = manager.load("ecko").await.err().ok_or("the workload exists")?;
/// assert_eq!(error.nearest, ["echo"]);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct WorkloadManager {
    roots: Roots,
    loaders: Vec<Arc<dyn Loader>>,
    native: BTreeMap<String, Arc<dyn Definition>>,
    store: Option<Arc<dyn BreadcrumbStore>>,
    /// If `true`, a workload identifier may be the path of any file.
    allows_paths: bool,
    policy: EntryPolicy,
    broken: BrokenPolicy,
    cache: Cache,
}

/// Rule for loading a workload by name if the file of the first workload with this name cannot be loaded.
///
/// [`WorkloadManagerBuilder::broken`] sets it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum BrokenPolicy {
    /// Loading the workload fails with the error of its file.
    #[default]
    Fail,
    /// Loading continues with the workload of the same name that has the next lower precedence, if there is one.
    Next,
}

impl WorkloadManager {
    /// Returns a builder for a workload manager that reads workload files in JSON. If the feature `yaml` is enabled, the manager also
    /// reads YAML.
    pub fn builder() -> WorkloadManagerBuilder {
        WorkloadManagerBuilder::new()
    }

    /// Loads the workload with this identifier: a name, a file path or `store:<id>`, as [`Ident`] describes. Needs a
    /// tokio runtime.
    ///
    /// # Errors
    /// Returns a [`WorkloadLoadError`] with all searched locations and similar existing names.
    ///
    /// A file that was changed since the last call is read again, so the call returns its new
    /// definition.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped. A file that is being read is read to its end on
    /// another thread.
    pub async fn load(&self, ident: &str) -> Result<Arc<dyn Definition>, WorkloadLoadError> {
        let parsed = ident.parse::<Ident>().map_err(|error| WorkloadLoadError {
            ident: error.ident,
            searched: vec![Tried::new("this name", error.reason)],
            nearest: Vec::new(),
        })?;
        self.load_ident(&parsed).await
    }

    /// Loads the workload with a parsed identifier. Needs a tokio runtime.
    ///
    /// # Errors
    /// Returns a [`WorkloadLoadError`], as [`load`](Self::load) does.
    pub async fn load_ident(
        &self,
        ident: &Ident,
    ) -> Result<Arc<dyn Definition>, WorkloadLoadError> {
        let failed = |searched, nearest| WorkloadLoadError {
            ident: ident.to_string(),
            searched,
            nearest,
        };
        let single = |tried| failed(vec![tried], Vec::new());
        match ident {
            Ident::Name { name, entry } => {
                let named = self.by_name(name, entry.as_deref()).await;
                named.map_err(|(searched, nearest)| failed(searched, nearest))
            }
            Ident::Path { path, .. } if !self.allows_paths => {
                let path = path.display().to_string();
                let reason = "paths are not allowed; call WorkloadManagerBuilder::allow_paths, or use a name";
                Err(single(Tried::new(path, reason)))
            }
            Ident::Path { path, entry } => {
                let path = expand_home(path);
                let name = path.file_stem().and_then(|stem| stem.to_str());
                let name = name.unwrap_or_default().to_owned();
                let candidate = Candidate { name, path };
                self.read(candidate, entry.as_deref()).await.map_err(single)
            }
            Ident::Store { id, entry } => self
                .load_stored(*id, entry.as_deref())
                .await
                .map_err(single),
        }
    }

    async fn by_name(
        &self,
        name: &str,
        entry: Option<&str>,
    ) -> Result<Arc<dyn Definition>, (Vec<Tried>, Vec<String>)> {
        let found = self.find().await;
        let mut searched = Vec::new();
        for candidate in found
            .candidates
            .iter()
            .filter(|candidate| candidate.name == name)
        {
            match self.read(candidate.clone(), entry).await {
                Ok(definition) => return Ok(definition),
                Err(tried) => searched.push(tried),
            }
            match self.broken {
                BrokenPolicy::Fail => return Err((searched, Vec::new())),
                BrokenPolicy::Next => {}
            }
        }
        if let Some(native) = self.native.get(name) {
            if entry.is_none() {
                return Ok(Arc::clone(native));
            }
            searched.push(Tried::new(
                "code",
                "a workload registered in code has no flows to select; omit the part after #",
            ));
            return Err((searched, Vec::new()));
        }
        for root in &self.roots.roots {
            let mut named = found.candidates.iter().filter(|one| one.name == name);
            if !named.any(|candidate| candidate.path.starts_with(root)) {
                let reason = match found.absent.contains(root) {
                    true => "folder does not exist",
                    false => "has no workload of this name",
                };
                searched.push(Tried::new(root.display().to_string(), reason));
            }
        }
        searched.push(Tried::new("code", "has no workload of this name"));
        let unseen = found.unseen.iter();
        searched
            .extend(unseen.map(|(path, reason)| Tried::new(path.display().to_string(), &**reason)));
        Err((searched, self.similar_names(name, &found)))
    }

    /// Returns at most 3 workload names that are similar to `name`, the most similar first.
    fn similar_names(&self, name: &str, found: &SearchResult) -> Vec<String> {
        const MAX_SIMILAR: usize = 3;
        let known = found
            .candidates
            .iter()
            .map(|candidate| candidate.name.as_str());
        let mut known: Vec<&str> = known
            .chain(self.native.keys().map(String::as_str))
            .collect();
        known.sort_unstable();
        known.dedup();
        let mut similar_names = Vec::new();
        while similar_names.len() < MAX_SIMILAR
            && let Some(next) = nearest(name, known.iter().copied())
        {
            similar_names.push(next.to_owned());
            known.retain(|known| *known != next);
        }
        similar_names
    }

    async fn find(&self) -> SearchResult {
        let roots = self.roots.clone();
        let found = tokio::task::spawn_blocking(move || roots.find()).await;
        found.unwrap_or_else(|_| {
            let unseen = |root: &PathBuf| (root.clone(), "search was aborted".to_owned());
            SearchResult {
                candidates: Vec::new(),
                unseen: self.roots.roots.iter().map(unseen).collect(),
                absent: Vec::new(),
            }
        })
    }

    /// Reads and loads a workload definition file, or returns its cached definition.
    async fn read(
        &self,
        candidate: Candidate,
        entry: Option<&str>,
    ) -> Result<Arc<dyn Definition>, Tried> {
        let Candidate { name, path } = candidate;
        let location = path.display().to_string();
        let extension = path.extension().and_then(|extension| extension.to_str());
        let extension = extension.unwrap_or_default();
        let reads_extension = |loader: &&Arc<dyn Loader>| loader.extensions().contains(&extension);
        let Some(loader) = self.loaders.iter().rfind(reads_extension) else {
            let known = self.roots.extensions.join(", ");
            return Err(Tried::new(
                location,
                format!("no loader for the file extension {extension:?}; supported: {known}"),
            ));
        };
        let read = {
            let path = path.clone();
            tokio::task::spawn_blocking(move || files::read(&path)).await
        };
        let text = match read {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => return Err(Tried::new(location, error.to_string())),
            Err(_) => return Err(Tried::new(location, "read was aborted")),
        };
        let source = LoaderSource {
            name: &name,
            text: &text,
            entry,
            policy: self.policy,
        };
        let loaded = self
            .cache
            .get_or(loader.format(), &source, || loader.load(&source));
        loaded.map_err(|error| Tried::invalid(location, &error))
    }
}

/// Replaces a leading `~/` in the path of a workload by the home folder.
fn expand_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), home()) {
        (Ok(below), Some(home)) => home.join(below),
        (Ok(_) | Err(_), _) => path.to_owned(),
    }
}

impl fmt::Debug for WorkloadManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkloadManager")
            .field("roots", &self.roots.roots)
            .field("native", &self.native.keys())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
