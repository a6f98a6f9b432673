#[cfg(feature = "yaml")]
use super::YamlLoader;
use super::cache::Cache;
use super::files::Roots;
use super::{BrokenPolicy, JsonLoader, Loader, WorkloadManager};
use crate::store::BreadcrumbStore;
use crate::workload::{Definition, EntryPolicy};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes a [`WorkloadManager`].
#[derive(Debug)]
#[must_use]
pub struct WorkloadManagerBuilder(WorkloadManager);

impl WorkloadManagerBuilder {
    /// Reads JSON, and YAML with the feature `yaml`.
    pub(super) fn new() -> Self {
        let roots = Roots {
            roots: Vec::new(),
            excluded: vec!["node_modules".to_owned(), "target".to_owned()],
            extensions: Vec::new(),
        };
        let builder = Self(WorkloadManager {
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

/// The folder of the user.
pub(super) fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|folder| folder.is_absolute())
}
