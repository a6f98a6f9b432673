//! Workloads by name: from files, the store and code.

mod cache;
mod error;
mod files;
mod ident;
mod loaders;

pub use error::{LoadError, Tried};
pub use ident::{Ident, IdentError};
#[cfg(feature = "yaml")]
pub use loaders::YamlLoader;
pub use loaders::{JsonLoader, Loader, Source};

use super::{Definition, EntryPolicy};
use crate::error::BoxError;
use crate::model::{BreadcrumbId, nearest};
use crate::store::BreadcrumbStore;
use crate::workflow::Workflow;
use cache::Cache;
use files::{Candidate, Found, Roots};
use serde_json::Value;
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
/// ```
/// use std::sync::Arc;
/// use universal_executor::workload::{NativeDefinition, WorkloadManager};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let echo = NativeDefinition::new("echo", |_, message| async move { Ok(message.unwrap_or_default().content) });
/// let manager = WorkloadManager::builder().root("agents").native(Arc::new(echo)).build();
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

/// Makes a [`WorkloadManager`].
#[derive(Debug)]
#[must_use]
pub struct WorkloadManagerBuilder(WorkloadManager);

impl WorkloadManagerBuilder {
    /// Adds a folder in which is looked after those before it; one that does not exist has nothing.
    pub fn root(mut self, folder: impl Into<PathBuf>) -> Self {
        self.0.roots.roots.push(folder.into());
        self
    }

    /// Adds the folders in which users of an app expect theirs: `agents` in the folder of the project, then `<app>/agents` in the
    /// user's folder for configuration.
    pub fn usual_roots(self, project: &Path, app: &str) -> Self {
        let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        let config = config.filter(|folder| folder.is_absolute());
        let config = config.or_else(|| Some(home()?.join(".config")));
        let this = self.root(project.join("agents"));
        match config {
            Some(config) => this.root(config.join(app).join("agents")),
            None => this,
        }
    }

    /// Leaves files and folders of this name out, wherever they are below a root.
    pub fn exclude(mut self, name: impl Into<String>) -> Self {
        self.0.roots.excluded.push(name.into());
        self
    }

    /// Adds a format; of two for one ending the one added later counts.
    pub fn loader(mut self, loader: impl Loader + 'static) -> Self {
        let endings = loader
            .extensions()
            .iter()
            .map(|ending| (*ending).to_owned());
        self.0.roots.extensions.extend(endings);
        self.0.loaders.push(Arc::new(loader));
        self
    }

    /// Adds a workload that is made in code, under the name that it has.
    pub fn native(mut self, definition: Arc<dyn Definition>) -> Self {
        let name = definition.meta().name.clone();
        self.0.native.insert(name, definition);
        self
    }

    /// Sets the store for `store:<id>`: breadcrumbs whose context has a workflow as `definition`, an object or its text.
    pub fn store(mut self, store: Arc<dyn BreadcrumbStore>) -> Self {
        self.0.store = Some(store);
        self
    }

    /// Sets what a run begins with if nobody says.
    pub fn entry_policy(mut self, policy: EntryPolicy) -> Self {
        self.0.policy = policy;
        self
    }

    /// Sets what becomes of a name whose file cannot be used.
    pub fn broken(mut self, policy: BrokenPolicy) -> Self {
        self.0.broken = policy;
        self
    }

    /// The manager.
    #[must_use]
    pub fn build(self) -> WorkloadManager {
        self.0
    }
}

impl WorkloadManager {
    /// Begins to make one, which reads JSON, and YAML with the feature `yaml`.
    pub fn builder() -> WorkloadManagerBuilder {
        let roots = Roots {
            roots: Vec::new(),
            excluded: vec!["node_modules".to_owned(), "target".to_owned()],
            extensions: Vec::new(),
        };
        let builder = WorkloadManagerBuilder(Self {
            roots,
            loaders: Vec::new(),
            native: BTreeMap::new(),
            store: None,
            policy: EntryPolicy::default(),
            broken: BrokenPolicy::default(),
            cache: Cache::default(),
        });
        let builder = builder.loader(JsonLoader);
        #[cfg(feature = "yaml")]
        let builder = builder.loader(YamlLoader);
        builder
    }

    /// Loads what an [`Ident`] names. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`LoadError`] has all that was looked at, and names that are much like it.
    pub async fn load(&self, ident: &str) -> Result<Arc<dyn Definition>, LoadError> {
        let parsed = ident.parse::<Ident>().map_err(|error| LoadError {
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
    pub async fn load_ident(&self, ident: &Ident) -> Result<Arc<dyn Definition>, LoadError> {
        let failed = |searched, nearest| LoadError {
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
            searched.push(Tried::new(
                root.display().to_string(),
                "has none of that name",
            ));
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
        found.unwrap_or_default()
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
        let source = Source {
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

    async fn in_store(
        &self,
        id: BreadcrumbId,
        entry: Option<&str>,
    ) -> Result<Arc<dyn Definition>, Tried> {
        let place = format!("store:{id}");
        let Some(store) = &self.store else {
            return Err(Tried::new(place, "there is no store to look in"));
        };
        let found = store.get(id).await;
        let found = found.map_err(|error| Tried::new(&*place, error.to_string()))?;
        let (name, definition) = (
            found.context.text("workflow_id"),
            found.context.get("definition"),
        );
        let Some(definition) = definition else {
            return Err(Tried::new(place, "its context has no \"definition\""));
        };
        let text = match definition {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let source = Source {
            name: name.unwrap_or(&place),
            text: &text,
            entry,
            policy: self.policy,
        };
        let loaded = self
            .cache
            .get_or("store", &source, || source.flow(read(&text)?));
        loaded.map_err(|error| Tried::broken(&*place, &error))
    }
}

/// A workflow as a text: JSON if it begins as that.
#[cfg(feature = "yaml")]
fn read(text: &str) -> Result<Workflow, BoxError> {
    Ok(match text.trim_start().starts_with('{') {
        true => Workflow::parse(text)?,
        false => Workflow::from_yaml(text)?,
    })
}

#[cfg(not(feature = "yaml"))]
fn read(text: &str) -> Result<Workflow, BoxError> {
    Ok(Workflow::parse(text)?)
}

fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|folder| folder.is_absolute())
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
