//! A worker process: a runtime with the executors, on a store with injected faults, until SIGTERM or a kill.

use crate::backend::Backend;
use crate::clock::Clock;
use crate::executors::{self, Role};
use crate::noise::Noisy;
use crate::oracle::{Oracle, Record};
use crate::point::Trap;
use crate::settings::Settings;
use crate::{BoxError, say};
use futures::stream::{self, Stream};
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use universal_executor::error::Retry;
use universal_executor::runtime::{RunReport, RuntimeError};
use universal_executor::source::StartAt;
use universal_executor::store::{Fault, Faulty, Moment, Operation};
use universal_executor::{BreadcrumbStore, EventSource, Runtime};

/// Maximum number of received but unacknowledged deliveries. The check allows a few more.
const MAX_DELIVERIES: usize = 4_000;

/// Runs until SIGTERM.
pub async fn run(folder: &Path, slot: &str) -> Result<(), BoxError> {
    // The handler exists before the campaign can know of this process and send SIGTERM.
    let mut terminate = signal(SignalKind::terminate())?;
    let settings = Settings::read(folder)?;
    let oracle = Arc::new(Oracle::open(folder)?);
    let pid = std::process::id();
    oracle.note(&Record::Spawned {
        slot: slot.to_owned(),
        pid,
    })?;
    let seed = settings.seed ^ u64::from(pid);
    let plan = Arc::new(Plan::new(&settings, Arc::clone(&oracle), seed)?);
    let backend = Backend::read(folder)?;
    let inner = backend.open().await?;
    let mut clock = Clock::of(folder);
    clock.set(&inner);
    let events = backend.source(&inner, slot, &settings).await?;
    let store = Faulty::new(inner.handle(), {
        let plan = Arc::clone(&plan);
        move |operation, moment| plan.at(operation, moment)
    });
    let source = Noisy::new(store.beside(events), seed);
    let runtime = runtime(source, slot, &Arc::new(store), &oracle, &settings)?;

    let mut signals = Box::pin(stream::poll_fn(move |context| terminate.poll_recv(context)));
    let report = tokio::select! {
        report = work(&runtime, &mut signals) => report?,
        () = backend.relay(&inner, None) => return Err("the NATS relay ended unexpectedly".into()),
        () = clock.follow(&inner) => return Err("the clock ended unexpectedly".into()),
    };

    plan.note_inbox()?;
    say(format_args!("{slot} ({pid}): {report:?}"));
    Ok(())
}

/// Runs the runtime until a signal. Starts it again if the source was unavailable at the start.
async fn work(
    runtime: &Runtime,
    signals: &mut (impl Stream<Item = ()> + Unpin),
) -> Result<RunReport, BoxError> {
    loop {
        match runtime.run_until_signals(&mut *signals).await {
            Err(RuntimeError::Source(error)) => match error.retry() {
                Retry::After(delay) => tokio::time::sleep(delay).await,
                Retry::Never => return Err(error.into()),
            },
            ended => return Ok(ended?),
        }
    }
}

type Inner = Faulty<Arc<dyn BreadcrumbStore>>;

fn runtime(
    source: impl EventSource,
    slot: &str,
    store: &Arc<Inner>,
    oracle: &Arc<Oracle>,
    settings: &Settings,
) -> Result<Runtime, BoxError> {
    const NEVER: Duration = Duration::from_secs(3_600);
    let (start, look) = if settings.looks {
        (StartAt::Beginning, settings.lease())
    } else {
        (StartAt::Now, NEVER)
    };
    let builder = Runtime::builder(source)
        .start_at(start)
        .sweep_every(settings.sweep())
        .reconcile_every(look)
        .drain_timeout(settings.drain())
        .worker_name(slot)
        .max_deliveries(MAX_DELIVERIES)
        .max_inflight(8);
    let roles = Role::ALL
        .into_iter()
        .filter(|role| role.runs_in(slot, settings.on));
    let is_old = is_old(slot);
    let store: Arc<dyn BreadcrumbStore> = Arc::clone(store) as _;
    let executors = roles.map(|role| {
        let (store, oracle) = (Arc::clone(&store), Arc::clone(oracle));
        executors::executor(role, store, oracle, settings, is_old)
    });
    let executors = executors.collect::<Result<Vec<_>, _>>()?;
    let builder = builder.executors(executors);
    Ok(builder.build()?)
}

/// Returns `true` if this process runs the older version of its executors. One worker always does, two never do, and the others
/// at random starts.
fn is_old(slot: &str) -> bool {
    match slot {
        "stopped-0" => true,
        "killed-0" | "pointed-0" => false,
        _ => !std::process::id().is_multiple_of(2),
    }
}

/// Injected faults and traps at the calls of store and source.
struct Plan {
    oracle: Arc<Oracle>,
    trap: Option<Trap>,
    /// Number of faults in 1,000 calls.
    faults: u32,
    random: Mutex<fastrand::Rng>,
    /// Current number of received but unacknowledged deliveries.
    inbox: AtomicI64,
    most: AtomicI64,
}

impl Plan {
    fn new(settings: &Settings, oracle: Arc<Oracle>, seed: u64) -> Result<Self, BoxError> {
        Ok(Self {
            oracle,
            trap: Trap::from_env()?,
            faults: settings.faults,
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            inbox: AtomicI64::new(0),
            most: AtomicI64::new(0),
        })
    }

    fn at(&self, operation: Operation, moment: Moment) -> Fault {
        if let Err(error) = self.spring(operation, moment) {
            say(format_args!("the trap of the worker failed: {error}"));
        }
        if moment == Moment::After {
            self.count(operation);
        }
        // A worker that cannot subscribe at its start exits, so the subscription gets no fault.
        if operation == Operation::Subscribe {
            return Fault::None;
        }
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let faults = match (operation, moment) {
            // Each fault costs a pause, and there are many more deliveries than runs.
            (Operation::Next, _) => self.faults / 5,
            // The next process would receive the unacknowledged delivery and all later ones again.
            (Operation::Ack, Moment::Before) => 0,
            _ => self.faults,
        };
        match random.u32(..1_000) {
            drawn if drawn < faults.div_ceil(2) => Fault::Fail,
            drawn if drawn < faults => Fault::Delay(Duration::from_millis(50)),
            _ => Fault::None,
        }
    }

    fn spring(&self, operation: Operation, moment: Moment) -> Result<(), BoxError> {
        let sprung = self
            .trap
            .as_ref()
            .and_then(|trap| trap.sprung(operation, moment));
        if let Some((point, deed)) = sprung {
            self.oracle.note(&Record::AtPoint {
                point: point.name.to_owned(),
                pid: std::process::id(),
            })?;
            deed.execute()?;
        }
        Ok(())
    }

    fn count(&self, operation: Operation) {
        match operation {
            Operation::Next => {
                let inbox = self.inbox.fetch_add(1, Ordering::Relaxed) + 1;
                self.most.fetch_max(inbox, Ordering::Relaxed);
            }
            Operation::Ack | Operation::Nack => {
                self.inbox.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    fn note_inbox(&self) -> Result<(), BoxError> {
        let most = self.most.load(Ordering::Relaxed);
        self.oracle.note(&Record::Inbox {
            pid: std::process::id(),
            most: most.max(0).unsigned_abs(),
        })
    }
}
