//! An agent with two turns and three tools on a SQLite file, which is killed with SIGKILL at every step and started again.
//!
//! The agent runs in separate processes: this test executable starts itself again with the one test that is the worker. The worker
//! records its actions outside the store, in a file that only grows. A first run records all points: before, during and after each
//! call that changes the store, and in each tool and the model. Then, each point has one run in which a process is killed there.
//! The next process is usually killed at another point, and the one after that finishes.
mod check;
mod lives;
mod note;
mod points;
mod store;
mod worker;

use lives::{Lived, live, say};
use serde::{Deserialize, Serialize};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The way in which the agent calls its tools.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
enum ToolMode {
    /// Within the agent's process.
    InProcess,
    /// By requests that a dispatcher serves in separate runs.
    Breadcrumbs,
    /// Within the agent's process, with a person's approval for one tool.
    Approval,
}

/// The test path of the worker process.
pub(crate) const WORKER: &str = concat!(module_path!(), "::worker_that_is_killed");
/// Maximum number of parallel runs.
const AT_ONCE: usize = 2;

#[test]
fn an_agent_killed_at_any_step_answers_once_and_repeats_no_saved_step() {
    all_points(ToolMode::InProcess, None, 37);
}

#[test]
fn an_agent_that_was_killed_amid_its_tools_may_be_killed_again_at_any_step() {
    // At this point, one result is saved, and two tools are running.
    all_points(ToolMode::InProcess, Some("save 2 after"), 10);
}

#[test]
fn tools_called_over_breadcrumbs_survive_each_kill_like_in_process_tools() {
    all_points(ToolMode::Breadcrumbs, None, 50);
}

#[test]
fn requests_that_were_written_when_the_agent_was_killed_survive_another_kill() {
    // At this point, all requests are written, and none is served.
    all_points(ToolMode::Breadcrumbs, Some("commit 1 after"), 40);
}

#[test]
fn a_call_that_a_person_agreed_to_is_made_at_most_once_whenever_the_agent_is_killed() {
    all_points(ToolMode::Approval, None, 45);
}

/// The worker process that [`live`] starts and kills. It does nothing without its environment variable.
#[tokio::test]
async fn worker_that_is_killed() {
    let Ok(told) = env::var(lives::ENVIRONMENT) else {
        return;
    };
    worker::work(serde_json::from_str(&told).unwrap()).await;
}

/// Runs the agent once, with at most one kill at `first`, and then once for each later point. Fails if there are fewer than `least`
/// points.
fn all_points(tool_mode: ToolMode, first: Option<&str>, least: usize) {
    let folder = Folder::new(tool_mode, first);
    let first: Vec<_> = first.into_iter().map(str::to_owned).collect();
    let whole = live(&folder.0.join("whole"), tool_mode, &first);
    assert_eq!(whole.kills, first.len(), "{first:?}");
    let points = whole.points();

    let mut runs = killed_at_each(&first, &points, tool_mode, &folder.0);
    let were_killed = |run: &&Lived| run.kills > first.len();
    let killed = runs.iter().filter(were_killed).count();
    runs.push(whole);

    let problems: Vec<_> = runs
        .iter()
        .flat_map(|run| check::problems(run, tool_mode))
        .collect();
    let total = |count: fn(&Lived) -> usize| runs.iter().map(count).sum::<usize>();
    say(&format!(
        "{tool_mode:?} {first:?}: {} points, {killed} of them met first, {} kills, {} processes, {} requests to the model, {} calls",
        points.len(),
        total(|run| run.kills),
        total(|run| run.kills + 1),
        total(Lived::asked),
        total(Lived::started),
    ));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(points.len() >= least, "{points:?}");
    // A run may take another course than the first one and not reach its point.
    assert!(killed * 4 >= points.len() * 3, "{killed}");
}

/// Runs the agent once for each point, with several runs in parallel.
fn killed_at_each(
    first: &[String],
    points: &[String],
    tool_mode: ToolMode,
    folder: &Path,
) -> Vec<Lived> {
    let next = AtomicUsize::new(0);
    let runs = Mutex::new(Vec::new());
    let work = || {
        while let place = next.fetch_add(1, Ordering::Relaxed)
            && let Some(point) = points.get(place)
        {
            let mut deaths = [first, std::slice::from_ref(point)].concat();
            // The second kill is at a point that differs from run to run. A third lost worker in a row would be a crash loop.
            if deaths.len() < 2 {
                deaths.extend(points.iter().cycle().nth(place * 7 + 3).cloned());
            }
            let run = live(&folder.join(place.to_string()), tool_mode, &deaths);
            runs.lock().unwrap().push(run);
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    runs.into_inner().unwrap()
}

/// A folder that is deleted on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(tool_mode: ToolMode, first: Option<&str>) -> Self {
        let place = first.unwrap_or("any").replace(' ', "-");
        let process = std::process::id();
        let name = format!("universal-executor-kill-{tool_mode:?}-{place}-{process}");
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

/// Returns the path of a run's store.
fn database(folder: &Path) -> PathBuf {
    folder.join("store.db")
}
