use super::cache::Cache;
use super::files::Roots;
use super::loaders::JsonLoader;
#[cfg(feature = "yaml")]
use super::loaders::YamlLoader;
use super::{BrokenPolicy, Loader, ManagerError, WorkloadManager};
use crate::store::BreadcrumbStore;
use crate::workload::{Definition, EntryPolicy};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Builder for a [`WorkloadManager`].
///
/// # Examples
/// ```
/// use std::path::Path;
/// use std::sync::Arc;
/// use universal_executor::workload::{EntryPolicy, ManagerError};
/// use universal_executor::workload::{NativeDefinition, WorkloadManager};
///
/// fn echo() -> Arc<NativeDefinition> {
///     Arc::new(NativeDefinition::new("echo", |_, message| async move {
///         Ok(message.unwrap_or_default().content)
///     }))
/// }
///
/// let manager = WorkloadManager::builder()
///     .usual_roots(Path::new("."), "desk")
///     .exclude("drafts")
///     .entry_policy(EntryPolicy::First)
///     .native(echo())
///     .build()?;
///
/// let twice = WorkloadManager::builder().native(echo()).native(echo()).build();
/// assert!(matches!(twice, Err(ManagerError::Twice { .. })));
/// # drop(manager);
/// # Ok::<(), ManagerError>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct WorkloadManagerBuilder {
    manager: WorkloadManager,
    /// The first duplicate name of the workloads registered in code.
    duplicate: Option<String>,
}

impl WorkloadManagerBuilder {
    /// Creates a builder for a workload manager. The builder contains the loader for JSON. If the feature `yaml` is
    /// enabled, the builder also contains the loader for YAML.
    pub(super) fn new() -> Self {
        let roots = Roots {
            roots: Vec::new(),
            excluded: vec!["node_modules".to_owned(), "target".to_owned()],
            extensions: Vec::new(),
        };
        let manager = WorkloadManager {
            roots,
            loaders: Vec::new(),
            native: BTreeMap::new(),
            store: None,
            allows_paths: false,
            policy: EntryPolicy::default(),
            broken: BrokenPolicy::default(),
            cache: Cache::default(),
        };
        let duplicate = None;
        let builder = Self { manager, duplicate }.loader(JsonLoader);
        #[cfg(feature = "yaml")]
        let builder = builder.loader(YamlLoader);
        builder
    }

    /// Adds a folder to search for workloads, after the folders added before. A folder that does not exist is skipped.
    pub fn root(mut self, folder: impl Into<PathBuf>) -> Self {
        self.manager.roots.roots.push(folder.into());
        self
    }

    /// Adds the default folders to search for workloads of an application: `agents` in the project folder, then `<app>/agents` in the
    /// user's configuration folder (`$XDG_CONFIG_HOME`, otherwise `~/.config`).
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

    /// Excludes all files and folders with this name from the search for workloads, at any depth below the searched
    /// folders. `node_modules` and `target` are always excluded.
    pub fn exclude(mut self, name: impl Into<String>) -> Self {
        self.manager.roots.excluded.push(name.into());
        self
    }

    /// Adds a loader for a file format of workload definitions. If several loaders read the same file extension, the
    /// last one is used.
    pub fn loader(mut self, loader: impl Loader + 'static) -> Self {
        let extensions = loader
            .extensions()
            .iter()
            .map(|extension| (*extension).to_owned());
        self.manager.roots.extensions.extend(extensions);
        self.manager.loaders.push(Arc::new(loader));
        self
    }

    /// Adds a workload that is defined in code, under its own name. Two workloads with the same name fail
    /// [`build`](Self::build).
    pub fn native(mut self, definition: Arc<dyn Definition>) -> Self {
        let name = definition.meta().name.clone();
        if let Some(before) = self.manager.native.insert(name, definition) {
            self.duplicate.get_or_insert(before.meta().name.clone());
        }
        self
    }

    /// Allows a workload [identifier](super::Ident) to be the path of any file that the process can read. Disabled by default,
    /// because identifiers may come from users.
    pub fn allow_paths(mut self) -> Self {
        self.manager.allows_paths = true;
        self
    }

    /// Sets the store from which `store:<id>` loads a workload definition. The definitions are breadcrumbs of the schema `workflow.def.v1`,
    /// whose context has a workflow as `definition` (an object or a string), and optionally the `flow` that a run starts with. Everyone
    /// with permission to write these breadcrumbs decides which workloads can run.
    pub fn store(mut self, store: Arc<dyn BreadcrumbStore>) -> Self {
        self.manager.store = Some(store);
        self
    }

    /// Sets the rule that selects the flow or agent that starts a run if neither the identifier nor the definition of the
    /// workload names one. Defaults to [`EntryPolicy::Ask`].
    pub fn entry_policy(mut self, policy: EntryPolicy) -> Self {
        self.manager.policy = policy;
        self
    }

    /// Sets whether loading by name fails or continues with the next workload of this name if a workload file cannot be loaded.
    /// Defaults to [`BrokenPolicy::Fail`].
    pub fn broken(mut self, policy: BrokenPolicy) -> Self {
        self.manager.broken = policy;
        self
    }

    /// Builds the workload manager. Reads no files.
    ///
    /// # Errors
    /// Returns [`ManagerError::Twice`] if two workloads registered in code have the same name.
    pub fn build(self) -> Result<WorkloadManager, ManagerError> {
        match self.duplicate {
            Some(name) => Err(ManagerError::Twice { name }),
            None => Ok(self.manager),
        }
    }
}

/// Returns the user's home folder.
pub(super) fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|folder| folder.is_absolute())
}
