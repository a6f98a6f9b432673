//! A flow of more than twenty steps, with branches side by side and an agent, on a SQLite file, killed with SIGKILL at random
//! points and started again.
//!
//! The flow works in processes of this test's own: the program starts itself again and asks for the one test that is the
//! worker. What its tools do is noted outside of the store, in a file that only grows. A first run that nobody kills says how
//! many points there are; then each run is killed at one of them by chance, and mostly at another one after that.
//!
//! `FLOW_KILLS` is the number of runs, `FLOW_SEED` the seed:
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

/// The path of the test that is the worker.
const WORKER: &str = concat!(module_path!(), "::worker_that_is_killed");

/// How many runs there are if nobody says another number, and by which chance.
const RUNS: u64 = 25;
const SEED: u64 = 20_261_122;
/// How many runs go on at a time.
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
    assert!(points >= 100, "there are {points} points only");

    let next = AtomicUsize::new(0);
    let ended = Mutex::new((0, Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let number = next.fetch_add(1, Ordering::Relaxed)
                    && number < runs
                {
                    let mut chance = Chance(seed.wrapping_add(number as u64));
                    // A third worker in a row that dies makes a crash loop, unless one came further in between.
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

/// What [`live`] starts and kills; does nothing by itself.
#[tokio::test]
async fn worker_that_is_killed() {
    let Ok(told) = env::var(lives::ENVIRONMENT) else {
        return;
    };
    let life: Life = serde_json::from_str(&told).unwrap();
    worker::work(life).await;
}

/// Numbers that look random, the same for the same seed.
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

/// A folder that goes when the test ends.
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
