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

/// Makes a [`WorkloadManager`].
#[derive(Debug)]
#[must_use]
pub struct WorkloadManagerBuilder {
    manager: WorkloadManager,
    /// The name that two workloads made in code have.
    twice: Option<String>,
}

impl WorkloadManagerBuilder {
    /// Reads JSON, and YAML with the feature `yaml`.
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
            has_paths: false,
            policy: EntryPolicy::default(),
            broken: BrokenPolicy::default(),
            cache: Cache::default(),
        };
        let twice = None;
        let builder = Self { manager, twice }.loader(JsonLoader);
        #[cfg(feature = "yaml")]
        let builder = builder.loader(YamlLoader);
        builder
    }

    /// Adds a folder in which is looked after those before it; one that does not exist has nothing.
    pub fn root(mut self, folder: impl Into<PathBuf>) -> Self {
        self.manager.roots.roots.push(folder.into());
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
        self.manager.roots.excluded.push(name.into());
        self
    }

    /// Adds a format; of two for one ending the one added later counts.
    pub fn loader(mut self, loader: impl Loader + 'static) -> Self {
        let endings = loader
            .extensions()
            .iter()
            .map(|ending| (*ending).to_owned());
        self.manager.roots.extensions.extend(endings);
        self.manager.loaders.push(Arc::new(loader));
        self
    }

    /// Adds a workload that is made in code, under the name that it has. No two may have one name.
    pub fn native(mut self, definition: Arc<dyn Definition>) -> Self {
        let name = definition.meta().name.clone();
        if let Some(before) = self.manager.native.insert(name, definition) {
            self.twice.get_or_insert(before.meta().name.clone());
        }
        self
    }

    /// Lets an [`Ident`](super::Ident) be the path of any file that the process may read. Without this it is refused, since idents
    /// may come from users.
    pub fn allow_paths(mut self) -> Self {
        self.manager.has_paths = true;
        self
    }

    /// Sets the store for `store:<id>`: breadcrumbs of the schema `workflow.def.v1`, whose context has a workflow as `definition`,
    /// an object or its text, and if wanted the `flow` that it begins with. Whoever may write these says what can be run.
    pub fn store(mut self, store: Arc<dyn BreadcrumbStore>) -> Self {
        self.manager.store = Some(store);
        self
    }

    /// Sets what a run begins with if nobody says.
    pub fn entry_policy(mut self, policy: EntryPolicy) -> Self {
        self.manager.policy = policy;
        self
    }

    /// Sets what becomes of a name whose file cannot be used.
    pub fn broken(mut self, policy: BrokenPolicy) -> Self {
        self.manager.broken = policy;
        self
    }

    /// The manager.
    ///
    /// # Errors
    /// [`ManagerError`] says what is wrong with the settings.
    pub fn build(self) -> Result<WorkloadManager, ManagerError> {
        match self.twice {
            Some(name) => Err(ManagerError::Twice { name }),
            None => Ok(self.manager),
        }
    }
}

/// The folder of the user.
pub(super) fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|folder| folder.is_absolute())
}
