//! Runs single tests of this binary in child processes.

use std::env;
use std::process::Command;

/// Returns a command that runs one test of this binary in a separate process. `test` is the test's path, starting with
/// the crate name: `concat!(module_path!(), "::name_of_the_test")`.
///
/// The test harness also succeeds if no test has this name, so callers must check an effect of the test.
pub(crate) fn run_alone(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", within_crate(test)]);
    command
}

/// Returns `true` if a process exists and has not ended. Only on Linux.
pub(crate) fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    status.is_ok_and(|status| !status.contains(") Z "))
}

/// Waits until a process has ended. Fails after a minute. Only on Linux.
pub(crate) async fn has_ended(pid: &str) {
    let started = std::time::Instant::now();
    while is_alive(pid) {
        assert!(started.elapsed().as_secs() < 60, "process {pid} still runs");
        tokio::task::yield_now().await;
        std::thread::yield_now();
    }
}

/// Returns a test's name in the test harness: its path without the crate name.
pub(crate) fn within_crate(test: &str) -> &str {
    test.split_once("::").unwrap().1
}

/// Returns `true` in a process that runs no other test. In any other process, runs the test in a separate process, checks that
/// it passed, and returns `false`.
pub(crate) fn is_alone(test: &str) -> bool {
    const ALONE: &str = "UNIVERSAL_EXECUTOR_TEST_ALONE";
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let output = run_alone(test).env(ALONE, "1").output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(out.contains("test result: ok. 1 passed"), "{out}{err}");
    false
}
