//! Random operations on the ledger of a store, compared with a model that has one row per run.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::time::Duration;
use universal_executor::model::Json;
use universal_executor::store::conformance::StoreUnderTest;
use universal_executor::store::{
    Cancelled, Claim, ClaimId, Claimed, Commit, DeadLetter, ExecutorLimits, FailureClass,
    KeyPosition, Lease, RunEnd, RunFilter, RunLedger, RunQuery, RunRef, RunState, StoreError, Wake,
    Write,
};
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Selector};

const RUNS: usize = 5;
/// The ordering key of each run.
const KEYS: [Option<&str>; RUNS] = [None, Some("a"), Some("a"), Some("a"), Some("b")];
const LEASE: u64 = 10;

#[derive(Clone, Debug)]
enum Step {
    Enqueue(usize),
    Claim(usize),
    /// Claims at most this number of runs.
    ClaimNext(usize),
    /// Advances the time by this number of seconds.
    Pass(u64),
    Heartbeat(Index),
    Commit(Index, RunState),
    Retry(Index, u64, bool),
    Release(Index),
    /// Transfers a run to another version. The values are the lease, the delay in seconds, and `true` if the run leaves its position.
    Transfer(Index, u64, bool),
    /// Accepts transferred runs: for the version to which they were transferred if `true`, otherwise for another version.
    Accept(bool),
    /// Cancels a run. If `true`, a missing run is added first.
    Cancel(usize, bool),
    /// Pauses the executor if `true`, otherwise ends the pause.
    Pause(bool),
    /// Lists all runs, or the failed runs with a code, in pages of this size.
    Pages(usize, Option<&'static str>),
    Skip(usize),
    Redo(usize),
    Resume(usize),
}

/// The result of a step.
#[derive(Debug, PartialEq)]
enum Observed {
    Granted(Granted),
    /// The claimed runs, each with its grant.
    Claimed(Vec<(usize, Granted)>),
    Accepted(usize),
    Cancelled(Cancelled),
    /// If `true`, the call changed whether the executor is paused.
    Paused(bool),
    /// The listed runs, in the order of their pages.
    Listed(Vec<usize>),
    Found(RunState),
    Done,
    Refused(&'static str),
    Nothing,
}

#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Granted {
    attempt: u32,
    abandoned: u32,
    epoch: u32,
    token: u64,
    at: u64,
    attempt_since: u64,
}

#[derive(Clone, Debug)]
struct Row {
    state: RunState,
    due: Option<u64>,
    /// The run's position in the queue.
    position: usize,
    attempts: u32,
    abandoned: u32,
    epoch: u32,
    token: u64,
    granted: u64,
    /// Time of the attempt's first claim, or `None` if the next claim starts an attempt.
    attempt_since: Option<u64>,
    /// The claim that granted the lease, or `None` if the run was claimed by its name.
    claim: Option<usize>,
    /// `true` from the transfer of a run until a worker accepts or claims it.
    transferred: bool,
    /// `true` for a transferred run that left its position in the order of its key.
    aside: bool,
    /// `true` for a run that was skipped as unmatched.
    unmatched: bool,
    /// The code of a failed run.
    code: Option<&'static str>,
}

#[derive(Debug, Default)]
struct Model {
    now: u64,
    last_position: usize,
    claims: usize,
    rows: [Option<Row>; RUNS],
    /// Number of answers that the store must contain.
    written: usize,
    paused: bool,
}

impl Model {
    fn add(&mut self, run: usize) {
        let (last_position, now) = (&mut self.last_position, self.now);
        self.rows[run].get_or_insert_with(|| {
            *last_position += 1;
            let (state, due, position) = (RunState::Ready, Some(now), *last_position);
            Row {
                state,
                due,
                position,
                attempts: 0,
                abandoned: 0,
                epoch: 0,
                token: 0,
                granted: 0,
                attempt_since: None,
                claim: None,
                transferred: false,
                aside: false,
                unmatched: false,
                code: None,
            }
        });
    }

    fn state(&self, run: usize) -> Option<RunState> {
        let row = self.rows[run].as_ref()?;
        let up = row.due.is_some_and(|due| due <= self.now);
        Some(if up && !row.state.is_over() {
            RunState::Ready
        } else {
            row.state
        })
    }

    fn lease(&mut self, run: usize, claim: Option<usize>) -> Granted {
        let (now, row) = (self.now, self.rows[run].as_mut().unwrap());
        row.abandoned += u32::from(row.state == RunState::Running);
        if row.state == RunState::Suspended {
            row.attempt_since = None;
        }
        row.attempt_since.get_or_insert(now);
        row.transferred = false;
        (row.attempts, row.token) = (row.attempts + 1, row.token + 1);
        (row.state, row.claim, row.granted, row.due) =
            (RunState::Running, claim, now, Some(now + LEASE));
        Granted {
            attempt: row.attempts,
            abandoned: row.abandoned,
            epoch: row.epoch,
            token: row.token,
            at: row.granted,
            attempt_since: row.attempt_since.unwrap(),
        }
    }

    /// Resets the number of abandoned leases: only leases after one with a live owner count as abandoned.
    fn owner_lives(&mut self, run: usize, lease: &Lease) {
        let row = self.rows[run].as_mut().unwrap();
        let later = (lease.token + 1..row.token).count();
        if row.epoch == lease.epoch && row.token > lease.token {
            row.abandoned = row.abandoned.min(u32::try_from(later).unwrap());
        }
    }

    /// Returns `true` if an earlier run with the same ordering key has not ended.
    fn is_behind(&self, run: usize) -> bool {
        let position = |run: usize| {
            let row = self.rows[run].as_ref()?;
            (!row.state.is_over() && !row.aside).then_some(row.position)
        };
        let before = |other| position(other).is_some_and(|other| Some(other) < position(run));
        KEYS[run].is_some() && (0..RUNS).any(|other| KEYS[other] == KEYS[run] && before(other))
    }

    fn claim(&mut self, run: usize) -> Observed {
        self.add(run);
        if self.rows[run].as_ref().is_some_and(|row| row.aside) {
            self.accept_one(run);
        }
        if self.is_behind(run) {
            return Observed::Found(RunState::Running);
        }
        let state = self.state(run).unwrap();
        if state != RunState::Ready {
            return Observed::Found(state);
        }
        if self.paused {
            return Observed::Refused("paused");
        }
        Observed::Granted(self.lease(run, None))
    }

    fn claim_next(&mut self, n: usize) -> Observed {
        self.claims += 1;
        let mut claimed = Vec::new();
        while claimed.len() < n && !self.paused {
            let due = |row: &Row| {
                row.due
                    .filter(|due| *due <= self.now)
                    .map(|due| (due, row.position))
            };
            let rows = self.rows.iter().enumerate();
            let first = rows
                .filter(|(run, _)| !self.is_behind(*run))
                .filter(|(_, row)| row.as_ref().is_some_and(|row| !row.aside))
                .filter_map(|(run, row)| Some((due(row.as_ref()?)?, run)))
                .min();
            let Some((_, run)) = first else {
                break;
            };
            claimed.push((run, self.lease(run, Some(self.claims))));
        }
        claimed.sort_unstable();
        Observed::Claimed(claimed)
    }

    /// Changes a row with a lease, which must be the newest lease of a running row.
    fn with(&mut self, run: usize, token: u64, change: impl FnOnce(&mut Row, u64)) -> Observed {
        let now = self.now;
        let row = self.rows[run]
            .as_mut()
            .filter(|row| row.state == RunState::Running && row.token == token);
        let Some(row) = row else {
            return Observed::Refused("lease_lost");
        };
        change(row, now);
        Observed::Done
    }

    fn end(row: &mut Row, state: RunState) {
        (row.state, row.due) = (state, None);
        row.code = (state == RunState::Failed).then_some("error");
        if state == RunState::Suspended {
            (row.attempts, row.abandoned) = (0, 0);
        }
    }

    /// Accepts a transferred run. A run that left its position moves to the end of its key's order.
    fn accept_one(&mut self, run: usize) {
        let row = self.rows[run].as_mut().unwrap();
        (row.transferred, row.due) = (false, Some(self.now));
        if std::mem::take(&mut row.aside) {
            self.last_position += 1;
            row.position = self.last_position;
        }
    }

    fn accept(&mut self, is_version: bool) -> Observed {
        let now = self.now;
        let accepts = |row: &Row| {
            let has_passed = row.aside && row.due.is_some_and(|due| due <= now);
            row.transferred && (is_version || has_passed)
        };
        let rows = self.rows.iter().enumerate();
        let accepted = rows.filter_map(|(run, row)| Some((row.as_ref()?, run)));
        let accepted = accepted.filter(|(row, _)| accepts(row));
        let mut accepted: Vec<(usize, usize)> =
            accepted.map(|(row, run)| (row.position, run)).collect();
        accepted.sort_unstable();
        for (_, run) in &accepted {
            self.accept_one(*run);
        }
        Observed::Accepted(accepted.len())
    }

    fn cancel(&mut self, run: usize, adds: bool) -> Observed {
        if adds {
            self.add(run);
        }
        let Some(row) = &mut self.rows[run] else {
            return Observed::Refused("unknown_run");
        };
        if row.state.is_over() {
            return Observed::Cancelled(Cancelled::Over(row.state));
        }
        let cancelled = match row.state {
            RunState::Running => Cancelled::Running,
            _ => Cancelled::Waiting,
        };
        (row.transferred, row.aside) = (false, false);
        Self::end(row, RunState::Failed);
        row.code = Some("cancelled");
        Observed::Cancelled(cancelled)
    }

    /// Lists the runs: first those without a position, then the others in reverse order of their enqueueing.
    fn pages(&self, code: Option<&'static str>) -> Observed {
        let rows = self.rows.iter().enumerate();
        let listed = rows.filter_map(|(run, row)| Some((row.as_ref()?, run)));
        let listed = listed.filter(|(row, _)| code.is_none() || row.code == code);
        let mut listed: Vec<_> = listed
            .map(|(row, run)| (row.aside, row.position, run))
            .collect();
        listed.sort_unstable();
        Observed::Listed(listed.into_iter().rev().map(|(.., run)| run).collect())
    }

    fn skip(&mut self, run: usize) -> Observed {
        let Some(row) = &mut self.rows[run] else {
            return Observed::Refused("unknown_run");
        };
        if !row.transferred {
            return Observed::Refused("wrong_state");
        }
        (row.state, row.due) = (RunState::Skipped, None);
        (row.transferred, row.aside, row.unmatched) = (false, false, true);
        Observed::Done
    }

    /// Moves a run from one state back to ready, for redo and resume.
    fn again(&mut self, run: usize, from: RunState, change: impl FnOnce(&mut Row)) -> Observed {
        let now = self.now;
        let Some(row) = &mut self.rows[run] else {
            return Observed::Refused("unknown_run");
        };
        let is_redone = from == RunState::Failed && std::mem::take(&mut row.unmatched);
        if row.state != from && !is_redone {
            return Observed::Refused("wrong_state");
        }
        (row.state, row.due, row.attempt_since) = (RunState::Ready, Some(now), None);
        row.code = None;
        change(row);
        Observed::Done
    }
}

/// The store, the names of the runs, and every granted lease.
struct Real<T: StoreUnderTest> {
    subject: T,
    store: T::Store,
    runs: Vec<RunRef>,
    leases: Vec<(usize, Lease)>,
    began: universal_executor::model::Timestamp,
    claims: Vec<ClaimId>,
}

impl<T: StoreUnderTest + Default> Real<T> {
    async fn new() -> Self {
        let subject = T::default();
        let store = subject.fresh().await;
        let trigger = store
            .create(NewBreadcrumb::new("question.v1"))
            .await
            .unwrap();
        let run = |(version, key)| {
            RunRef::new("agent", trigger.id, version)
                .lasting(Duration::from_secs(LEASE))
                .ordered_by(key)
        };
        let runs = (1..).zip(KEYS).map(run).collect();
        Self {
            subject,
            store,
            runs,
            leases: Vec::new(),
            began: trigger.updated_at,
            claims: Vec::new(),
        }
    }

    fn ledger(&self) -> &dyn RunLedger {
        self.store.ledger().unwrap()
    }

    /// Runs a step on both sides. Returns the result of the store and the result of the model.
    async fn run_step(&mut self, model: &mut Model, step: &Step) -> (Observed, Observed) {
        let nothing = (Observed::Nothing, Observed::Nothing);
        match step {
            Step::Enqueue(run) => {
                model.add(*run);
                let new = vec![self.runs[*run].clone().into()];
                (done(self.ledger().enqueue(new).await), Observed::Done)
            }
            Step::Claim(run) => (self.claim(*run).await, model.claim(*run)),
            Step::ClaimNext(n) => {
                let claimed = self.claim_next(*n).await;
                (Observed::Claimed(claimed), model.claim_next(*n))
            }
            Step::Pass(seconds) => {
                self.subject
                    .advance_clock(Duration::from_secs(*seconds))
                    .await;
                model.now += seconds;
                nothing
            }
            Step::Accept(is_version) => {
                let version = if *is_version { "new" } else { "other" };
                let versions = [("agent".into(), version.into())];
                let accepted = self.ledger().accept_transfers(&versions).await.unwrap();
                (Observed::Accepted(accepted), model.accept(*is_version))
            }
            Step::Cancel(run, adds) => (self.cancel(*run, *adds).await, model.cancel(*run, *adds)),
            Step::Pause(pauses) => {
                let before = std::mem::replace(&mut model.paused, *pauses);
                let expected = Observed::Paused(before != *pauses);
                (self.pause(*pauses).await, expected)
            }
            Step::Pages(limit, code) => (self.pages(*limit, *code).await, model.pages(*code)),
            Step::Skip(run) => {
                let skipped = self.ledger().skip(&self.runs[*run]).await;
                (done(skipped), model.skip(*run))
            }
            Step::Redo(run) => self.redo(model, *run).await,
            Step::Resume(run) => {
                let name = &self.runs[*run];
                let resumed = done(self.ledger().resume(name, name.trigger_id).await);
                let expected = model.again(*run, RunState::Suspended, |_| ());
                (resumed, expected)
            }
            Step::Heartbeat(which)
            | Step::Commit(which, _)
            | Step::Retry(which, ..)
            | Step::Release(which)
            | Step::Transfer(which, ..) => {
                if self.leases.is_empty() {
                    return nothing;
                }
                let (run, lease) = which.get(&self.leases).clone();
                self.with(model, step, run, lease).await
            }
        }
    }

    async fn with(
        &self,
        model: &mut Model,
        step: &Step,
        run: usize,
        lease: Lease,
    ) -> (Observed, Observed) {
        let token = lease.token;
        match *step {
            Step::Heartbeat(_) => {
                model.owner_lives(run, &lease);
                let lost = self.ledger().heartbeat(&[lease]).await.unwrap();
                let real = if lost.is_empty() {
                    Observed::Done
                } else {
                    Observed::Refused("lease_lost")
                };
                (
                    real,
                    model.with(run, token, |row, now| row.due = Some(now + LEASE)),
                )
            }
            Step::Commit(_, state) => {
                let commit = Commit {
                    writes: vec![Write::Create(NewBreadcrumb::new("answer.v1"))],
                    end: Some((lease, end(state))),
                };
                let real = done(self.store.commit(commit).await);
                let expected = model.with(run, token, |row, _| {
                    if state != RunState::Running {
                        Model::end(row, state);
                    }
                });
                model.written += usize::from(expected == Observed::Done);
                (real, expected)
            }
            Step::Retry(_, delay, counts) => {
                let at = self.began + Duration::from_secs(model.now + delay);
                let real = done(self.ledger().retry(lease, at, counts, None).await);
                (
                    real,
                    model.with(run, token, |row, now| {
                        (row.state, row.due) = (RunState::Ready, Some(now + delay));
                        match counts {
                            true => (row.abandoned, row.attempt_since) = (0, None),
                            false => row.attempts -= 1,
                        }
                    }),
                )
            }
            Step::Transfer(_, delay, leaves) => {
                self.transfer(model, run, lease, (delay, leaves)).await
            }
            _ => {
                let real = done(self.ledger().release(lease).await);
                (
                    real,
                    model.with(run, token, |row, now| {
                        (row.state, row.due, row.attempts) =
                            (RunState::Ready, Some(now), row.attempts - 1);
                        row.attempt_since = None;
                    }),
                )
            }
        }
    }

    async fn redo(&self, model: &mut Model, run: usize) -> (Observed, Observed) {
        let redone = self.ledger().redo(&self.runs[run]).await;
        model.last_position += 1;
        let last = model.last_position;
        (
            done(redone),
            model.again(run, RunState::Failed, |row| {
                (row.epoch, row.attempts, row.abandoned) = (row.epoch + 1, 0, 0);
                row.position = last;
            }),
        )
    }

    async fn transfer(
        &self,
        model: &mut Model,
        run: usize,
        lease: Lease,
        (delay, leaves): (u64, bool),
    ) -> (Observed, Observed) {
        let token = lease.token;
        let until = self.began + Duration::from_secs(model.now + delay);
        let position = match leaves {
            true => KeyPosition::Left,
            false => KeyPosition::Held,
        };
        let transfer = self.ledger().transfer(lease, "new", until, position);
        let real = done(transfer.await);
        (
            real,
            model.with(run, token, |row, now| {
                (row.state, row.due, row.attempts) =
                    (RunState::Ready, Some(now + delay), row.attempts - 1);
                row.attempt_since = None;
                (row.transferred, row.aside) = (true, leaves && KEYS[run].is_some());
            }),
        )
    }

    async fn claim_next(&mut self, n: usize) -> Vec<(usize, Granted)> {
        let limits = [ExecutorLimits::new("agent", RUNS)];
        let id = ClaimId::unique();
        self.claims.push(id);
        let claimed = self.ledger().claim_next(n, &limits, id).await.unwrap();
        let granted = claimed.into_iter().map(|claimed| {
            let is_it = |run: &RunRef| *run == claimed.lease.run;
            let run = self.runs.iter().position(is_it).unwrap();
            (run, self.granted(run, claimed))
        });
        let mut granted: Vec<_> = granted.collect();
        granted.sort_unstable();
        granted
    }

    /// Records a lease and returns its grant.
    fn granted(&mut self, run: usize, claimed: Claimed) -> Granted {
        let lease = claimed.lease;
        let granted = Granted {
            attempt: claimed.attempt,
            abandoned: lease.abandoned,
            epoch: lease.epoch,
            token: lease.token,
            at: lease.granted_at.since(self.began).as_secs(),
            attempt_since: lease.attempt_since.since(self.began).as_secs(),
        };
        self.leases.push((run, lease));
        granted
    }

    async fn claim(&mut self, run: usize) -> Observed {
        match self.ledger().claim(&self.runs[run], None).await.unwrap() {
            Claim::Granted(claimed) => Observed::Granted(self.granted(run, claimed)),
            Claim::Running { .. } => Observed::Found(RunState::Running),
            Claim::Suspended { .. } => Observed::Found(RunState::Suspended),
            Claim::Superseded => Observed::Found(RunState::Superseded),
            Claim::Done { state, .. } => Observed::Found(state),
            Claim::Own => Observed::Refused("own"),
            Claim::Paused { .. } => Observed::Refused("paused"),
        }
    }

    async fn cancel(&self, run: usize, adds: bool) -> Observed {
        let cancelled = match adds {
            true => self.ledger().enqueue_cancelled(&self.runs[run]).await,
            false => self.ledger().cancel(&self.runs[run]).await,
        };
        let observed = cancelled.map(Observed::Cancelled);
        observed.unwrap_or_else(|error| Observed::Refused(error.code()))
    }

    async fn pause(&self, pauses: bool) -> Observed {
        let changed = match pauses {
            true => self.ledger().pause_executor("agent").await,
            false => self.ledger().resume_executor("agent").await,
        };
        Observed::Paused(changed.unwrap())
    }

    async fn pages(&self, limit: usize, code: Option<&'static str>) -> Observed {
        let mut query = code.map_or_else(RunQuery::all, |code| RunQuery::failed().code(code));
        query = query.limit(limit);
        let mut listed = Vec::new();
        loop {
            let page = self.ledger().runs_page(&query).await.unwrap();
            assert!(page.runs.len() <= limit, "a page has at most {limit} runs");
            let names = page.runs.iter().map(|row| &row.run);
            listed.extend(names.map(|name| self.runs.iter().position(|run| run == name).unwrap()));
            match page.next {
                Some(next) => query = query.after(next),
                None => return Observed::Listed(listed),
            }
        }
    }

    /// Returns the state and the code of each run.
    async fn states(&self) -> Vec<Option<(RunState, Option<String>)>> {
        let rows = self.ledger().runs(&RunFilter::all()).await.unwrap();
        let state = |run: &RunRef| {
            let row = rows.iter().find(|row| row.run == *run)?;
            Some((row.state, row.code.clone()))
        };
        self.runs.iter().map(state).collect()
    }

    /// Returns the number of the claim for which each run is listed.
    async fn of_claims(&self) -> Vec<Option<usize>> {
        let mut of_claims = vec![None; RUNS];
        for (number, id) in (1..).zip(&self.claims) {
            let rows = self.ledger().runs(&RunFilter::of_claim(*id)).await;
            for row in rows.unwrap() {
                let run = self.runs.iter().position(|run| *run == row.run).unwrap();
                let before = of_claims[run].replace(number);
                assert_eq!(before, None, "a lease belongs to one claim");
            }
        }
        of_claims
    }
}

fn done<T>(answer: Result<T, StoreError>) -> Observed {
    answer.map_or_else(|error| Observed::Refused(error.code()), |_| Observed::Done)
}

fn end(state: RunState) -> RunEnd {
    match state {
        RunState::Done => RunEnd::Done,
        RunState::Failed => RunEnd::Failed(DeadLetter::new(FailureClass::Permanent, "error", 1)),
        RunState::Skipped => RunEnd::Skipped("gone"),
        RunState::Superseded => RunEnd::Superseded,
        RunState::Suspended => RunEnd::Suspended {
            wake: Wake::on(Selector::any()),
            state: Json::default(),
        },
        RunState::Ready | RunState::Running => RunEnd::Continues,
    }
}

fn step() -> impl Strategy<Value = Step> {
    let ends = [
        RunState::Done,
        RunState::Failed,
        RunState::Skipped,
        RunState::Suspended,
        RunState::Running,
    ];
    prop_oneof![
        1 => (0..RUNS).prop_map(Step::Enqueue),
        4 => (0..RUNS).prop_map(Step::Claim),
        2 => (0..=RUNS).prop_map(Step::ClaimNext),
        3 => (0..15_u64).prop_map(Step::Pass),
        2 => any::<Index>().prop_map(Step::Heartbeat),
        2 => (any::<Index>(), prop::sample::select(ends.to_vec())).prop_map(|(which, end)| Step::Commit(which, end)),
        2 => (any::<Index>(), 0..15_u64, any::<bool>()).prop_map(|(which, delay, counts)| Step::Retry(which, delay, counts)),
        1 => any::<Index>().prop_map(Step::Release),
        2 => (any::<Index>(), 0..15_u64, any::<bool>()).prop_map(|(which, delay, leaves)| Step::Transfer(which, delay, leaves)),
        1 => any::<bool>().prop_map(Step::Accept),
        1 => (0..RUNS, any::<bool>()).prop_map(|(run, adds)| Step::Cancel(run, adds)),
        1 => any::<bool>().prop_map(Step::Pause),
        1 => (1..=RUNS, prop::sample::select(vec![None, Some("error"), Some("cancelled")]))
            .prop_map(|(limit, code)| Step::Pages(limit, code)),
        1 => (0..RUNS).prop_map(Step::Skip),
        1 => (0..RUNS).prop_map(Step::Redo),
        1 => (0..RUNS).prop_map(Step::Resume),
    ]
}

/// Runs `cases` random sequences of steps on stores of `T`.
pub(crate) fn the_ledger_behaves_like_its_model<T: StoreUnderTest + Default>(cases: u32) {
    proptest!(ProptestConfig::with_cases(cases), |(steps in vec(step(), 1..80))| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut real, mut model) = (Real::<T>::new().await, Model::default());
            for (index, step) in steps.iter().enumerate() {
                let (observed, expected) = real.run_step(&mut model, step).await;
                prop_assert_eq!(observed, expected, "step {}: {:?}", index, step);
                let code = |run: usize| model.rows[run].as_ref()?.code.map(str::to_owned);
                let state = |run| Some((model.state(run)?, code(run)));
                let expected: Vec<_> = (0..RUNS).map(state).collect();
                prop_assert_eq!(real.states().await, expected, "the states after step {}: {:?}", index, step);
                let running = |row: &&Row| row.state == RunState::Running;
                let claim = |row: &Option<Row>| row.as_ref().filter(running)?.claim;
                let expected: Vec<_> = model.rows.iter().map(claim).collect();
                prop_assert_eq!(real.of_claims().await, expected, "the claims after step {}: {:?}", index, step);
            }
            let answers = real.store.recent("answer.v1", 1_000).await.unwrap();
            prop_assert_eq!(answers.len(), model.written, "the number of answers");
            Ok(())
        })?;
    });
}
