//! Search for the nearest ten of many vectors: stores, compared with a plain loop over the same vectors.
//!
//! The loop has all vectors in contiguous memory and no breadcrumbs. It compares all vectors and retains the best ten.
//! `SqliteStore` is measured with its vectors cached in memory, and without a cache. PostgreSQL is measured if `POSTGRES_URL` names
//! a server (`scripts/services` starts one): exact, and with an HNSW index. The recall of the index is printed.
//!
//! The vectors form a hundred clusters, like embeddings of documents about similar topics. An index cannot help with uniformly random
//! vectors, because none of them is near another.
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot be set up has nothing to measure"
)]
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

mod support;

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Runtime;
use universal_executor::store::embedding::{EmbedError, Embedder, EmbeddingConfig};
use universal_executor::store::{Durability, MemoryLimits, Query, VectorQuery, Write};
use universal_executor::{
    BreadcrumbStore, MemoryStore, NewBreadcrumb, PostgresStore, Selector, SqliteStore, async_trait,
};

const DIMENSIONS: usize = 384;
const WANTED: usize = 10;

fn main() {
    let n = if support::is_quick() { 500 } else { 100_000 };
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let plain = Plain::new(n);
    here(&tokio, &plain, n);
    match std::env::var("POSTGRES_URL") {
        Ok(url) => on_server(&tokio, &url, &plain, n),
        Err(_) => println!("PostgreSQL is skipped: POSTGRES_URL is not set, see scripts/services"),
    }
}

/// Measures a memory store and a SQLite store.
fn here(tokio: &Runtime, plain: &Plain, n: usize) {
    let folder =
        std::env::temp_dir().join(format!("universal-executor-vectors-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (memory, file) = tokio.block_on(stores(&folder, n));
    let reading = tokio.block_on(open(&folder, 0));
    let query = |selector| VectorQuery::new(Query::new(selector).limit(WANTED), "0");
    let (all, few) = (
        query(Selector::schema("note.v1")),
        query(Selector::any().all_tags(["few"])),
    );
    let nearest = |store: &dyn BreadcrumbStore, query: &VectorQuery| {
        let found = tokio.block_on(store.vector_search(query)).unwrap();
        let numbers = found
            .iter()
            .map(|one| one.breadcrumb.title.parse().unwrap());
        numbers.collect::<Vec<usize>>()
    };
    let expected = plain.nearest(&vector_of(0));
    assert_eq!(
        nearest(&memory, &all),
        expected,
        "memory finds what the loop finds"
    );
    assert_eq!(
        nearest(&file, &all),
        expected,
        "the file finds what the loop finds"
    );

    support::compare(
        &format!("the nearest {WANTED} of {n} vectors of {DIMENSIONS} dimensions"),
        9,
        3,
        &mut [
            ("a plain loop", &mut || {
                drop(black_box(plain.nearest(&vector_of(0))))
            }),
            ("memory", &mut || drop(black_box(nearest(&memory, &all)))),
            ("SQLite", &mut || drop(black_box(nearest(&file, &all)))),
            ("SQLite, all of them read", &mut || {
                drop(black_box(nearest(&reading, &all)));
            }),
        ],
    );
    support::compare(
        "the same among the hundredth part that has a tag",
        9,
        20,
        &mut [
            ("memory", &mut || drop(black_box(nearest(&memory, &few)))),
            ("SQLite", &mut || drop(black_box(nearest(&file, &few)))),
        ],
    );
    println!("  vectors of {} MiB", (n * DIMENSIONS * 4) >> 20);
    tokio.block_on(file.close());
    tokio.block_on(reading.close());
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Measures a PostgreSQL store.
fn on_server(tokio: &Runtime, url: &str, plain: &Plain, n: usize) {
    // Memory to build the index.
    let with = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{with}options=-c%20maintenance_work_mem%3D512MB");
    let name = format!("ux_bench_{}", std::process::id());
    let builder = PostgresStore::builder(url).schema(&name);
    let store = builder
        .embeddings(EmbeddingConfig::new(Numbers).batch(500))
        .connect();
    let store = tokio.block_on(store).unwrap();
    tokio.block_on(fill(&store, n));
    let query = |n: usize| {
        let all = Query::new(Selector::schema("note.v1")).limit(WANTED);
        VectorQuery::new(all, n.to_string())
    };
    let nearest = |n: usize| {
        let found = tokio.block_on(store.vector_search(&query(n))).unwrap();
        let numbers = found
            .iter()
            .map(|one| one.breadcrumb.title.parse().unwrap());
        numbers.collect::<Vec<usize>>()
    };
    assert_eq!(
        nearest(0),
        plain.nearest(&vector_of(0)),
        "the server finds what the loop finds"
    );
    let measure = |way: &str| {
        support::compare(
            &format!("the nearest {WANTED} of {n} vectors of {DIMENSIONS} dimensions"),
            5,
            3,
            &mut [
                ("a plain loop", &mut || {
                    drop(black_box(plain.nearest(&vector_of(0))));
                }),
                (way, &mut || drop(black_box(nearest(0)))),
            ],
        );
    };
    measure("PostgreSQL, exact");
    let begun = Instant::now();
    tokio.block_on(store.index_vectors()).unwrap();
    println!("  the index took {:.0} s", begun.elapsed().as_secs_f64());
    measure("PostgreSQL, by an index");
    // Recall is measured with vectors that are not stored.
    let asked: Vec<usize> = (n..n + 100).collect();
    let found = asked.iter().map(|n| {
        let expected = plain.nearest(&vector_of(*n));
        nearest(*n)
            .iter()
            .filter(|one| expected.contains(one))
            .count()
    });
    let recall = found.sum::<usize>() as f64 / (asked.len() * WANTED) as f64;
    println!("  the index finds {recall:.3} of the nearest {WANTED}");
    tokio.block_on(remove(&name));
}

/// Removes the bench's schema from the server.
async fn remove(name: &str) {
    let url = std::env::var("POSTGRES_URL").unwrap();
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    let drop = AssertSqlSafe(format!("DROP SCHEMA {name} CASCADE"));
    let dropped = sqlx::raw_sql(drop).execute(&mut connection).await;
    dropped.unwrap();
}

/// Creates a memory store and a SQLite store, each with `n` notes.
async fn stores(folder: &Path, n: usize) -> (MemoryStore, SqliteStore) {
    let memory =
        MemoryStore::with_embeddings(MemoryLimits::default(), EmbeddingConfig::new(Numbers));
    let file = open(folder, 256 << 20).await;
    fill(&memory, n).await;
    fill(&file, n).await;
    (memory, file)
}

/// Opens the SQLite file with a vector cache of `bytes` bytes.
async fn open(folder: &Path, bytes: usize) -> SqliteStore {
    let file = SqliteStore::builder(folder.join("vectors.db")).durability(Durability::Normal);
    let file = file
        .embeddings(EmbeddingConfig::new(Numbers))
        .vector_cache(bytes);
    file.open().await.unwrap()
}

async fn fill(store: &dyn BreadcrumbStore, n: usize) {
    let numbers: Vec<usize> = (0..n).collect();
    for some in numbers.chunks(500) {
        let writes = some.iter().map(|n| {
            let tag = if n % 100 == 0 { "few" } else { "many" };
            let new = NewBreadcrumb::new("note.v1").tag(tag);
            Write::Create(new.title(n.to_string()).context(json!({"n": n})))
        });
        store
            .commit(writes.collect::<Vec<_>>().into())
            .await
            .unwrap();
    }
}

/// Returns the vector of a number: always the same, and near to the vectors of its cluster.
fn vector_of(n: usize) -> Vec<f32> {
    /// Number of clusters.
    const HEAPS: usize = 100;
    let heap = chance(usize::MAX - n % HEAPS);
    let vector: Vec<f32> = chance(n).iter().zip(heap).map(|(a, b)| a + b).collect();
    let length = vector.iter().map(|one| one * one).sum::<f32>().sqrt();
    vector.iter().map(|one| one / length).collect()
}

/// Returns a pseudorandom vector, which is always the same for a number.
fn chance(n: usize) -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul((n as u64).wrapping_add(1)) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..DIMENSIONS).map(|_| next()).collect()
}

/// An embedder that parses the number in the first line of a string, and returns its vector.
#[derive(Debug)]
struct Numbers;

#[async_trait]
impl Embedder for Numbers {
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let number = |text: &String| text.lines().next().unwrap().parse().unwrap();
        Ok(texts.iter().map(|text| vector_of(number(text))).collect())
    }

    fn dimensions(&self) -> usize {
        DIMENSIONS
    }

    fn model(&self) -> &str {
        "numbers"
    }
}

/// All vectors in contiguous memory.
struct Plain(Arc<[f32]>);

impl Plain {
    fn new(n: usize) -> Self {
        Self((0..n).flat_map(vector_of).collect())
    }

    fn nearest(&self, to: &[f32]) -> Vec<usize> {
        let mut best: Vec<(f32, usize)> = Vec::with_capacity(WANTED + 1);
        for (n, vector) in self.0.chunks_exact(DIMENSIONS).enumerate() {
            let mut sums = [0.0_f32; 16];
            for (a, b) in vector
                .as_chunks::<16>()
                .0
                .iter()
                .zip(to.as_chunks::<16>().0)
            {
                for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
                    *sum += a * b;
                }
            }
            let score = sums.iter().sum::<f32>();
            if best.len() < WANTED || best.last().is_some_and(|(last, _)| score > *last) {
                let at = best.partition_point(|(one, _)| *one >= score);
                best.insert(at, (score, n));
                best.truncate(WANTED);
            }
        }
        best.into_iter().map(|(_, n)| n).collect()
    }
}
