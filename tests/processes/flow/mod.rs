//! A flow with more than twenty steps, parallel branches and an agent, on a SQLite file, which is killed with SIGKILL at random points
//! and started again.
//!
//! The flow runs in separate processes: this test executable starts itself again with the one test that is the worker. The tools record
//! their actions outside the store, in a file that only grows. A first run without a kill counts the points. Then, each run is killed at
//! a random point, and usually at another point after that.
//!
//! `FLOW_KILLS` sets the number of runs, and `FLOW_SEED` the seed:
//! `FLOW_KILLS=200 FLOW_SEED=7 cargo test --all-features --test processes flow::`.
mod check;
pub(crate) mod lives;
pub(crate) mod notes;
pub(crate) mod store;
mod worker;

use lives::{Life, live};
use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The test path of the worker process.
const WORKER: &str = concat!(module_path!(), "::worker_that_is_killed");

/// Default number of runs, and default seed.
const RUNS: u64 = 25;
const SEED: u64 = 20_261_122;
/// Maximum number of parallel runs.
const AT_ONCE: usize = 2;

#[test]
fn a_flow_that_is_killed_anywhere_completes_with_the_same_result_and_repeats_no_finished_step() {
    let given = |name: &str| {
        env::var(name)
            .ok()
            .and_then(|given| given.parse::<u64>().ok())
    };
    let runs = usize::try_from(given("FLOW_KILLS").unwrap_or(RUNS)).unwrap();
    let seed = given("FLOW_SEED").unwrap_or(SEED);
    let folder = Folder::new("runs");
    let whole = live(WORKER, &folder.0.join("whole"), &[], &worker::ask);
    let points = whole.points();
    let problems = check::problems(&whole);
    assert!(problems.is_empty(), "{problems:?}");
    assert!(points >= 100, "there are only {points} points");

    let next = AtomicUsize::new(0);
    let ended = Mutex::new((0, Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let number = next.fetch_add(1, Ordering::Relaxed)
                    && number < runs
                {
                    let mut chance = Chance(seed.wrapping_add(number as u64));
                    // A third lost worker in a row would be a crash loop, unless one made progress in between.
                    let deaths = [chance.below(points) + 1, chance.below(points) + 1];
                    let lived = live(
                        WORKER,
                        &folder.0.join(number.to_string()),
                        &deaths,
                        &worker::ask,
                    );
                    let mut ended = ended.lock().unwrap();
                    ended.0 += lived.kills;
                    let problems = check::problems(&lived).into_iter();
                    ended.1.extend(
                        problems.map(|problem| format!("run {number}, {deaths:?}: {problem}")),
                    );
                }
            });
        }
    });

    let (kills, problems) = ended.into_inner().unwrap();
    lives::say(&format!(
        "{runs} runs, {points} points in each, {kills} kills, seed {seed}"
    ));
    assert!(problems.is_empty(), "seed {seed}:\n{}", problems.join("\n"));
    assert!(kills >= runs, "{kills}");
}

#[test]
fn a_flow_that_is_killed_again_and_again_completes_as_long_as_it_comes_further() {
    let folder = Folder::new("often");

    let lived = live(WORKER, &folder.0, &[50; 20], &worker::ask);

    let problems = check::problems(&lived);
    assert!(problems.is_empty(), "{problems:?}");
    assert!(lived.kills > 3, "{}", lived.kills);
}

/// The worker process that [`live`] starts and kills. It does nothing without its environment variable.
#[tokio::test]
async fn worker_that_is_killed() {
    let Ok(told) = env::var(lives::ENVIRONMENT) else {
        return;
    };
    let life: Life = serde_json::from_str(&told).unwrap();
    worker::work(life).await;
}

/// A pseudorandom number generator with a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        usize::try_from((mixed >> 33) % u64::try_from(most.max(1)).unwrap()).unwrap()
    }
}

/// A folder that is deleted on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(what: &str) -> Self {
        let name = format!("universal-executor-flow-kill-{}-{what}", std::process::id());
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
