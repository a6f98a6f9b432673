//! One campaign: load and faults at once, then peace, then the check.

use crate::check::check;
use crate::history::History;
use crate::nemesis::{self, Slot};
use crate::oracle::Oracle;
use crate::report::Report;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::{BoxError, backend, load, say};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use universal_executor::BreadcrumbStore;
use universal_executor::store::{RunFilter, RunState};

/// Runs a campaign in an empty folder.
pub async fn run(folder: &Path, settings: &Settings) -> Result<Report, BoxError> {
    settings.write(folder)?;
    let begun = Instant::now();
    let oracle = Oracle::open(folder)?;
    let store = backend::open(folder).await?;
    load::backlog(&store, &oracle, settings).await?;
    let workers = settings.workers;
    let start = |name: &'static str, n: usize| {
        let slots =
            (0..n).map(move |i| Slot::start(folder, format!("{name}-{i}"), settings.bug.clone()));
        slots.collect::<Result<Vec<_>, _>>()
    };
    let mut killed = start("killed", workers.killed)?;
    let mut stopped = start("stopped", workers.stopped)?;
    let mut pointed = start("pointed", workers.pointed)?;

    let (over, loaded) = (AtomicBool::new(false), AtomicBool::new(false));
    let faults = async {
        let each = settings.stops.div_ceil(workers.stopped.max(1) as u64);
        let stops = stopped
            .iter_mut()
            .map(|slot| nemesis::stop(slot, &oracle, settings, each));
        let points = pointed
            .iter_mut()
            .map(|slot| nemesis::points(slot, &oracle, settings));
        let done = tokio::try_join!(
            nemesis::kill(&mut killed, &oracle, settings),
            futures::future::try_join_all(stops),
            futures::future::try_join_all(points),
            nemesis::lock(folder, settings),
        );
        over.store(true, Ordering::Relaxed);
        done?;
        // Poison goes on killing, and what is left to write waits for those who answer.
        while !loaded.load(Ordering::Relaxed) {
            for slot in [&mut killed, &mut stopped, &mut pointed]
                .into_iter()
                .flatten()
            {
                slot.tend(&oracle)?;
            }
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    };
    let load = async {
        let tried = load::generate(&store, &oracle, settings, &over).await;
        loaded.store(true, Ordering::Relaxed);
        tried
    };
    let ((), tried) = tokio::try_join!(faults, load)?;
    say(format_args!(
        "{tried} triggers tried; peace after {:?}",
        begun.elapsed()
    ));

    let mut slots: Vec<Slot> = [killed, stopped, pointed].into_iter().flatten().collect();
    settle(&store, &oracle, settings, &mut slots).await?;
    for slot in &mut slots {
        slot.end(&oracle).await?;
    }
    let history = History::of(&Oracle::read(folder)?);
    let snapshot = Snapshot::read(&store).await?;
    let found = check(&history, &snapshot, settings);
    let report = Report::new(settings, &history, &snapshot, begun.elapsed(), found);
    Ok(report)
}

/// Waits until nothing is left to do, or nothing happens any more.
async fn settle<S: BreadcrumbStore>(
    store: &S,
    oracle: &Oracle,
    settings: &Settings,
    slots: &mut [Slot],
) -> Result<(), BoxError> {
    let ledger = store.ledger().ok_or("the store has no ledger")?;
    let open = [RunState::Ready, RunState::Running, RunState::Suspended];
    let open = open.into_iter().fold(RunFilter::all(), RunFilter::state);
    let (mut least, mut since) = (usize::MAX, Instant::now());
    let mut quiet = 0;
    while since.elapsed() < settings.patience() && quiet < 5 {
        sleep(Duration::from_millis(200)).await;
        for slot in &mut *slots {
            slot.tend(oracle)?;
        }
        let left = ledger.runs(&open).await?.len();
        // What was announced last may not be in the ledger yet.
        quiet = if left == 0 { quiet + 1 } else { 0 };
        if left < least {
            (least, since) = (left, Instant::now());
        }
    }
    Ok(())
}
