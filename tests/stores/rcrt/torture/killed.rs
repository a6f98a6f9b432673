//! Workers in separate processes that are killed with SIGKILL while calls fail.

use super::harness::{Harness, INFLIGHT, runtime, store};
use super::seeds;
use crate::child::run_alone;
use crate::rcrt::server::Weather;
use std::env;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;
use universal_executor::source::StartAt;
use universal_executor::store::Durability;
use universal_executor::{SqliteStore, WithLedger};

/// The environment variable for a worker process: the server's URL, the path of its notes, and the path of a ledger if there is one.
const WORKER: &str = "UX_RCRT_WORKER";

const KILLS: usize = 15;

/// The lease of the workers. The runs of a killed worker can be claimed after this time.
const LEASE: Duration = Duration::from_secs(1);

/// The worker process that [`start`] starts. It does nothing without its environment variable.
#[tokio::test]
async fn worker_that_is_killed() {
    let Ok(told) = env::var(WORKER) else { return };
    let mut told = told.split(' ');
    let (url, oracle) = (told.next().unwrap(), PathBuf::from(told.next().unwrap()));
    let server = store(url);
    let built = match told.next() {
        Some(ledger) => {
            // The kernel keeps the writes of a killed process, so no write has to wait for the disk.
            let ledger = SqliteStore::builder(ledger).durability(Durability::Normal);
            let both = WithLedger::new(server.clone(), ledger.open().await.unwrap());
            runtime(&server, both, &oracle, LEASE)
        }
        None => runtime(&server, server.clone(), &oracle, LEASE),
    };
    let day = Duration::from_secs(24 * 60 * 60);
    let runtime = built
        .start_at(StartAt::Beginning)
        .look_back(day)
        .build()
        .unwrap();
    runtime.run_until(std::future::pending()).await.unwrap();
}

/// A process that is killed on drop.
struct Worker(Child);

impl Worker {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

fn start(harness: &Harness, ledger: Option<&str>) -> Worker {
    let mut told = vec![
        harness.server.base_url(),
        harness.path("oracle").display().to_string(),
    ];
    told.extend(ledger.map(|name| harness.path(name).display().to_string()));
    let mut command = run_alone(concat!(module_path!(), "::worker_that_is_killed"));
    command.env(WORKER, told.join(" ")).stdout(Stdio::null());
    Worker(command.spawn().unwrap())
}

/// Returns `true` if a process is executing a question, or was when it ended.
fn is_busy(harness: &Harness, process: u32) -> bool {
    let busy = harness.oracle.read().busy;
    busy.get(&process)
        .is_some_and(|questions| !questions.is_empty())
}

/// Asks questions and kills workers, then waits until all questions have an outcome. Returns the number of kills during an execution.
async fn harm(harness: &mut Harness, workers: usize, ledger: Option<&str>) -> usize {
    let mut living: Vec<Worker> = (0..workers).map(|_| start(harness, ledger)).collect();
    let mut landed = 0;
    for _ in 0..KILLS {
        harness.ask(10).await;
        // Prefer a worker that is executing a question.
        let mut at = usize::try_from(harness.dice.below(u64::try_from(workers).unwrap())).unwrap();
        for _ in 0..600 {
            if is_busy(harness, living[at].0.id()) {
                break;
            }
            at = (at + 1) % workers;
            harness.pause(10).await;
        }
        let id = living[at].0.id();
        living[at].kill();
        landed += usize::from(is_busy(harness, id));
        living[at] = start(harness, ledger);
    }
    harness.wait_until_idle().await;
    landed
}

const WEATHER: Weather = Weather {
    calls: 15,
    lost: 5,
    copies: 2,
    window: 0,
    noise: 0,
    cuts: 50,
};

/// Prints the figures of a campaign, and fails if a condition is violated. Returns the classes of the dead letters.
fn judge(harness: &Harness, seed: u64, landed: usize) -> Vec<String> {
    let letters = harness.judge();
    let (executions, spoilt) = (
        harness.oracle.read().executions,
        harness.server.lock().spoilt,
    );
    let (questions, times, failed) = (
        harness.questions(),
        executions.values().sum::<usize>(),
        letters.len(),
    );
    let told = format!(
        "seed {seed}: {questions} questions, {times} executions, {landed} of {KILLS} kills landed, {spoilt} calls spoilt, {failed} dead letters"
    );
    // Print the figures for manual test runs.
    let line = format!("{told}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    assert!(landed * 10 >= KILLS * 7 && spoilt > 50, "{told}");
    letters
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_beside_a_ledger_answer_each_question_once_though_they_are_killed() {
    for seed in seeds() {
        let mut harness = Harness::new("killed", seed, WEATHER).await;

        let landed = harm(&mut harness, 2, Some("ledger")).await;

        let letters = judge(&harness, seed, landed);
        // Only runs that lost three workers in a row may fail.
        assert!(
            letters.iter().all(|class| class == "crash_loop")
                && letters.len() <= KILLS / 3 * INFLIGHT,
            "seed {seed}: {letters:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_worker_without_a_ledger_finds_its_unfinished_questions() {
    for seed in seeds() {
        let mut harness = Harness::new("alone", seed, WEATHER).await;

        let landed = harm(&mut harness, 1, None).await;

        assert_eq!(judge(&harness, seed, landed), Vec::<String>::new());
    }
}
