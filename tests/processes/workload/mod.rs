//! Sessions with several turns on a SQLite file, of an agent with tools and of a flow with agents, which are killed with SIGKILL at random
//! points and started again.
//!
//! The turns run in separate processes: this test executable starts itself again with the one test that is the worker. The tool calls and
//! the model requests are recorded outside the store. A first run without a kill counts the points and records the model requests and
//! the session logs. All other runs must have the same requests and logs.
//!
//! `SESSION_KILLS` sets the number of runs, and `SESSION_SEED` the seed:
//! `SESSION_KILLS=100 SESSION_SEED=7 cargo test --all-features --test processes workload::`.
mod check;
mod shown;
mod two;
mod worker;

use crate::flow::lives::{self, Life, live};
use check::Remembered;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The test path of the worker process.
const WORKER: &str = concat!(module_path!(), "::worker_that_is_killed");

/// Default number of runs, and default seed.
const RUNS: u64 = 10;
const SEED: u64 = 20_261_122;
/// Maximum number of parallel runs.
const AT_ONCE: usize = 2;

#[test]
fn a_session_that_is_killed_anywhere_has_each_turn_once_and_shows_its_model_the_same() {
    let given = |name: &str| {
        env::var(name)
            .ok()
            .and_then(|given| given.parse::<u64>().ok())
    };
    let runs = usize::try_from(given("SESSION_KILLS").unwrap_or(RUNS)).unwrap();
    let seed = given("SESSION_SEED").unwrap_or(SEED);
    let folder = Folder::new("killed");
    let whole = live(WORKER, &folder.0.join("whole"), &[], &worker::say_all);
    let points = whole.points();
    let expected = Remembered::of(&whole);
    let mut problems = check::problems(&whole, &expected);
    problems.extend(check::unlike_what_was_said(&expected));
    assert!(problems.is_empty(), "{problems:?}");
    assert!(points >= 150, "there are only {points} points");

    let next = AtomicUsize::new(0);
    let ended = Mutex::new((0, Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let number = next.fetch_add(1, Ordering::Relaxed)
                    && number < runs
                {
                    let mut chance = Chance(seed.wrapping_add(number as u64));
                    // A third lost worker in a row would be a crash loop.
                    let deaths = [chance.below(points) + 1, chance.below(points) + 1];
                    let lived = live(
                        WORKER,
                        &folder.0.join(number.to_string()),
                        &deaths,
                        &worker::say_all,
                    );
                    let problems = check::problems(&lived, &expected).into_iter();
                    let mut ended = ended.lock().unwrap();
                    ended.0 += lived.kills;
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
    fn new(of: &str) -> Self {
        let name = format!("universal-executor-sessions-{of}-{}", std::process::id());
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
