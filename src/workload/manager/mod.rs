//! Workloads by name: from files, the store and code.

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
use files::{Candidate, Found, Roots};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Finds workloads by what somebody [calls them](Ident).
///
/// A name is looked for below the roots, in their order, then among those registered in code; the first that has it wins. Below a root
/// the files of a folder come before its folders, both sorted by name, whatever order the file system has. What is hidden or excluded
/// below a root is not looked at; the root itself may have any name. A file is read only when it is asked for, and nothing in it is
/// ever run by that. What was compiled is kept by its content, for up to 256 definitions.
///
/// Whoever chooses an ident chooses among the names, and the definitions in the [store](WorkloadManagerBuilder::store) if there is
/// one. Files elsewhere are read only where the service [lets idents be paths](WorkloadManagerBuilder::allow_paths).
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
/// let error = manager.load("ecko").await.err().ok_or("it is there")?;
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
    /// Whether an ident may be the path of any file.
    has_paths: bool,
    policy: EntryPolicy,
    broken: BrokenPolicy,
    cache: Cache,
}

/// What becomes of a name whose file cannot be used.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum BrokenPolicy {
    /// It cannot be loaded.
    #[default]
    Fail,
    /// The next one of that name is taken, if there is one.
    Next,
}

impl WorkloadManager {
    /// Begins to make one, which reads JSON, and YAML with the feature `yaml`.
    pub fn builder() -> WorkloadManagerBuilder {
        WorkloadManagerBuilder::new()
    }

    /// Loads what an [`Ident`] names. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`WorkloadLoadError`] lists all searched locations, and existing names that are similar.
    pub async fn load(&self, ident: &str) -> Result<Arc<dyn Definition>, WorkloadLoadError> {
        let parsed = ident.parse::<Ident>().map_err(|error| WorkloadLoadError {
            ident: error.ident,
            searched: vec![Tried::new("this name", error.reason)],
            nearest: Vec::new(),
        })?;
        self.load_ident(&parsed).await
    }

    /// Loads what an ident names. Needs a tokio runtime.
    ///
    /// # Errors
    /// See [`load`](Self::load).
    pub async fn load_ident(
        &self,
        ident: &Ident,
    ) -> Result<Arc<dyn Definition>, WorkloadLoadError> {
        let failed = |searched, nearest| WorkloadLoadError {
            ident: ident.to_string(),
            searched,
            nearest,
        };
        let alone = |tried| failed(vec![tried], Vec::new());
        match ident {
            Ident::Name { name, entry } => {
                let named = self.by_name(name, entry.as_deref()).await;
                named.map_err(|(searched, nearest)| failed(searched, nearest))
            }
            Ident::Path { path, .. } if !self.has_paths => {
                let path = path.display().to_string();
                let reason =
                    "it is a path, and only names are looked for here; allow_paths lets it be one";
                Err(alone(Tried::new(path, reason)))
            }
            Ident::Path { path, entry } => {
                let path = expanded(path);
                let name = path.file_stem().and_then(|stem| stem.to_str());
                let name = name.unwrap_or_default().to_owned();
                let candidate = Candidate { name, path };
                self.read(candidate, entry.as_deref()).await.map_err(alone)
            }
            Ident::Store { id, entry } => self.in_store(*id, entry.as_deref()).await.map_err(alone),
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
                "what is made in code has no flows to choose from",
            ));
            return Err((searched, Vec::new()));
        }
        for root in &self.roots.roots {
            let mut named = found.candidates.iter().filter(|one| one.name == name);
            if !named.any(|candidate| candidate.path.starts_with(root)) {
                let reason = match found.absent.contains(root) {
                    true => "there is no such folder",
                    false => "has none of that name",
                };
                searched.push(Tried::new(root.display().to_string(), reason));
            }
        }
        searched.push(Tried::new("code", "has none of that name"));
        let unseen = found.unseen.iter();
        searched
            .extend(unseen.map(|(path, reason)| Tried::new(path.display().to_string(), &**reason)));
        Err((searched, self.like(name, &found)))
    }

    /// Names that are much like one, the closest first.
    fn like(&self, name: &str, found: &Found) -> Vec<String> {
        const MOST: usize = 3;
        let known = found
            .candidates
            .iter()
            .map(|candidate| candidate.name.as_str());
        let mut known: Vec<&str> = known
            .chain(self.native.keys().map(String::as_str))
            .collect();
        known.sort_unstable();
        known.dedup();
        let mut like = Vec::new();
        while like.len() < MOST
            && let Some(next) = nearest(name, known.iter().copied())
        {
            like.push(next.to_owned());
            known.retain(|known| *known != next);
        }
        like
    }

    async fn find(&self) -> Found {
        let roots = self.roots.clone();
        let found = tokio::task::spawn_blocking(move || roots.find()).await;
        found.unwrap_or_else(|_| {
            let unseen = |root: &PathBuf| (root.clone(), "looking into it was stopped".to_owned());
            Found {
                candidates: Vec::new(),
                unseen: self.roots.roots.iter().map(unseen).collect(),
                absent: Vec::new(),
            }
        })
    }

    /// Reads and compiles a file, unless that was done before.
    async fn read(
        &self,
        candidate: Candidate,
        entry: Option<&str>,
    ) -> Result<Arc<dyn Definition>, Tried> {
        let Candidate { name, path } = candidate;
        let shown = path.display().to_string();
        let ending = path.extension().and_then(|ending| ending.to_str());
        let ending = ending.unwrap_or_default();
        let knows = |loader: &&Arc<dyn Loader>| loader.extensions().contains(&ending);
        let Some(loader) = self.loaders.iter().rfind(knows) else {
            let known = self.roots.extensions.join(", ");
            return Err(Tried::new(
                shown,
                format!("no loader reads {ending:?}; they read {known}"),
            ));
        };
        let read = {
            let path = path.clone();
            tokio::task::spawn_blocking(move || files::read(&path)).await
        };
        let text = match read {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => return Err(Tried::new(shown, error.to_string())),
            Err(_) => return Err(Tried::new(shown, "reading it was stopped")),
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
        loaded.map_err(|error| Tried::broken(shown, &error))
    }
}

/// A path that begins with `~/` below the home folder.
fn expanded(path: &Path) -> PathBuf {
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
