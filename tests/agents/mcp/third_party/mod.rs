//! Tests with programs of other projects, which `scripts/third-party` installs. Without them, the tests are skipped.

#[cfg(feature = "mcp-server")]
mod clients;
mod servers;

use crate::child::is_alive;
use std::ffi::OsString;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The environment variable that marks the processes of one test.
const MARK: &str = "UX_THIRD_PARTY_TEST";

/// The paths of the installed programs.
struct Programs {
    node: OsString,
    everything: OsString,
    inspector: OsString,
    time: OsString,
    python: OsString,
    /// The value of [`MARK`] in the processes of the test.
    mark: String,
}

impl Programs {
    /// Returns the installed programs, or `None` if the variables are not set. Fails without the variables if tests must not be skipped.
    /// The tests are skipped in CI, because `make ci` does not install the programs.
    fn installed() -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let names = [
            "NODE",
            "MCP_EVERYTHING",
            "MCP_INSPECTOR",
            "MCP_TIME",
            "MCP_PYTHON",
        ];
        let [
            Some(node),
            Some(everything),
            Some(inspector),
            Some(time),
            Some(python),
        ] = names.map(std::env::var_os)
        else {
            let problem = format!("one of {names:?} is not set: see scripts/third-party");
            let is_required = std::env::var_os("UX_REQUIRE_THIRD_PARTY").is_some();
            assert!(!is_required, "{problem}");
            // A print macro would be captured by the test harness.
            let skipped =
                format!("SKIPPED: a test with a program of another project, because {problem}\n");
            std::io::stderr().write_all(skipped.as_bytes()).unwrap();
            return None;
        };
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Some(Self {
            node,
            everything,
            inspector,
            time,
            python,
            mark: format!("{}-{count}", std::process::id()),
        })
    }

    /// Returns the IDs of the running processes of the test.
    fn running(&self) -> Vec<String> {
        let mark = format!("{MARK}={}", self.mark);
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let is_marked = |pid: &String| {
            // The environment of an ended process, or of a process of another user, cannot be read.
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|variable| variable == mark.as_bytes()) && is_alive(pid)
        };
        pids.filter(is_marked).collect()
    }

    /// Returns the ID of the only running process of the test.
    fn pid(&self) -> String {
        let running = self.running();
        assert_eq!(running.len(), 1, "{running:?}");
        running.into_iter().next().unwrap()
    }

    /// Waits until no process of the test runs.
    async fn end(&self) {
        until("a process of the test still runs", async || {
            self.running().is_empty().then_some(())
        })
        .await;
    }
}

/// Polls until the result is `Some`. Fails after a minute.
async fn until<T>(problem: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(result) = poll().await {
            return result;
        }
        assert!(Instant::now() < end, "{problem}");
        tokio::task::yield_now().await;
        std::thread::yield_now();
    }
}
