//! Fault injection: starts the workers, kills them at random moments and at points, pauses them for longer than their leases, stops
//! them with SIGTERM, locks their store, and restarts the servers. Every worker that has ended is started again.

use crate::BoxError;
use crate::backend::Backend;
use crate::bugs::Bug;
use crate::oracle::{Harm, Oracle, Record};
use crate::point::{BEFORE_COMMIT, Deed, POINTS, Point, Trap};
use crate::proxy::Proxy;
use crate::servers::Servers;
use crate::settings::Settings;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// Time limit for the end of a worker, and for a point that every worker reaches.
const LONG: Duration = Duration::from_secs(30);

/// Time limit for all tries to kill a worker at a point.
const AT_POINT: Duration = Duration::from_secs(90);

/// Maximum time to wait until a worker executes before it is killed anyway.
const AT_WORK: Duration = Duration::from_secs(8);

/// A worker name with its current process. A process that ends is replaced by a new one.
pub struct WorkerProcess {
    name: String,
    folder: PathBuf,
    bug: Option<String>,
    child: Child,
    pid: u32,
}

impl WorkerProcess {
    /// Starts the first process of a worker.
    pub fn start(folder: &Path, name: String, bug: Option<String>) -> Result<Self, BoxError> {
        let (child, pid) = spawn(folder, &name, bug.as_deref(), None)?;
        Ok(Self {
            name,
            folder: folder.to_owned(),
            bug,
            child,
            pid,
        })
    }

    /// Returns the worker name, which is also its consumer name in the store.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn signal(&self, signal: Signal) -> Result<(), BoxError> {
        let pid =
            Pid::from_raw(self.pid.cast_signed()).ok_or("the ID of the worker process is 0")?;
        Ok(kill_process(pid, signal)?)
    }

    fn spawn_again(&mut self, trap: Option<String>) -> Result<(), BoxError> {
        (self.child, self.pid) = spawn(&self.folder, &self.name, self.bug.as_deref(), trap)?;
        Ok(())
    }

    /// Returns `true` if the process has exited without a signal from the campaign, and records the exit.
    fn has_exited(&mut self, oracle: &Oracle) -> Result<bool, BoxError> {
        let Some(status) = self.child.try_wait()? else {
            return Ok(false);
        };
        oracle.note(&Record::Gone {
            pid: self.pid,
            code: status.code(),
            took: None,
        })?;
        Ok(true)
    }

    /// Starts a new process if the current one has exited.
    fn revive(&mut self, oracle: &Oracle) -> Result<(), BoxError> {
        if self.has_exited(oracle)? {
            self.spawn_again(None)?;
        }
        Ok(())
    }

    /// Kills the process with SIGKILL, and starts a new one.
    async fn kill(&mut self, oracle: &Oracle) -> Result<(), BoxError> {
        if !self.has_exited(oracle)? {
            self.child.kill().await?;
            oracle.note(&Record::Killed { pid: self.pid })?;
        }
        self.spawn_again(None)
    }

    /// Pauses the process with SIGSTOP for a time.
    async fn stop(&mut self, oracle: &Oracle, time: Duration) -> Result<(), BoxError> {
        if self.has_exited(oracle)? {
            return self.spawn_again(None);
        }
        self.signal(Signal::STOP)?;
        oracle.note(&Record::Stopped { pid: self.pid })?;
        sleep(time).await;
        oracle.note(&Record::Continued { pid: self.pid })?;
        self.signal(Signal::CONT)
    }

    /// Starts a process that pauses itself just before a commit, and continues it after a time.
    async fn stop_at(
        &mut self,
        oracle: &Oracle,
        after: u64,
        time: Duration,
    ) -> Result<(), BoxError> {
        self.end(oracle).await?;
        self.spawn_again(Some(Trap::text(BEFORE_COMMIT, Deed::Stop, after)))?;
        let started = Instant::now();
        while !is_stopped(self.pid) {
            if started.elapsed() > LONG || self.has_exited(oracle)? {
                return self.revive(oracle);
            }
            sleep(Duration::from_millis(5)).await;
        }
        oracle.note(&Record::Stopped { pid: self.pid })?;
        sleep(time).await;
        oracle.note(&Record::Continued { pid: self.pid })?;
        self.signal(Signal::CONT)
    }

    /// Starts processes until one kills itself at a point, for at most [`AT_POINT`]. Starts no process afterwards.
    async fn kill_at(&mut self, oracle: &Oracle, point: Point, after: u64) -> Result<(), BoxError> {
        self.end(oracle).await?;
        let started = Instant::now();
        let mut after = after;
        while started.elapsed() < AT_POINT {
            self.spawn_again(Some(Trap::text(point, Deed::Kill, after)))?;
            let Ok(status) = timeout(LONG, self.child.wait()).await else {
                self.child.kill().await?;
                oracle.note(&Record::Killed { pid: self.pid })?;
                after = 0;
                continue;
            };
            let status = status?;
            oracle.note(&Record::Gone {
                pid: self.pid,
                code: status.code(),
                took: None,
            })?;
            if status.signal() == Some(Signal::KILL.as_raw()) {
                break;
            }
            // Poison or an unavailable server ended the process before it reached the point.
            after = 0;
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Sends SIGTERM, and waits for the exit. Kills the process after [`LONG`].
    pub async fn end(&mut self, oracle: &Oracle) -> Result<(), BoxError> {
        if self.has_exited(oracle)? {
            return Ok(());
        }
        oracle.note(&Record::Told { pid: self.pid })?;
        let signalled_at = Instant::now();
        self.signal(Signal::TERM)?;
        let status = match timeout(LONG, self.child.wait()).await {
            Ok(status) => status?,
            Err(_) => {
                self.child.kill().await?;
                self.child.wait().await?
            }
        };
        oracle.note(&Record::Gone {
            pid: self.pid,
            code: status.code(),
            took: u64::try_from(signalled_at.elapsed().as_millis()).ok(),
        })
    }

    /// Starts a new process if the current one has exited.
    pub fn restart_if_exited(&mut self, oracle: &Oracle) -> Result<(), BoxError> {
        self.revive(oracle)
    }
}

fn spawn(
    folder: &Path,
    name: &str,
    bug: Option<&str>,
    trap: Option<String>,
) -> Result<(Child, u32), BoxError> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join(format!("{name}.log")))?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("worker")
        .arg(folder)
        .arg(name)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true);
    if let Some(bug) = bug {
        command.env(Bug::VARIABLE, bug);
    }
    if let Some(trap) = trap {
        command.env(Trap::VARIABLE, trap);
    }
    let child = command.spawn()?;
    let pid = child
        .id()
        .ok_or("the worker process exited right after its start")?;
    Ok((child, pid))
}

/// Returns `true` if the process is stopped, by its state in `/proc`.
fn is_stopped(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let state = |status: &str| {
        let (_, rest) = status.rsplit_once(") ")?;
        rest.chars().next()
    };
    status.is_ok_and(|status| state(&status) == Some('T'))
}

/// Kills a worker `times` times at random moments, each time after it has started to execute: on a busy machine, a worker takes
/// long to start.
pub async fn kill(
    process: &mut WorkerProcess,
    oracle: &Oracle,
    settings: &Settings,
    times: u64,
) -> Result<(), BoxError> {
    let mut random = fastrand::Rng::with_seed(settings.seed ^ 1 ^ u64::from(process.pid));
    let mut follow = Oracle::follow(&process.folder)?;
    for _ in 0..times {
        let (least, most) = settings.kill_every;
        sleep(Duration::from_millis(random.u64(least..most))).await;
        process.revive(oracle)?;
        let waiting_since = Instant::now();
        while !follow.has_started(process.pid)? && waiting_since.elapsed() < AT_WORK {
            sleep(Duration::from_millis(20)).await;
        }
        sleep(Duration::from_millis(random.u64(..200))).await;
        // Seven of eight kills wait until the worker executes.
        let waits = random.u8(..8) > 0;
        while waits && !follow.is_at_work(process.pid)? && waiting_since.elapsed() < AT_WORK {
            sleep(Duration::from_millis(5)).await;
        }
        process.kill(oracle).await?;
    }
    Ok(())
}

/// Pauses a worker for longer than a lease, at random moments and just before a commit.
pub async fn stop(
    process: &mut WorkerProcess,
    oracle: &Oracle,
    settings: &Settings,
    times: u64,
) -> Result<(), BoxError> {
    let mut random = fastrand::Rng::with_seed(settings.seed ^ 2 ^ u64::from(process.pid));
    for time in 0..times {
        sleep(Duration::from_millis(random.u64(200..700))).await;
        let stopped = Duration::from_millis(random.u64(settings.lease * 5 / 4..settings.lease * 2));
        if time % 2 == 0 {
            process.stop_at(oracle, random.u64(..20), stopped).await?;
        } else {
            process.stop(oracle, stopped).await?;
        }
    }
    Ok(())
}

/// Kills a worker at every point.
pub async fn points(
    process: &mut WorkerProcess,
    oracle: &Oracle,
    settings: &Settings,
) -> Result<(), BoxError> {
    let mut random = fastrand::Rng::with_seed(settings.seed ^ 3);
    for _ in 0..settings.each_point {
        for (number, point) in POINTS.into_iter().enumerate() {
            process.kill_at(oracle, point, random.u64(..3)).await?;
            // Every other time a process runs for a while, so that it can be stopped with SIGTERM.
            if number % 2 == 0 {
                process.revive(oracle)?;
                sleep(Duration::from_millis(300)).await;
            }
        }
    }
    process.revive(oracle)
}

/// Restarts servers and deletes the stream, in random order.
pub async fn restart(
    servers: Option<&Servers>,
    folder: &Path,
    settings: &Settings,
) -> Result<(), BoxError> {
    let Some(servers) = servers else {
        return Ok(());
    };
    let oracle = Oracle::open(folder)?;
    let planned = settings.servers;
    let mut random = fastrand::Rng::with_seed(settings.seed ^ 4);
    let mut harms = Vec::new();
    for (harm, times) in [
        (Harm::PostgresRestarted, planned.postgres_restarts),
        (Harm::NatsRestarted, planned.nats_restarts),
        (Harm::StreamDeleted, planned.streams_deleted),
    ] {
        harms.extend((0..times).map(|_| harm));
    }
    random.shuffle(&mut harms);
    for harm in harms {
        let (least, most) = planned.restart_every;
        sleep(Duration::from_millis(random.u64(least..most))).await;
        let down = random.f64() * planned.down;
        match harm {
            Harm::PostgresRestarted => {
                oracle.note(&Record::Locked)?;
                servers.restart_postgres(down).await?;
                oracle.note(&Record::Unlocked)?;
            }
            Harm::NatsRestarted => servers.restart_nats(down).await?,
            Harm::StreamDeleted => servers.delete_stream().await?,
            Harm::AnswerLost | Harm::Cut | Harm::Slow | Harm::ClockJumped => {}
        }
        oracle.note(&Record::Harmed(harm))?;
    }
    Ok(())
}

/// Injects faults into the connections to PostgreSQL.
pub async fn meddle(proxy: Option<&Proxy>, settings: &Settings) -> Result<(), BoxError> {
    let Some(proxy) = proxy else { return Ok(()) };
    let planned = settings.servers;
    let mut random = fastrand::Rng::with_seed(settings.seed ^ 5);
    let mut harms = Vec::new();
    for (harm, times) in [
        (Harm::AnswerLost, planned.answers_lost),
        (Harm::Cut, planned.cuts),
        (Harm::Slow, planned.slow),
    ] {
        harms.extend((0..times).map(|_| harm));
    }
    random.shuffle(&mut harms);
    for harm in harms {
        let (least, most) = planned.every;
        sleep(Duration::from_millis(random.u64(least..most))).await;
        match harm {
            Harm::AnswerLost => proxy.lose_an_answer(),
            Harm::Cut => proxy.cut()?,
            Harm::Slow => {
                proxy.delay(random.u64(5..60))?;
                sleep(Duration::from_millis(random.u64(200..1_000))).await;
                proxy.delay(0)?;
            }
            Harm::PostgresRestarted
            | Harm::NatsRestarted
            | Harm::StreamDeleted
            | Harm::ClockJumped => {}
        }
    }
    Ok(())
}

/// Takes the write lock of the SQLite file, as a backup or an administration tool can.
pub async fn lock(folder: &Path, settings: &Settings) -> Result<(), BoxError> {
    for _ in 0..settings.locks {
        sleep(Duration::from_secs(5)).await;
        let Backend::Sqlite { file } = Backend::read(folder)? else {
            return Ok(());
        };
        let (folder, time) = (folder.to_owned(), Duration::from_millis(settings.lock_for));
        tokio::task::spawn_blocking(move || hold_lock(&folder, &file, time)).await??;
    }
    Ok(())
}

fn hold_lock(folder: &Path, file: &Path, time: Duration) -> Result<(), BoxError> {
    let oracle = Oracle::open(folder)?;
    let connection = rusqlite::Connection::open(file)?;
    connection.busy_timeout(Duration::from_millis(200))?;
    // A worker can be paused while it writes, and SQLite's lock is not fair, so this can take long.
    while let Err(error) = connection.execute_batch("BEGIN IMMEDIATE") {
        if error.sqlite_error_code() != Some(rusqlite::ErrorCode::DatabaseBusy) {
            return Err(error.into());
        }
    }
    oracle.note(&Record::Locked)?;
    std::thread::sleep(time);
    connection.execute_batch("ROLLBACK")?;
    oracle.note(&Record::Unlocked)
}
