//! Properties that hold after each operation of a random history.

use super::*;
use crate::model::{Json, Selector};
use crate::store::row::AttemptEnd;
use crate::store::{
    ClaimId, DeadLetter, ExecutorLimits, FailureClass, KeyPosition, Lease, Lineage, RunEnd, Wake,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

const RUNS: usize = 5;
const KEYS: [Option<&str>; RUNS] = [None, Some("a"), Some("a"), Some("a"), Some("b")];
const LEASE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
enum Step {
    Enqueue(usize, KnownOrigin, u64),
    Claim(usize, KnownOrigin),
    ClaimNext(usize, KnownOrigin),
    AdvanceClock(u64),
    Lease(usize, LeaseUse),
    Resume(usize),
    Redo(usize),
    Cancel(usize),
    EnqueueCancelled(usize, KnownOrigin),
    Pause(bool),
    Skip(usize),
    Accept,
}

/// Operation under a lease.
#[derive(Clone, Copy, Debug)]
enum LeaseUse {
    Heartbeat,
    Retry(u64, bool),
    Release,
    Transfer(u64, KeyPosition),
    Save,
    End(RunState),
}

/// Origin of a trigger, as far as the store has recorded it.
#[derive(Clone, Copy, Debug)]
enum KnownOrigin {
    Own,
    Hops(u32),
    Nothing,
}

impl KnownOrigin {
    fn origin(self) -> Origin {
        match self {
            Self::Own => Origin::Own,
            Self::Hops(hops) => Origin::Known(Lineage::new("chain".to_owned(), hops)),
            Self::Nothing => Origin::Unknown,
        }
    }
}

/// Model of a ledger: its rows and counters in the simplest form.
struct ModelLedger {
    rows: Vec<RunRow>,
    sequence: u64,
    open: i64,
    finished: i64,
    now: Timestamp,
    leases: Vec<Lease>,
    paused: Option<Timestamp>,
}

impl ModelLedger {
    fn new() -> Self {
        Self {
            rows: Vec::new(),
            sequence: 0,
            open: 0,
            finished: 0,
            now: Timestamp::UNIX_EPOCH + Duration::from_secs(1_000),
            leases: Vec::new(),
            paused: None,
        }
    }

    fn run(number: usize) -> RunRef {
        RunRef::new("agent", BreadcrumbId::NIL, number as u64)
            .lasting(LEASE)
            .ordered_by(KEYS[number])
    }

    fn row(&self, run: &RunRef) -> Option<RunRow> {
        self.rows.iter().find(|row| row.run == *run).cloned()
    }

    /// Returns the rows with an ordering key, in their order.
    fn of_key(&self, run: &RunRef) -> Vec<&RunRow> {
        let has_position = |row: &&RunRow| {
            let is_of_key = row.run.order.is_some() && row.run.order == run.order;
            is_of_key && !row.state.is_over() && !row.is_out_of_order()
        };
        let mut rows: Vec<&RunRow> = self.rows.iter().filter(has_position).collect();
        rows.sort_by_key(|row| row.sequence);
        rows
    }

    fn first(&self, run: &RunRef) -> Option<FirstOfKey> {
        let rows = self.of_key(run);
        let first = rows.into_iter().find(|row| row.run != *run)?;
        Some(FirstOfKey {
            sequence: first.sequence,
            due: first.due,
            lease: first.run.lease,
        })
    }

    fn facts<'r>(&self, run: &'r RunRef, known: KnownOrigin) -> Facts<'r> {
        Facts {
            run,
            row: self.row(run),
            origin: known.origin(),
            first: self.first(run),
            now: self.now,
            next: self.sequence + 1,
            paused: self.paused,
        }
    }

    fn apply(&mut self, change: RowChange) {
        if !change.is_changed {
            assert_eq!(
                (change.opened, change.finished, change.sequences),
                (0, 0, 0)
            );
            return;
        }
        self.sequence += change.sequences;
        self.open += i64::from(change.opened);
        self.finished += i64::from(change.finished);
        let run = change.row.run.clone();
        self.rows.retain(|row| row.run != run);
        self.rows.push(change.row);
        if change.leaves {
            let first = self.of_key(&run).first().map(|row| row.run.clone());
            let mut rows = self.rows.iter_mut();
            if let Some(row) = rows.find(|row| Some(&row.run) == first.as_ref()) {
                row.head = true;
            }
        }
    }

    fn claim_next(&mut self, n: usize, known: KnownOrigin) {
        let now = self.now;
        let limits = [ExecutorLimits::new("agent", n)];
        let claimed = round_robin(n, &limits, |_| {
            let mut due: Vec<&RunRow> = self.rows.iter().filter(|row| row.head).collect();
            due.retain(|row| row.due.is_some_and(|due| due <= now));
            due.sort_by_key(|row| (row.due, row.sequence));
            let Some(row) = due.first().map(|row| RunRow::clone(row)) else {
                return Ok::<_, ()>(None);
            };
            let origin = row.lineage.is_none().then(|| known.origin());
            let (claimed, change) = grant(row, ClaimId::unique(), origin, now);
            self.apply(change);
            Ok(Some(claimed))
        });
        let claimed = claimed.unwrap();
        self.leases.extend(claimed.into_iter().map(|run| run.lease));
    }

    /// Uses a lease. A lease that is not the newest one changes only the number of abandoned leases.
    fn use_lease(&mut self, which: usize, lease_use: LeaseUse) {
        if self.leases.is_empty() {
            return;
        }
        let lease = self.leases[which % self.leases.len()].clone();
        let row = self.row(&lease.run);
        let before = row.clone().unwrap();
        let is_newest = before.token == lease.token && before.epoch == lease.epoch;
        let holds = before.state == RunState::Running && is_newest;
        let later = |seconds| self.now + Duration::from_secs(seconds);
        let change = match lease_use {
            LeaseUse::Heartbeat => {
                let (is_held, change) = heartbeat(row, &lease, self.now);
                assert_eq!(is_held, holds);
                if let Some(change) = &change {
                    assert!(change.row.abandoned <= before.abandoned);
                }
                change
            }
            LeaseUse::Retry(after, counts) => {
                let cause = Some("it failed");
                check_lease_change(holds, retry(row, &lease, later(after), counts, cause))
            }
            LeaseUse::Release => check_lease_change(holds, release(row, &lease, self.now)),
            LeaseUse::Transfer(after, position) => {
                let change = transfer(row, &lease, "new", later(after), position);
                check_lease_change(holds, change)
            }
            LeaseUse::Save => check_lease_change(holds, save(row, &lease, Json::default())),
            LeaseUse::End(state) => {
                let next = self.sequence + 1;
                let at = self.now;
                let change = held(row, &lease).map(|row| end(row, end_of(state, at), &[], next));
                check_lease_change(holds, change)
            }
        };
        if let Some(change) = change {
            self.apply(change);
        }
    }

    fn cancel(&mut self, run: &RunRef) {
        let before = self.row(run).map(|row| row.state);
        if let Ok((answer, change)) = cancel(self.row(run), run, self.sequence + 1) {
            let was_over = before.filter(|state| state.is_over());
            let over = was_over.map(Cancelled::Over);
            assert_eq!(change.is_changed, over.is_none());
            assert!(over.is_none_or(|over| over == answer));
            self.apply(change);
            assert!(self.row(run).is_some_and(|row| row.state.is_over()));
        }
    }

    fn apply_step(&mut self, step: &Step) {
        match *step {
            Step::Enqueue(number, known, after) => {
                let at = self.now + Duration::from_secs(after);
                let run = Self::run(number);
                self.apply(enqueue(self.facts(&run, known), Some(at)));
            }
            Step::Claim(number, known) => {
                let run = Self::run(number);
                let token = |ledger: &Self| ledger.row(&run).map_or(0, |row| row.token);
                let before = token(self);
                let (claim, change) = claim(self.facts(&run, known));
                if let Some(change) = change {
                    self.apply(change);
                }
                let is_own = matches!(claim, Claim::Own);
                assert!(self.paused.is_none() || is_own || token(self) == before);
                assert!(self.paused.is_some() || !matches!(claim, Claim::Paused { .. }));
                if let Claim::Granted(claimed) = claim {
                    self.leases.push(claimed.lease);
                }
            }
            Step::ClaimNext(n, known) => self.claim_next(n, known),
            Step::AdvanceClock(seconds) => self.now = self.now + Duration::from_secs(seconds),
            Step::Lease(which, lease_use) => self.use_lease(which, lease_use),
            Step::Resume(number) => {
                let run = Self::run(number);
                let change = resume(self.row(&run), &run, BreadcrumbId::NIL, self.now);
                change.into_iter().for_each(|change| self.apply(change));
            }
            Step::Redo(number) => {
                let run = Self::run(number);
                let change = redo(self.facts(&run, KnownOrigin::Nothing));
                change.into_iter().for_each(|change| self.apply(change));
            }
            Step::Cancel(number) => self.cancel(&Self::run(number)),
            Step::EnqueueCancelled(number, known) => {
                let run = Self::run(number);
                let (_, change) = enqueue_cancelled(self.facts(&run, known));
                self.apply(change);
                assert!(self.row(&run).is_some_and(|row| row.state.is_over()));
            }
            Step::Pause(pauses) => self.paused = pauses.then_some(self.now),
            Step::Skip(number) => {
                let run = Self::run(number);
                let change = skip_transferred(self.row(&run), &run, self.sequence + 1);
                change.into_iter().for_each(|change| self.apply(change));
            }
            Step::Accept => {
                let waiting = self.rows.iter().find(|row| row.transferred_to().is_some());
                if let Some(row) = waiting.cloned() {
                    let is_alone = self.first(&row.run).is_none();
                    self.apply(accept(row, is_alone, self.sequence + 1, self.now));
                }
            }
        }
    }

    /// Checks the properties after a step.
    fn check(&self, before: &[RunRow]) -> Result<(), TestCaseError> {
        let over = self.rows.iter().filter(|row| row.state.is_over()).count();
        let open = self.rows.len() - over;
        prop_assert_eq!((self.open, self.finished), (open as i64, over as i64));
        let sequences: BTreeSet<u64> = self.rows.iter().map(|row| row.sequence).collect();
        prop_assert_eq!(
            sequences.len(),
            self.rows.len(),
            "each sequence is taken once"
        );
        for row in &self.rows {
            let first = self.of_key(&row.run).first().map(|row| row.run.clone());
            let is_first = match row.run.order {
                Some(_) => first.as_ref() == Some(&row.run),
                None => !row.state.is_over(),
            };
            prop_assert_eq!(
                row.head,
                is_first,
                "the first of each key can be claimed: {:?}",
                row
            );
            prop_assert_eq!(row.over.is_some(), row.state.is_over());
            prop_assert_eq!(row.wait.is_some(), row.state == RunState::Suspended);
            prop_assert!(row.state != RunState::Running || row.due.is_some());
            prop_assert!(!row.state.is_over() || row.due.is_none());
            let Some(old) = before.iter().find(|old| old.run == row.run) else {
                continue;
            };
            prop_assert!(row.token >= old.token && row.epoch >= old.epoch);
            prop_assert!(row.lineage == old.lineage || old.lineage.is_none());
            let starts = row.token > old.token && row.state == RunState::Running;
            if starts && self.of_key(&row.run).len() > 1 {
                prop_assert!(row.head, "no run overtakes another one of its key");
            }
        }
        Ok(())
    }
}

/// Checks that a lease permits a change exactly if it is the newest of a running row. Returns the change.
fn check_lease_change(holds: bool, change: Result<RowChange, StoreError>) -> Option<RowChange> {
    match change {
        Ok(change) => {
            assert!(holds, "a lost lease changed {:?}", change.row);
            Some(change)
        }
        Err(error) => {
            assert!(!holds && error.code() == "lease_lost", "{error:?}");
            None
        }
    }
}

fn end_of(state: RunState, at: Timestamp) -> AttemptEnd {
    let end = match state {
        RunState::Done => RunEnd::Done,
        RunState::Failed => RunEnd::Failed(DeadLetter::new(FailureClass::Permanent, "error", 1)),
        RunState::Skipped => RunEnd::Skipped(RunEnd::UNMATCHED),
        RunState::Superseded => RunEnd::Superseded,
        RunState::Suspended => RunEnd::Suspended {
            wake: Wake::on(Selector::any()),
            state: Json::default(),
        },
        RunState::Ready | RunState::Running => RunEnd::Continues,
    };
    AttemptEnd::of(end, at)
}

fn known() -> impl Strategy<Value = KnownOrigin> {
    prop_oneof![
        1 => Just(KnownOrigin::Own),
        3 => (0..3_u32).prop_map(KnownOrigin::Hops),
        2 => Just(KnownOrigin::Nothing),
    ]
}

fn lease_use() -> impl Strategy<Value = LeaseUse> {
    let position = prop_oneof![Just(KeyPosition::Held), Just(KeyPosition::Left)];
    let states = vec![
        RunState::Done,
        RunState::Failed,
        RunState::Skipped,
        RunState::Superseded,
        RunState::Suspended,
        RunState::Running,
    ];
    prop_oneof![
        2 => Just(LeaseUse::Heartbeat),
        2 => (0..15_u64, any::<bool>()).prop_map(|(after, counts)| LeaseUse::Retry(after, counts)),
        1 => Just(LeaseUse::Release),
        2 => (0..15_u64, position).prop_map(|(after, position)| LeaseUse::Transfer(after, position)),
        1 => Just(LeaseUse::Save),
        3 => prop::sample::select(states).prop_map(LeaseUse::End),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let run = 0..RUNS;
    prop_oneof![
        2 => (run.clone(), known(), 0..5_u64).prop_map(|(run, known, after)| Step::Enqueue(run, known, after)),
        3 => (run.clone(), known()).prop_map(|(run, known)| Step::Claim(run, known)),
        3 => (0..=RUNS, known()).prop_map(|(n, known)| Step::ClaimNext(n, known)),
        2 => (0..15_u64).prop_map(Step::AdvanceClock),
        6 => (any::<usize>(), lease_use()).prop_map(|(which, lease_use)| Step::Lease(which, lease_use)),
        1 => run.clone().prop_map(Step::Resume),
        1 => run.clone().prop_map(Step::Redo),
        1 => run.clone().prop_map(Step::Cancel),
        1 => (run.clone(), known()).prop_map(|(run, known)| Step::EnqueueCancelled(run, known)),
        1 => any::<bool>().prop_map(Step::Pause),
        1 => run.prop_map(Step::Skip),
        1 => Just(Step::Accept),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn order_leases_and_counters_hold_after_every_operation(steps in vec(step(), 1..60)) {
        let mut ledger = ModelLedger::new();
        for step in &steps {
            let before = ledger.rows.clone();
            ledger.apply_step(step);
            ledger.check(&before)?;
        }
    }
}

#[test]
fn turns_go_round_the_executors_until_all_places_are_taken() {
    let limits = [("a", 1), ("b", 9), ("a", 1)].map(|(id, free)| ExecutorLimits::new(id, free));
    let mut due_runs = [("a", 5), ("b", 2)].map(|(id, n)| (id, n));
    let next = |executor: &std::sync::Arc<str>| {
        let due_runs = due_runs.iter_mut().find(|(id, _)| *id == &**executor);
        let due_runs = due_runs.filter(|(_, n)| *n > 0);
        Ok::<_, ()>(due_runs.map(|(id, n)| {
            *n -= 1;
            *id
        }))
    };

    let items = round_robin(9, &limits, next).unwrap();

    assert_eq!(items, ["a", "b", "a", "b"]);
}
