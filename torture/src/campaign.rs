//! One campaign: load and faults at once, then peace, then the check.

use crate::backend::{OTHERS, Place, Store};
use crate::check::check;
use crate::history::History;
use crate::nemesis::{self, Slot};
use crate::oracle::Oracle;
use crate::proxy::Proxy;
use crate::report::Report;
use crate::servers::Servers;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::{BoxError, load, say};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use universal_executor::BreadcrumbStore;
use universal_executor::store::{RunFilter, RunState};

/// The workers, by what is done to them.
struct Crew {
    killed: Vec<Slot>,
    stopped: Vec<Slot>,
    pointed: Vec<Slot>,
}

impl Crew {
    fn start(folder: &Path, settings: &Settings) -> Result<Self, BoxError> {
        let start = |name: &str, n: usize| {
            let slots =
                (0..n).map(|i| Slot::start(folder, format!("{name}-{i}"), settings.bug.clone()));
            slots.collect::<Result<Vec<_>, _>>()
        };
        let workers = settings.workers;
        Ok(Self {
            killed: start("killed", workers.killed)?,
            stopped: start("stopped", workers.stopped)?,
            pointed: start("pointed", workers.pointed)?,
        })
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Slot> {
        let kinds = [&mut self.killed, &mut self.stopped, &mut self.pointed];
        kinds.into_iter().flatten()
    }
}

/// Runs a campaign in an empty folder, on servers if it needs any.
pub async fn run(
    folder: &Path,
    settings: &Settings,
    servers: Option<&Servers>,
) -> Result<Report, BoxError> {
    settings.write(folder)?;
    let begun = Instant::now();
    let oracle = Oracle::open(folder)?;
    let proxy = match servers {
        Some(servers) => Some(Proxy::start(servers.port()?, Oracle::open(folder)?).await?),
        None => None,
    };
    let place = match (servers, &proxy) {
        (Some(servers), Some(proxy)) => servers.place(settings.on, folder, proxy.port)?,
        (Some(_) | None, _) => Place::Sqlite {
            file: folder.join("store.db"),
        },
    };
    place.write(folder)?;
    let store = place.open().await?;
    place.prepare(&store, settings).await?;
    load::backlog(&store.handle(), &oracle, settings).await?;
    let others = store.in_tenant(OTHERS);
    let campaign = harm(folder, settings, &store, servers, proxy.as_ref(), &oracle);
    tokio::select! {
        done = campaign => done?,
        // What is published of the other tenant is for nobody here.
        () = place.relay(&others, Some(OTHERS)) => {}
    }
    Snapshot::read(&store).await?.write(folder)?;
    judge(folder, settings, begun)
}

/// From the first worker to the last.
async fn harm(
    folder: &Path,
    settings: &Settings,
    store: &Store,
    servers: Option<&Servers>,
    proxy: Option<&Proxy>,
    oracle: &Oracle,
) -> Result<(), BoxError> {
    let begun = Instant::now();
    let mut crew = Crew::start(folder, settings)?;

    let (over, loaded) = (AtomicBool::new(false), AtomicBool::new(false));
    let faults = async {
        let kills = shares(settings.kills, &mut crew.killed)
            .map(|(slot, times)| nemesis::kill(slot, oracle, settings, times));
        let stops = shares(settings.stops, &mut crew.stopped)
            .map(|(slot, times)| nemesis::stop(slot, oracle, settings, times));
        let points = crew
            .pointed
            .iter_mut()
            .map(|slot| nemesis::points(slot, oracle, settings));
        let done = tokio::try_join!(
            timed("kills", futures::future::try_join_all(kills)),
            timed("stops", futures::future::try_join_all(stops)),
            timed("points", futures::future::try_join_all(points)),
            timed("locks", nemesis::lock(folder, settings)),
            timed("restarts", nemesis::restart(servers, folder, settings)),
            timed("meddling", nemesis::meddle(proxy, settings)),
        );
        over.store(true, Ordering::Relaxed);
        done?;
        // Poison goes on killing, and what is left to write waits for those who answer.
        while !loaded.load(Ordering::Relaxed) {
            for slot in crew.all() {
                slot.tend(oracle)?;
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
        "{tried} triggers tried; peace after {:?}",
        begun.elapsed()
    ));

    if let Some(proxy) = proxy {
        proxy.rest();
    }
    settle(&store.handle(), oracle, settings, &mut crew).await?;
    for slot in crew.all() {
        slot.end(oracle).await?;
    }
    Ok(())
}

/// How often something is done to each.
fn shares(times: u64, slots: &mut [Slot]) -> impl Iterator<Item = (&mut Slot, u64)> {
    let among = slots.len().max(1) as u64;
    let (each, rest) = (times / among, times % among);
    let times = move |number: u64| each + u64::from(number < rest);
    slots
        .iter_mut()
        .zip(0..)
        .map(move |(slot, number)| (slot, times(number)))
}

/// Says how long something took.
async fn timed<T>(what: &str, work: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = work.await;
    say(format_args!("{what}: over after {:?}", begun.elapsed()));
    done
}

/// Holds what the store of a campaign said against what its oracle knows, also of one that was kept.
pub fn judge(folder: &Path, settings: &Settings, begun: Instant) -> Result<Report, BoxError> {
    let history = History::of(&Oracle::read(folder)?);
    let snapshot = Snapshot::kept(folder)?;
    let found = check(&history, &snapshot, settings);
    let report = Report::new(settings, &history, &snapshot, begun.elapsed(), found);
    Ok(report)
}

/// Waits until nothing is left to do, or nothing happens any more.
async fn settle<S: BreadcrumbStore>(
    store: &S,
    oracle: &Oracle,
    settings: &Settings,
    crew: &mut Crew,
) -> Result<(), BoxError> {
    let ledger = store.ledger().ok_or("the store has no ledger")?;
    let open = [RunState::Ready, RunState::Running, RunState::Suspended];
    let open = open.into_iter().fold(RunFilter::all(), RunFilter::state);
    let (mut least, mut since) = (usize::MAX, Instant::now());
    // What was announced last may not be in the ledger yet, or come again, or be found, some seconds later.
    let enough = if settings.may_lose_events() { 30 } else { 5 };
    let mut quiet = 0;
    while since.elapsed() < settings.patience() && quiet < enough {
        sleep(Duration::from_millis(200)).await;
        for slot in crew.all() {
            slot.tend(oracle)?;
        }
        let left = ledger.runs(&open).await?.len();
        quiet = if left == 0 { quiet + 1 } else { 0 };
        if left < least {
            (least, since) = (left, Instant::now());
        }
    }
    Ok(())
}
