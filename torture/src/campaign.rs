//! One campaign: load and faults at the same time, then a phase without faults, then the check.

use crate::backend::{Backend, OTHERS, Store};
use crate::check::check;
use crate::clock::Clock;
use crate::history::History;
use crate::nemesis::{self, WorkerProcess};
use crate::oracle::Oracle;
use crate::proxy::Proxy;
use crate::report::Report;
use crate::servers::Servers;
use crate::settings::{On, Settings};
use crate::snapshot::Snapshot;
use crate::{BoxError, clock, load, people, say};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use universal_executor::BreadcrumbStore;
use universal_executor::store::{RunFilter, RunState};

/// Workers by the faults that are injected into them.
struct Crew {
    killed: Vec<WorkerProcess>,
    stopped: Vec<WorkerProcess>,
    pointed: Vec<WorkerProcess>,
}

impl Crew {
    async fn start(folder: &Path, settings: &Settings, store: &Store) -> Result<Self, BoxError> {
        let start = |name: &str, n: usize| {
            let processes = (0..n)
                .map(|i| WorkerProcess::start(folder, format!("{name}-{i}"), settings.bug.clone()));
            processes.collect::<Result<Vec<_>, _>>()
        };
        let workers = settings.workers;
        let pointed = start("pointed", workers.pointed)?;
        if settings.on == On::Nats {
            // Old and new versions share the events: a trigger that only the new version matches is lost if the old version
            // receives it before a worker of the new version was ever live.
            any_worker(store).await;
        }
        Ok(Self {
            killed: start("killed", workers.killed)?,
            stopped: start("stopped", workers.stopped)?,
            pointed,
        })
    }

    fn all(&mut self) -> impl Iterator<Item = &mut WorkerProcess> {
        let kinds = [&mut self.killed, &mut self.stopped, &mut self.pointed];
        kinds.into_iter().flatten()
    }
}

/// Waits until a worker is live, for at most a minute.
async fn any_worker(store: &Store) {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if let Some(ledger) = store.handle().ledger()
            && let Ok(workers) = ledger.workers().await
            && workers.iter().any(|worker| worker.is_live)
        {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Runs a campaign in an empty folder, on servers if its store needs them.
pub async fn run(
    folder: &Path,
    settings: &Settings,
    servers: Option<&Servers>,
) -> Result<Report, BoxError> {
    settings.write(folder)?;
    let started = Instant::now();
    let oracle = Oracle::open(folder)?;
    let proxy = match servers {
        Some(servers) => Some(Proxy::start(servers.port()?, Oracle::open(folder)?).await?),
        None => None,
    };
    let backend = match (servers, &proxy) {
        (Some(servers), Some(proxy)) => servers.backend(settings.on, folder, proxy.port)?,
        (Some(_) | None, _) => Backend::Sqlite {
            file: folder.join("store.db"),
        },
    };
    backend.write(folder)?;
    let store = backend.open().await?;
    backend.prepare(&store, settings).await?;
    load::backlog(&store.handle(), &oracle, settings).await?;
    let others = store.in_tenant(OTHERS);
    let mut clock = Clock::of(folder);
    let campaign = harm(folder, settings, &store, servers, proxy.as_ref(), &oracle);
    tokio::select! {
        done = campaign => done?,
        () = people::approve(&store) => {}
        () = clock.follow(&store) => {}
        // Publishes the events of the other tenant, which no worker must receive.
        () = backend.relay(&others, Some(OTHERS)) => {}
    }
    Snapshot::read(&store).await?.write(folder)?;
    judge(folder, settings, started)
}

/// Runs the workers, the load and the faults, until all work is done and all workers have exited.
async fn harm(
    folder: &Path,
    settings: &Settings,
    store: &Store,
    servers: Option<&Servers>,
    proxy: Option<&Proxy>,
    oracle: &Oracle,
) -> Result<(), BoxError> {
    let started = Instant::now();
    let mut crew = Crew::start(folder, settings, store).await?;

    let (over, loaded) = (AtomicBool::new(false), AtomicBool::new(false));
    let faults = async {
        let done = do_harm(folder, settings, servers, proxy, oracle, &mut crew).await;
        over.store(true, Ordering::Relaxed);
        done?;
        // Poison can still kill workers, and the remaining load waits for workers that answer.
        while !loaded.load(Ordering::Relaxed) {
            for process in crew.all() {
                process.restart_if_exited(oracle)?;
            }
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    };
    let load = async {
        let tried = load::generate(store, oracle, settings, &over).await;
        loaded.store(true, Ordering::Relaxed);
        tried
    };
    let ((), tried) = tokio::try_join!(faults, load)?;
    say(format_args!(
        "wrote {tried} triggers; load and faults ended after {:?}",
        started.elapsed()
    ));

    if let Some(proxy) = proxy {
        proxy.rest();
    }
    settle(store, oracle, settings, &mut crew).await?;
    for process in crew.all() {
        process.end(oracle).await?;
    }
    Ok(())
}

/// Injects all faults of the campaign.
async fn do_harm(
    folder: &Path,
    settings: &Settings,
    servers: Option<&Servers>,
    proxy: Option<&Proxy>,
    oracle: &Oracle,
    crew: &mut Crew,
) -> Result<(), BoxError> {
    // Each running task holds a clone, so the reference count shows when all others have ended.
    let going_on = Arc::new(());
    let pointer = || Arc::clone(&going_on);
    let kills = shares(settings.kills, &mut crew.killed).map(|(process, times)| {
        let harm = async move |process: &mut WorkerProcess| {
            nemesis::kill(process, oracle, settings, times).await
        };
        harmed(process, oracle, pointer(), harm)
    });
    let stops = shares(settings.stops, &mut crew.stopped).map(|(process, times)| {
        let harm = async move |process: &mut WorkerProcess| {
            nemesis::stop(process, oracle, settings, times).await
        };
        harmed(process, oracle, pointer(), harm)
    });
    let points = crew.pointed.iter_mut().map(|process| {
        let harm = async move |process: &mut WorkerProcess| {
            nemesis::points(process, oracle, settings).await
        };
        harmed(process, oracle, pointer(), harm)
    });
    let others = pointer();
    let elsewhere = async move {
        tokio::try_join!(
            timed("locks", nemesis::lock(folder, settings)),
            timed("restarts", nemesis::restart(servers, folder, settings)),
            timed("meddling", nemesis::meddle(proxy, settings)),
            timed("jumps", clock::jump(folder, settings)),
        )?;
        drop(others);
        Ok(())
    };
    tokio::try_join!(
        futures::future::try_join_all(kills),
        futures::future::try_join_all(stops),
        futures::future::try_join_all(points),
        elsewhere,
    )?;
    Ok(())
}

/// Injects faults into a worker, and then keeps it running until all faults of the campaign have happened: poison can still kill it.
async fn harmed(
    process: &mut WorkerProcess,
    oracle: &Oracle,
    going_on: Arc<()>,
    harm: impl AsyncFnOnce(&mut WorkerProcess) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    timed(process.name().to_owned().as_str(), harm(process)).await?;
    let others = Arc::downgrade(&going_on);
    drop(going_on);
    // The caller holds one reference.
    while others.strong_count() > 1 {
        process.restart_if_exited(oracle)?;
        sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Distributes a number of faults over workers.
fn shares(
    times: u64,
    processes: &mut [WorkerProcess],
) -> impl Iterator<Item = (&mut WorkerProcess, u64)> {
    let among = processes.len().max(1) as u64;
    let (each, rest) = (times / among, times % among);
    let times = move |number: u64| each + u64::from(number < rest);
    processes
        .iter_mut()
        .zip(0..)
        .map(move |(process, number)| (process, times(number)))
}

/// Prints the duration of a task.
async fn timed<T>(what: &str, work: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let done = work.await;
    say(format_args!(
        "{what}: finished after {:?}",
        started.elapsed()
    ));
    done
}

/// Checks the saved snapshot of a campaign against the records of its oracle.
pub fn judge(folder: &Path, settings: &Settings, started: Instant) -> Result<Report, BoxError> {
    let history = History::of(&Oracle::read(folder)?);
    let snapshot = Snapshot::load(folder)?;
    let found = check(&history, &snapshot, settings);
    let report = Report::new(settings, &history, &snapshot, started.elapsed(), found);
    Ok(report)
}

/// Waits until all runs have ended and all events are received, or until there is no more progress.
async fn settle(
    store: &Store,
    oracle: &Oracle,
    settings: &Settings,
    crew: &mut Crew,
) -> Result<(), BoxError> {
    let events: Vec<_> = crew
        .all()
        .map(|process| store.events_of(process.name()))
        .collect();
    let store = store.handle();
    let ledger = store.ledger().ok_or("the store has no ledger")?;
    let open = [RunState::Ready, RunState::Running, RunState::Suspended];
    let open = open.into_iter().fold(RunFilter::all(), RunFilter::state);
    let (mut least, mut since) = (usize::MAX, Instant::now());
    // The last events can be enqueued, repeated or found by a sweep some seconds later.
    let enough = if settings.may_lose_events() { 30 } else { 5 };
    let mut quiet = 0;
    while since.elapsed() < settings.patience() && quiet < enough {
        sleep(Duration::from_millis(200)).await;
        for process in crew.all() {
            process.restart_if_exited(oracle)?;
        }
        let mut left = ledger.runs(&open).await?.len();
        for events in &events {
            let behind = events.behind().await?.unwrap_or(0);
            left = left.saturating_add(usize::try_from(behind)?);
        }
        quiet = if left == 0 { quiet + 1 } else { 0 };
        if left < least {
            (least, since) = (left, Instant::now());
        }
    }
    Ok(())
}
