//! Rolling deploys: starts, stops and crashes of two releases of a service in random orders, with triggers in between. Each executor of
//! a running release answers each of its triggers exactly once.
//!
//! `DEPLOY_ORDERS` sets the number of orders, and `DEPLOY_SEED` the seed of the random numbers.

use crate::start_stop::variable;
use crate::worker::{SubjectWithEvents, Worker};
use futures::StreamExt as _;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::timeout;
use universal_executor::executor::Executor;
use universal_executor::runtime::FirstStart;
use universal_executor::source::StartAt;
use universal_executor::store::{Run, RunFilter, RunState, StoreWithEvents as _, Version};
use universal_executor::{
    BreadcrumbId, BreadcrumbStore as _, BreadcrumbStoreExt as _, EventSource as _, NewBreadcrumb,
    Response, Subscription, Subscriptions, executor,
};

/// Maximum time without an answer. It is shorter than a lease, so a run that waits for the end of its lease fails the test.
const PATIENCE: Duration = Duration::from_secs(20);

/// Length of a downtime. It is longer than a lease, and longer than the time for which a dead worker counts as live.
const DOWNTIME: Duration = Duration::from_secs(60);

/// Interval at which a worker checks for other versions of its executors. A start waits for such a check by the other release.
const SWEEP: Duration = Duration::from_millis(200);

/// Maximum number of crashes in one order of steps, because a run ends as failed when it loses three workers in a row.
const MOST_CRASHES: usize = 2;

/// Maximum number of answers in one order of steps.
const MOST: usize = 1_000;

/// The executors of both releases.
const EXECUTORS: [&str; 3] = ["orders", "mails", "audit"];

/// A release of the service. Both releases have the executor `orders`, with different triggers. Only the old release has `mails`, and only
/// the new release has `audit`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Release {
    Old,
    New,
}

impl Release {
    const BOTH: [Self; 2] = [Self::Old, Self::New];
}

/// One step of a sequence.
#[derive(Clone, Debug)]
enum Step {
    Start(Release),
    Stop(Release),
    Crash(Release),
    /// Posts triggers.
    Post(u8),
    /// Lets the workers work for a number of turns.
    Work(u8),
}

/// A sequence of steps, and the settings of all its workers.
#[derive(Clone, Debug)]
struct Case {
    first: FirstStart,
    /// If `true`, `orders` has more triggers in the new release than in the old one, otherwise fewer triggers.
    new_is_wider: bool,
    drain: Duration,
    steps: Vec<Step>,
}

fn release() -> impl Strategy<Value = Release> {
    prop::sample::select(Release::BOTH.to_vec())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => release().prop_map(Step::Start),
        2 => release().prop_map(Step::Stop),
        2 => release().prop_map(Step::Crash),
        4 => (1..4_u8).prop_map(Step::Post),
        3 => (0..20_u8).prop_map(Step::Work),
    ]
}

fn case(first: FirstStart) -> impl Strategy<Value = Case> {
    let drain = prop::sample::select(vec![0, 20]).prop_map(Duration::from_millis);
    (any::<bool>(), drain, vec(step(), 1..24)).prop_map(move |(new_is_wider, drain, steps)| Case {
        first,
        new_is_wider,
        drain,
        steps,
    })
}

/// Returns a subscription to all orders.
fn all_orders() -> Subscription {
    Subscription::trigger("order.v1")
}

impl Case {
    /// Returns the release whose `orders` executor has all orders as triggers. In the other release, only urgent orders are triggers.
    fn wide(&self) -> Release {
        match self.new_is_wider {
            true => Release::New,
            false => Release::Old,
        }
    }

    fn executors(&self, release: Release) -> [Executor; 2] {
        let orders = match release == self.wide() {
            true => all_orders(),
            false => all_orders().any_tags(["urgent"]),
        };
        let mails = Subscription::trigger("mail.v1");
        let other = match release {
            Release::Old => answering("mails", release, vec![mails]),
            Release::New => answering("audit", release, vec![all_orders(), mails]),
        };
        [answering("orders", release, vec![orders]), other]
    }
}

/// Creates an executor that answers each of its triggers.
fn answering(id: &'static str, release: Release, triggers: Vec<Subscription>) -> Executor {
    let triggers = triggers.into_iter();
    let builder = triggers.fold(executor(id), |builder, trigger| builder.on(trigger));
    builder.execute(move |cx| async move {
        // Several turns, so that a stop or a crash can come between them.
        for _ in 0..3 {
            yield_now().await;
        }
        let by = format!("{release:?}");
        let answer = json!({"executor": id, "trigger": cx.trigger().id, "by": by});
        Ok(Response::create(
            NewBreadcrumb::new("answer.v1").context(answer),
        ))
    })
}

/// A kind of trigger.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// An order that `orders` of both releases matches.
    Urgent,
    /// An order that `orders` of one release matches.
    Plain,
    Mail,
}

/// The number of answers that a trigger may have from an executor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Expected {
    Never,
    /// Depends on the release that reads the trigger first.
    AtMostOnce,
    Once,
}

impl Expected {
    fn once_if(is_read: bool) -> Self {
        match is_read {
            true => Self::Once,
            false => Self::Never,
        }
    }

    fn permits(self, answers: usize) -> bool {
        match self {
            Self::Never => answers == 0,
            Self::AtMostOnce => answers <= 1,
            Self::Once => answers == 1,
        }
    }
}

/// A trigger, with the number of answers that it must have from each of the [`EXECUTORS`].
struct Posted {
    id: BreadcrumbId,
    kind: Kind,
    expected: [Expected; 3],
}

/// The releases that wrote the answers, by executor and trigger.
type Answers = HashMap<(&'static str, BreadcrumbId), Vec<String>>;

struct World<S: SubjectWithEvents> {
    subject: S,
    store: S::Store,
    case: Case,
    workers: BTreeMap<Release, Worker>,
    /// The releases that started at least once.
    started: BTreeSet<Release>,
    crashes: usize,
    posted: Vec<Posted>,
}

impl<S: SubjectWithEvents + Default> World<S> {
    async fn new(case: Case) -> Self {
        let subject = S::default();
        Self {
            store: subject.fresh().await,
            subject,
            case,
            workers: BTreeMap::new(),
            started: BTreeSet::new(),
            crashes: 0,
            posted: Vec::new(),
        }
    }

    async fn act(&mut self, step: &Step) {
        match *step {
            Step::Start(release) => self.start(release).await,
            Step::Stop(release) => self.stop(release).await,
            Step::Crash(release) => self.crash(release).await,
            Step::Post(triggers) => {
                for _ in 0..triggers {
                    self.post().await;
                }
            }
            Step::Work(turns) => {
                for _ in 0..turns {
                    self.runs().await;
                    yield_now().await;
                }
            }
        }
    }

    async fn start(&mut self, release: Release) {
        if self.workers.contains_key(&release) {
            return;
        }
        let case = &self.case;
        let started = Worker::start(&self.store, |builder, _| {
            let builder = builder
                .drain_timeout(case.drain)
                .first_start(case.first)
                .max_inflight(2)
                .sweep_every(SWEEP)
                .worker_name(format!("{release:?}"));
            let executors = case.executors(release).into_iter();
            Ok(executors.fold(builder, |builder, executor| builder.executor(executor)))
        });
        let worker = timeout(PATIENCE, started).await.unwrap().unwrap();
        self.workers.insert(release, worker);
        self.started.insert(release);
    }

    async fn stop(&mut self, release: Release) {
        if let Some(worker) = self.workers.remove(&release) {
            let report = timeout(PATIENCE, worker.stop()).await.unwrap().unwrap();
            assert_eq!(report.panics, 0, "{report:?}");
        }
    }

    async fn crash(&mut self, release: Release) {
        if self.crashes == MOST_CRASHES {
            return self.stop(release).await;
        }
        if let Some(worker) = self.workers.remove(&release) {
            worker.kill().await;
            self.crashes += 1;
            if self.workers.is_empty() {
                // Without this, the other release would wait at its start for an answer of the dead worker.
                self.subject.advance_clock(DOWNTIME).await;
            }
        }
    }

    async fn post(&mut self) {
        let kind = [Kind::Urgent, Kind::Plain, Kind::Mail][self.posted.len() % 3];
        let expected = self.expected(kind).await;
        let new = match kind {
            Kind::Urgent => NewBreadcrumb::new("order.v1").tag("urgent"),
            Kind::Plain => NewBreadcrumb::new("order.v1"),
            Kind::Mail => NewBreadcrumb::new("mail.v1"),
        };
        let id = self.store.create(new).await.unwrap().id;
        self.posted.push(Posted { id, kind, expected });
    }

    /// Returns the number of answers that each executor must write if a trigger is posted now.
    async fn expected(&self, kind: Kind) -> [Expected; 3] {
        let reads = |releases: &[Release]| {
            let has_started = releases.iter().any(|one| self.started.contains(one));
            self.case.first == FirstStart::Oldest || has_started
        };
        let is_order = kind != Kind::Mail;
        let orders = match kind == Kind::Plain && !self.wide_reads().await {
            true if reads(&Release::BOTH) => Expected::AtMostOnce,
            true => Expected::Never,
            false => Expected::once_if(is_order && reads(&Release::BOTH)),
        };
        let mails = Expected::once_if(!is_order && reads(&[Release::Old]));
        let audit = Expected::once_if(reads(&[Release::New]));
        [orders, mails, audit]
    }

    /// Returns `true` if the wide release runs and all live workers know its `orders`, so that they enqueue its runs even after its crash.
    async fn wide_reads(&self) -> bool {
        let subscriptions = Subscriptions::new([all_orders()]).unwrap();
        let orders: Arc<str> = "orders".into();
        let wide = Version::new(&orders, &subscriptions.hash());
        let workers = self.store.ledger().unwrap().workers().await.unwrap();
        let mut live = workers.iter().filter(|worker| worker.is_live);
        let is_known = live.all(|worker| {
            let mut own = worker.record.executors.iter();
            own.any(|one| one.version() == wide) || worker.record.known_versions.contains(&wide)
        });
        is_known && self.workers.contains_key(&self.case.wide())
    }

    async fn runs(&self) -> Vec<Run> {
        let ledger = self.store.ledger().unwrap();
        ledger.runs(&RunFilter::all()).await.unwrap()
    }

    async fn answers(&self) -> Answers {
        let mut answers = Answers::new();
        for answer in self.store.recent("answer.v1", MOST).await.unwrap() {
            let text = |field: &str| answer.context.text(field).unwrap().to_owned();
            let executor = text("executor");
            let mut known = EXECUTORS.into_iter();
            let executor = known.find(|known| **known == *executor).unwrap();
            let trigger: BreadcrumbId = text("trigger").parse().unwrap();
            let same = answers.entry((executor, trigger)).or_default();
            same.push(text("by"));
        }
        answers
    }

    /// Returns `true` if each trigger has all its answers and each run has ended.
    async fn is_idle(&self, answers: &Answers) -> bool {
        let is_answered = self.posted.iter().all(|posted| {
            let mut each = EXECUTORS.into_iter().zip(posted.expected);
            each.all(|(executor, expected)| {
                expected != Expected::Once || answers.contains_key(&(executor, posted.id))
            })
        });
        is_answered && self.runs().await.iter().all(|run| run.state.is_over())
    }

    /// Restarts both releases and runs them until each run has ended.
    async fn finish(&mut self) {
        for release in Release::BOTH {
            self.stop(release).await;
        }
        // The leases of dead workers have expired after this.
        self.subject.advance_clock(DOWNTIME).await;
        for release in Release::BOTH {
            self.start(release).await;
        }
        let events = self.store.event_source();
        let mut events = events.subscribe(StartAt::Now).await.unwrap();
        loop {
            let answers = self.answers().await;
            if self.is_idle(&answers).await {
                break;
            }
            // The commit of a run's answer is the run's last change.
            if timeout(PATIENCE, events.next()).await.is_err() {
                panic!("triggers wait: {answers:?}, {:?}", self.runs().await);
            }
        }
        for release in Release::BOTH {
            self.stop(release).await;
        }
    }

    /// Fails unless each trigger has exactly the answers that it must have, and no run has failed.
    async fn check(&self) {
        let mut answers = self.answers().await;
        let wide = format!("{:?}", self.case.wide());
        for (number, posted) in self.posted.iter().enumerate() {
            let kind = posted.kind;
            for (executor, expected) in EXECUTORS.into_iter().zip(posted.expected) {
                let by = answers.remove(&(executor, posted.id)).unwrap_or_default();
                let is_right = expected.permits(by.len());
                assert!(
                    is_right,
                    "trigger {number}, {kind:?}, {executor}: {expected:?}, answered by {by:?}"
                );
                if (executor, kind) == ("orders", Kind::Plain) {
                    assert!(by.iter().all(|by| *by == wide), "trigger {number}: {by:?}");
                }
            }
        }
        assert!(answers.is_empty(), "answers to other triggers: {answers:?}");
        let runs = self.runs().await;
        let is_well = |run: &Run| matches!(run.state, RunState::Done | RunState::Ready);
        assert!(runs.iter().all(is_well), "{runs:?}");
    }
}

/// Runs `orders` random sequences of steps on stores of `S`, or the number in `DEPLOY_ORDERS`. An executor starts at `first`, which is
/// [`FirstStart::Oldest`] or [`FirstStart::Now`].
pub(crate) fn in_any_order<S: SubjectWithEvents + Default>(orders: u32, first: FirstStart) {
    let orders = variable("DEPLOY_ORDERS").map_or(orders, |orders| orders.try_into().unwrap());
    let config = Config {
        rng_seed: RngSeed::Fixed(variable("DEPLOY_SEED").unwrap_or_default()),
        failure_persistence: None,
        // A test on a store with a real clock needs `PATIENCE` to notice a trigger without an answer.
        max_shrink_time: 60_000,
        ..Config::with_cases(orders)
    };
    proptest!(config, |(case in case(first))| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = World::<S>::new(case.clone()).await;
            for step in &case.steps {
                world.act(step).await;
            }
            world.finish().await;
            world.check().await;
        });
    });
}

/// Defines a module with the tests of a subject's stores, with a number of sequences for each [`FirstStart`].
macro_rules! deploys {
    ($name:ident, $subject:ty, oldest: $oldest:expr, now: $now:expr) => {
        mod $name {
            use super::*;
            use universal_executor::runtime::FirstStart;

            #[test]
            fn each_trigger_is_answered_once_by_each_executor() {
                $crate::deploys::in_any_order::<$subject>($oldest, FirstStart::Oldest);
            }

            #[test]
            fn a_new_executor_gets_no_trigger_from_before_its_start() {
                $crate::deploys::in_any_order::<$subject>($now, FirstStart::Now);
            }
        }
    };
}
pub(crate) use deploys;
