//! Load generator: writes the triggers, and records the accepted ones.

use crate::backend::{OTHERS, Store};
use crate::executors::Order;
use crate::oracle::{Accepted, Job, Oracle, Record, Trigger};
use crate::settings::{On, Settings};
use crate::{BoxError, say};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use universal_executor::store::{Commit, RunFilter, RunState, Write};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt as _, NewBreadcrumb, Patch,
};

/// Number of ordering keys. Half of the triggers have one.
const LANES: u64 = 48;

/// Writes the backlog before the first worker starts: more triggers than a worker can receive at once.
pub async fn backlog<S: BreadcrumbStore>(
    store: &S,
    oracle: &Oracle,
    settings: &Settings,
) -> Result<(), BoxError> {
    const AT_ONCE: u64 = 250;
    let job = Job::Plain;
    for first in (0..settings.backlog).step_by(250) {
        let numbers = first..(first + AT_ONCE).min(settings.backlog);
        let new = |n| NewBreadcrumb::new(job.schema()).context(json!(Order::new(n, job, 1)));
        let commit = Commit {
            writes: numbers.clone().map(|n| Write::Create(new(n))).collect(),
            end: None,
        };
        let committed = store.commit(commit).await?;
        for (n, created) in numbers.zip(committed.written) {
            note(oracle, n, job, Ok(created))?;
        }
    }
    Ok(())
}

/// Writes triggers until there are enough and all faults have happened. Returns the number of the last trigger.
pub async fn generate(
    store: &Store,
    oracle: &Oracle,
    settings: &Settings,
    faults_are_over: &AtomicBool,
) -> Result<u64, BoxError> {
    let (others, store) = (store.in_tenant(OTHERS).handle(), &store.handle());
    let mut random = fastrand::Rng::with_seed(settings.seed);
    let pause = Duration::from_micros(1_000_000 / settings.rate.max(1));
    let mut next = Instant::now();
    let mut n = settings.backlog;
    while n < settings.backlog + settings.triggers || !faults_are_over.load(Ordering::Relaxed) {
        n += 1;
        if n.is_multiple_of(settings.rate.max(1)) {
            wait_for_backlog(store, settings.behind).await;
        }
        if n.is_multiple_of(settings.canary_every.max(1)) {
            sing(&others, oracle, n, &mut random).await?;
        }
        let job = draw(n, &mut random, settings);
        let created = create(store, oracle, n, job, &mut random).await?;
        if let (Some(created), Job::Plain) = (created, job)
            && random.u8(..25) == 0
        {
            n += 1;
            change(store, oracle, n, &created).await?;
        }
        // The schedule does not catch up after a time in which the store was locked.
        next = (next + pause).max(Instant::now() - Duration::from_millis(100));
        sleep_until(next).await;
    }
    Ok(n)
}

/// Writes a canary: a job for another tenant, with an ordering key that the workers' tenant also uses.
async fn sing<S: BreadcrumbStore>(
    store: &S,
    oracle: &Oracle,
    n: u64,
    random: &mut fastrand::Rng,
) -> Result<(), BoxError> {
    let order = Order {
        canary: true,
        ..Order::new(n, Job::Plain, 1)
    };
    let new = NewBreadcrumb::new(order.job.schema())
        .tag(format!("lane:{}", random.u64(..LANES)))
        .context(json!(order));
    if store.create(new).await.is_ok() {
        oracle.note(&Record::Canary)?;
    }
    Ok(())
}

/// Waits while the number of ready runs is at its limit.
async fn wait_for_backlog<S: BreadcrumbStore>(store: &S, behind: usize) {
    let open = RunFilter::all().state(RunState::Ready).limit(behind);
    while let Some(ledger) = store.ledger()
        && ledger
            .runs(&open)
            .await
            .is_ok_and(|runs| runs.len() >= behind)
    {
        sleep(Duration::from_millis(200)).await;
    }
}

/// Chooses the job of the n-th trigger.
fn draw(n: u64, random: &mut fastrand::Rng, settings: &Settings) -> Job {
    // Jobs with a fixed count are spread evenly over the campaign.
    let every = |count: u64| settings.triggers / (count + 1);
    if settings.poison > 0 && n.is_multiple_of(every(settings.poison)) {
        return Job::Poison;
    }
    if settings.loops > 0 && (n + 7).is_multiple_of(every(settings.loops)) {
        return Job::Loop;
    }
    let drawn = random.u16(..1_000);
    if u32::from(drawn) >= 1_000 - settings.payments.min(500) {
        return if drawn.is_multiple_of(2) {
            Job::Approved
        } else {
            Job::Forged
        };
    }
    match drawn {
        0..50 => Job::Once,
        50..100 => Job::Two,
        100..140 => Job::Flaky,
        140..160 => Job::Panics,
        160..180 => Job::Refused,
        // Another worker can receive the event of the reply. The waiting worker then finds the reply only by a sweep.
        180..210 if settings.looks => Job::Asks,
        210..240 => Job::Long,
        240..243 => Job::Hangs,
        // Servers get fewer triggers per second, and workers reach some points only in long runs.
        243..300 if settings.on != On::Sqlite => Job::Long,
        _ => Job::Plain,
    }
}

async fn create<S: BreadcrumbStore>(
    store: &S,
    oracle: &Oracle,
    n: u64,
    job: Job,
    random: &mut fastrand::Rng,
) -> Result<Option<Arc<Breadcrumb>>, BoxError> {
    let work = random.u64(120..420);
    let mut new = NewBreadcrumb::new(job.schema())
        .tag(format!("n:{n}"))
        .context(json!(Order::new(n, job, work)));
    // Poison would block its ordering key until its run fails.
    if job != Job::Poison && random.bool() {
        new = new.tag(format!("lane:{}", random.u64(..LANES)));
    }
    if job == Job::Loop {
        new = new.tag("turn:ping");
    }
    note(oracle, n, job, store.create(new).await.map_err(Into::into))
}

/// Updates a trigger that may have been answered already. Answers must not mix up the versions.
async fn change<S: BreadcrumbStore>(
    store: &S,
    oracle: &Oracle,
    n: u64,
    before: &Breadcrumb,
) -> Result<(), BoxError> {
    let job = Job::Plain;
    let patch = Patch::new().context(json!(Order::new(n, job, 10)));
    let updated = store.update(before.id, before.version, patch).await;
    note(oracle, n, job, updated.map_err(Into::into))?;
    Ok(())
}

fn note(
    oracle: &Oracle,
    n: u64,
    job: Job,
    created: Result<Arc<Breadcrumb>, BoxError>,
) -> Result<Option<Arc<Breadcrumb>>, BoxError> {
    match created {
        Ok(created) => {
            let trigger = Trigger::of(&created);
            oracle.note(&Record::Accepted(Accepted { n, trigger, job }))?;
            Ok(Some(created))
        }
        Err(error) => {
            say(format_args!(
                "trigger {n} may or may not be stored: {error}"
            ));
            oracle.note(&Record::Unclear { n, job })?;
            Ok(None)
        }
    }
}
