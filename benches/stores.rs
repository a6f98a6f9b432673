//! `SqliteStore` compared with its driver: responses through the runtime, direct writes of breadcrumbs and runs, searches in a
//! small and a large store, and responses in a full store that deletes old rows.
//!
//! The driver's side writes the same rows and does nothing else. Rates depend on the disk as much as on the code, so only the
//! ratios within one run are meaningful. The required minimum is printed next to a ratio.
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot be set up has nothing to measure"
)]
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

mod sides;
mod support;

use sides::{answering, driver, fill, store};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use universal_executor::source::StartAt;
use universal_executor::store::Durability;
use universal_executor::{BreadcrumbStore, SqliteStore};

const ROUNDS: usize = 7;

fn main() {
    let bench = Bench::new();
    for durability in [Durability::Full, Durability::Normal] {
        bench.responses(durability);
        bench.creates(durability);
        bench.runs(durability);
    }
    let (few, many) = bench.size((100, 400), (1_000, 200_000));
    let (small, large) = (bench.many(few), bench.many(many));
    bench.searches((&small, few), (&large, many));
    bench.forgetting((&small, few), (&large, many));
    std::fs::remove_dir_all(&bench.folder).unwrap();
}

struct Bench {
    tokio: tokio::runtime::Runtime,
    folder: PathBuf,
}

/// One side of a comparison.
struct Side<'s> {
    name: &'s str,
    /// Required minimum of the rate, relative to the rate of the first side.
    least: Option<f64>,
    /// Function that does the work on a separate file, and returns the elapsed time.
    run: Box<dyn Fn(&Path) -> Duration + 's>,
}

fn side<'s>(name: &'s str, run: impl Fn(&Path) -> Duration + 's) -> Side<'s> {
    Side {
        name,
        least: None,
        run: Box::new(run),
    }
}

impl Side<'_> {
    fn at_least(mut self, least: f64) -> Self {
        self.least = Some(least);
        self
    }
}

impl Bench {
    fn new() -> Self {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let name = format!("universal-executor-bench-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self {
            tokio: tokio.unwrap(),
            folder,
        }
    }

    fn size<T>(&self, quick: T, whole: T) -> T {
        if support::is_quick() { quick } else { whole }
    }

    /// Measures the time from stored triggers to stored responses.
    fn responses(&self, durability: Durability) {
        let n = self.size(20, 1_000);
        let by_driver = |at_once| {
            move |file: &Path| {
                by_driver(file, durability, |writer, ids| writer.answer(ids, at_once))
            }
        };
        let by_runtime = |at_once| {
            move |file: &Path| {
                let answered = store::answer(file, durability, n, at_once);
                self.tokio.block_on(answered)
            }
        };
        let with_32 = match durability {
            // Concurrent runs share commits, so the runtime must be as fast as the driver with one transaction each.
            Durability::Full => 1.0,
            Durability::Normal => 0.6,
        };
        let sides = [
            side("driver, one transaction each", by_driver(1)),
            side("driver, 50 in a transaction", by_driver(50)),
            side("runtime, as it is by default", by_runtime(None)).at_least(0.6),
            side("runtime, 1 run at a time", by_runtime(Some(1))),
            side("runtime, 8 runs at a time", by_runtime(Some(8))),
            side("runtime, 32 runs at a time", by_runtime(Some(32))).at_least(with_32),
        ];
        let what = format!("{durability:?}: {n} triggers to committed responses");
        self.compare(&what, n, &sides);
    }

    fn creates(&self, durability: Durability) {
        let n = self.size(64, 1_280);
        let by_driver = |at_once| {
            move |file: &Path| by_driver(file, durability, |writer, _| writer.create(n, at_once))
        };
        let by_store = |writers| {
            move |file: &Path| {
                let created = store::create(file, durability, n, writers);
                self.tokio.block_on(created)
            }
        };
        let sides = [
            side("driver, one transaction each", by_driver(1)),
            side("driver, 64 in a transaction", by_driver(64)),
            side("store, 1 writer", by_store(1)),
            side("store, 64 writers", by_store(64)),
        ];
        let what = format!("{durability:?}: {n} breadcrumbs created");
        self.compare(&what, n, &sides);
    }

    /// Measures enqueued runs, from claim to commit.
    fn runs(&self, durability: Durability) {
        let n = self.size(64, 1_280);
        let by_driver = |at_once: usize| {
            move |file: &Path| {
                let connection = driver::open(file, durability);
                let ids = driver::ids(&connection);
                let mut writer = driver::Writer::new(&connection);
                let runs: Vec<_> = writer.enqueue_all(&ids).into_iter().zip(ids).collect();
                let begun = Instant::now();
                writer.finish_all(&runs, at_once);
                begun.elapsed()
            }
        };
        let by_store = |at_once| {
            move |file: &Path| {
                let ids = driver::ids(&driver::open(file, durability));
                let finished = store::finish(file, durability, &ids, at_once);
                self.tokio.block_on(finished)
            }
        };
        let sides = [
            side("driver, one transaction each", by_driver(1)),
            side("driver, 64 in a transaction", by_driver(64)),
            side("store, 1 at a time", by_store(1)),
            side("store, 64 at a time", by_store(64)),
        ];
        let what = format!("{durability:?}: {n} runs from claim to commit");
        self.compare(&what, n, &sides);
    }

    /// Runs the sides in turn, each round on new copies of a file with `n` triggers, and prints the rate of each side in its
    /// fastest round.
    fn compare(&self, what: &str, n: usize, sides: &[Side<'_>]) {
        let made = self.folder.join("made.db");
        let copy = self.folder.join("copy.db");
        self.tokio
            .block_on(fill::make(&made, n, |_| answering::question()));
        let mut fastest = vec![f64::INFINITY; sides.len()];
        for _ in 0..self.size(1, ROUNDS) {
            for (side, best) in sides.iter().zip(&mut fastest) {
                std::fs::copy(&made, &copy).unwrap();
                std::fs::File::open(&copy).unwrap().sync_all().unwrap();
                *best = best.min((side.run)(&copy).as_secs_f64());
                remove(&copy);
            }
        }
        remove(&made);
        println!("{what}");
        for (side, time) in sides.iter().zip(&fastest) {
            let (rate, ratio) = (n as f64 / time, fastest.first().unwrap() / time);
            let least = side.least.map(|least| format!("  (at least {least})"));
            let least = least.unwrap_or_default();
            println!("  {:<32} {rate:>10.0} /s  {ratio:>8.2}x{least}", side.name);
            support::figure(&format!("{what}/{}", side.name), rate, "per_s");
        }
    }

    /// Creates a file with `n` breadcrumbs of many kinds.
    fn many(&self, n: usize) -> PathBuf {
        let file = self.folder.join(format!("{n}.db"));
        self.tokio.block_on(fill::make(&file, n, fill::one_of_many));
        file
    }

    /// Measures the same searches in a small store and in a large store.
    fn searches(&self, small: (&Path, usize), large: (&Path, usize)) {
        let open = |file: &Path| self.tokio.block_on(store::open(file, Durability::Normal));
        let (small_store, large_store) = (open(small.0), open(large.0));
        let search = |store: &SqliteStore, asked: fill::Asked, n: usize| {
            // Different positions, so that not all searches find the same rows.
            for place in [n - 20, n / 2, n / 3] {
                let found = self.tokio.block_on(store.search(&asked(place))).unwrap();
                assert!(!black_box(found).is_empty());
            }
        };
        for (name, asked) in fill::SEARCHES {
            support::compare(
                &format!("3 searches in a store: {name}"),
                7,
                200,
                &mut [
                    (&format!("{} breadcrumbs", small.1), &mut || {
                        search(&small_store, asked, small.1);
                    }),
                    (&format!("{} breadcrumbs, at most 2", large.1), &mut || {
                        search(&large_store, asked, large.1);
                    }),
                ],
            );
        }
        for store in [small_store, large_store] {
            self.tokio.block_on(store.close());
        }
    }

    /// Measures responses in an almost empty store, and in a store full of finished runs, which deletes an old run and an old event
    /// for each new one.
    fn forgetting(&self, small: (&Path, usize), large: (&Path, usize)) {
        let (n, most) = self.size((20, 100), (500, 100_000));
        driver::add_finished(&driver::open(large.0, Durability::Normal), most);
        let answering = |(file, position): (&Path, usize)| {
            let store = self.tokio.block_on(store::open_limited(file, most));
            let start = StartAt::After(position as u64);
            let done = Arc::<answering::Done>::default();
            let answering = answering::Answering::new(&store, store.events(), None, start, &done);
            (store, answering, done)
        };
        let sides = [answering(small), answering(large)];
        let mut fastest = [f64::INFINITY; 2];
        for _ in 0..self.size(1, ROUNDS) {
            for ((store, answering, done), best) in sides.iter().zip(&mut fastest) {
                self.tokio.block_on(async {
                    fill::add(store, n, |_| answering::question()).await;
                    done.aim(n);
                    let (responded, took) = answering.answer().await;
                    assert_eq!(responded, n);
                    *best = best.min(took.as_secs_f64());
                });
            }
        }
        let [small_time, large_time] = fastest;
        println!("Normal: {n} triggers to committed responses");
        println!(
            "  among {} breadcrumbs {:>10.0} /s; among {} and {most} runs that are over {:.0} /s, {:.2}x (at least 0.8)",
            small.1,
            n as f64 / small_time,
            large.1,
            n as f64 / large_time,
            small_time / large_time
        );
        for (store, answering, _) in sides {
            drop(answering);
            self.tokio.block_on(store.close());
        }
    }
}

/// Measures the driver's work on a file, with the IDs of the file's breadcrumbs.
fn by_driver(
    file: &Path,
    durability: Durability,
    work: impl FnOnce(&mut driver::Writer<'_>, &[[u8; 16]]),
) -> Duration {
    let connection = driver::open(file, durability);
    let ids = driver::ids(&connection);
    let mut writer = driver::Writer::new(&connection);
    let begun = Instant::now();
    work(&mut writer, &ids);
    begun.elapsed()
}

fn remove(file: &Path) {
    for end in ["", "-wal", "-shm"] {
        let mut name = file.as_os_str().to_owned();
        name.push(end);
        drop(std::fs::remove_file(name));
    }
}
