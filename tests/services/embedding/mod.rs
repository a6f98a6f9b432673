//! Search by meaning: how stores keep vectors, with an embedder that does as it is told, and what a model of words finds.
mod alike;
mod fetch;
mod given_up;
mod kept;
mod postgres;
mod semantic;
mod told;

use crate::postgres::server::Namespaces;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use universal_executor::store::embedding::EmbeddingConfig;
use universal_executor::store::{Durability, MemoryLimits, Query, SqliteBuilder, VectorQuery};
use universal_executor::{BreadcrumbStore, MemoryStore, Selector, SqliteStore};

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!(
            "universal-executor-embedding-{}-{number}",
            std::process::id()
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Opens its file without waiting for the disk, which no test can pull the plug of.
    fn file(&self) -> SqliteBuilder {
        SqliteStore::builder(self.0.join("store.db")).durability(Durability::Normal)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Where to make stores in PostgreSQL, if there is a server: where tests must not be skipped there has to be one.
fn on_server() -> Option<Namespaces> {
    let is_set = |name| std::env::var_os(name).is_some();
    if is_set("POSTGRES_URL") {
        return Some(Namespaces::default());
    }
    assert!(
        !is_set("CI") && !is_set("UX_REQUIRE_SERVICES"),
        "POSTGRES_URL is not set: see scripts/services"
    );
    // Not by a macro, whose output the harness would keep to itself.
    let skipped =
        "SKIPPED: a test of search by meaning in PostgreSQL, as POSTGRES_URL is not set\n";
    std::io::stderr().write_all(skipped.as_bytes()).unwrap();
    None
}

fn in_memory(config: EmbeddingConfig) -> MemoryStore {
    MemoryStore::with_embeddings(MemoryLimits::default(), config)
}

/// The texts of the notes nearest to a text.
async fn near(store: &impl BreadcrumbStore, text: &str, n: usize) -> Vec<String> {
    let query = VectorQuery::new(Query::new(Selector::schema("note.v1")).limit(n), text);
    let found = store.vector_search(&query).await.unwrap();
    let texts = found
        .iter()
        .map(|one| one.breadcrumb.context["text"].as_str().unwrap().to_owned());
    texts.collect()
}
