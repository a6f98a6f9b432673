//! Workers that are processes of their own, killed with SIGKILL while calls go wrong.

use super::seeds;
use super::stage::{INFLIGHT, Stage, runtime, store};
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

/// Tells a process where the server is, where it notes what it does, and where the ledger is, if there is one.
const WORKER: &str = "UX_RCRT_WORKER";

const KILLS: usize = 15;

/// What a killed worker held is free again after this.
const LEASE: Duration = Duration::from_secs(1);

/// What [`start`] starts; does nothing by itself.
#[tokio::test]
async fn worker_that_is_killed() {
    let Ok(told) = env::var(WORKER) else { return };
    let mut told = told.split(' ');
    let (url, oracle) = (told.next().unwrap(), PathBuf::from(told.next().unwrap()));
    let server = store(url);
    let built = match told.next() {
        Some(ledger) => {
            // A kill takes nothing from the kernel, so nobody has to wait for the disk.
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

/// A process that ends with its test.
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

fn start(stage: &Stage, ledger: Option<&str>) -> Worker {
    let mut told = vec![
        stage.server.base_url(),
        stage.path("oracle").display().to_string(),
    ];
    told.extend(ledger.map(|name| stage.path(name).display().to_string()));
    let mut command = run_alone(concat!(module_path!(), "::worker_that_is_killed"));
    command.env(WORKER, told.join(" ")).stdout(Stdio::null());
    Worker(command.spawn().unwrap())
}

/// Whether a process is in the middle of an execution, or was when it ended.
fn is_busy(stage: &Stage, process: u32) -> bool {
    let busy = stage.oracle.read().busy;
    busy.get(&process)
        .is_some_and(|questions| !questions.is_empty())
}

/// Asks and kills, then lets what is left be answered; returns how many kills met an execution.
async fn harm(stage: &mut Stage, workers: usize, ledger: Option<&str>) -> usize {
    let mut living: Vec<Worker> = (0..workers).map(|_| start(stage, ledger)).collect();
    let mut landed = 0;
    for _ in 0..KILLS {
        stage.ask(10).await;
        // It comes in the middle of something, if it can.
        let mut at = usize::try_from(stage.dice.below(u64::try_from(workers).unwrap())).unwrap();
        for _ in 0..600 {
            if is_busy(stage, living[at].0.id()) {
                break;
            }
            at = (at + 1) % workers;
            stage.pause(10).await;
        }
        let id = living[at].0.id();
        living[at].kill();
        landed += usize::from(is_busy(stage, id));
        living[at] = start(stage, ledger);
    }
    stage.come_to_rest().await;
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

/// Says what happened, and holds what has to hold of it; returns why there are dead letters.
fn judge(stage: &Stage, seed: u64, landed: usize) -> Vec<String> {
    let letters = stage.judge();
    let (executions, spoilt) = (stage.oracle.read().executions, stage.server.lock().spoilt);
    let (asked, times, failed) = (
        stage.asked(),
        executions.values().sum::<usize>(),
        letters.len(),
    );
    let told = format!(
        "seed {seed}: {asked} questions, {times} executions, {landed} of {KILLS} kills landed, {spoilt} calls spoilt, {failed} dead letters"
    );
    // For whoever runs it by hand.
    let line = format!("{told}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    assert!(landed * 10 >= KILLS * 7 && spoilt > 50, "{told}");
    letters
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_beside_a_ledger_answer_each_question_once_though_they_are_killed() {
    for seed in seeds() {
        let mut stage = Stage::new("killed", seed, WEATHER).await;

        let landed = harm(&mut stage, 2, Some("ledger")).await;

        let letters = judge(&stage, seed, landed);
        // What three kills in a row hit is given up, and nothing else.
        assert!(
            letters.iter().all(|class| class == "crash_loop")
                && letters.len() <= KILLS / 3 * INFLIGHT,
            "seed {seed}: {letters:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_a_ledger_finds_what_it_was_killed_over() {
    for seed in seeds() {
        let mut stage = Stage::new("alone", seed, WEATHER).await;

        let landed = harm(&mut stage, 1, None).await;

        assert_eq!(judge(&stage, seed, landed), Vec::<String>::new());
    }
}
