//! Vector search: the vectors of stores, with a scripted embedder, and the results of a model of words.
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

/// A folder that is deleted on drop.
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

    /// Opens the folder's file without waiting for the disk, because no test interrupts its power.
    fn file(&self) -> SqliteBuilder {
        SqliteStore::builder(self.0.join("store.db")).durability(Durability::Normal)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Returns namespaces on the PostgreSQL server, or `None` without a server. Fails without a server if tests must not be skipped.
fn on_server() -> Option<Namespaces> {
    let is_set = |name| std::env::var_os(name).is_some();
    if is_set("POSTGRES_URL") {
        return Some(Namespaces::default());
    }
    assert!(
        !is_set("CI") && !is_set("UX_REQUIRE_SERVICES"),
        "POSTGRES_URL is not set: see scripts/services"
    );
    // A print macro would be captured by the test harness.
    let skipped =
        "SKIPPED: a test of search by meaning in PostgreSQL, as POSTGRES_URL is not set\n";
    std::io::stderr().write_all(skipped.as_bytes()).unwrap();
    None
}

fn in_memory(config: EmbeddingConfig) -> MemoryStore {
    MemoryStore::with_embeddings(MemoryLimits::default(), config)
}

/// Returns the text of the `n` notes that are nearest to a text.
async fn near(store: &impl BreadcrumbStore, text: &str, n: usize) -> Vec<String> {
    let query = VectorQuery::new(Query::new(Selector::schema("note.v1")).limit(n), text);
    let found = store.vector_search(&query).await.unwrap();
    let texts = found
        .iter()
        .map(|one| one.breadcrumb.context["text"].as_str().unwrap().to_owned());
    texts.collect()
}
