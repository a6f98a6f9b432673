use super::*;
use crate::store::SavedPosition;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn time(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn range(after: i64, to: i64) -> Range {
    (time(after), time(to))
}

fn is_unread(position: &Position, at: i64) -> bool {
    let unread = position.unread_to(time(i64::MAX));
    unread
        .iter()
        .any(|&(after, to)| after < time(at) && time(at) <= to)
}

#[test]
fn a_first_position_has_read_nothing_after_its_start() {
    let position = Position::starting(time(10), time(5));

    assert_eq!(position.up_to(), time(10));
    assert_eq!(
        position.to_read(time(30), Duration::from_secs(1)),
        [range(10, 30)]
    );
    assert_eq!(position.to_read(time(10), Duration::from_secs(1)), []);
}

#[test]
fn pages_from_the_newest_down_leave_an_interval_between() {
    let mut position = Position::starting(time(10), time(10));

    position.mark_read(range(80, 100));

    assert_eq!(
        position.unread_to(time(120)),
        [range(10, 80), range(100, 120)]
    );
    assert_eq!(
        (position.up_to(), position.is_contiguous()),
        (time(100), false)
    );
    position.mark_read(range(10, 80));
    assert_eq!(
        (position.up_to(), position.is_contiguous()),
        (time(100), true)
    );
}

#[test]
fn the_overlap_is_read_again_but_not_from_before_the_start() {
    let mut position = Position::starting(time(50), time(50));
    position.mark_read(range(50, 100));

    let overlap = |micros| position.to_read(time(110), Duration::from_micros(micros));

    assert_eq!(overlap(20), [range(80, 110)]);
    assert_eq!(overlap(500), [range(50, 110)]);
}

#[test]
fn a_second_downtime_adds_an_interval() {
    let mut position = Position::starting(time(0), time(0));
    position.mark_read(range(90, 100));
    let mut restarted = Position::from_bytes(&position.to_bytes()).unwrap();

    restarted.mark_read(range(190, 200));

    assert_eq!(
        restarted.unread_to(time(200)),
        [range(0, 90), range(100, 190)]
    );
}

#[test]
fn a_trigger_that_is_still_open_stays_unread() {
    let mut position = Position::starting(time(0), time(0));
    position.mark_read(range(0, 100));

    position.mark_unread([range(39, 40), range(119, 120)]);

    assert_eq!(position.unread_to(time(100)), [range(39, 40)]);
}

#[test]
fn a_range_that_one_worker_has_read_is_read_for_both() {
    let mut one = Position::starting(time(0), time(0));
    one.mark_read(range(50, 100));
    let mut other = Position::starting(time(0), time(20));
    other.mark_read(range(20, 60));

    let merged = one.merge(&other, None);

    assert_eq!(merged.unread_to(time(100)), []);
    assert_eq!((merged.since(), merged.up_to()), (time(0), time(100)));
}

#[test]
fn a_worker_that_starts_later_reads_nothing_of_the_time_before() {
    let first = Position::starting(time(100), time(100));
    let second = Position::starting(time(200), time(200));

    for merged in [first.merge(&second, None), second.merge(&first, None)] {
        assert_eq!(merged.unread_to(time(300)), [range(100, 300)]);
        assert_eq!(merged.since(), time(100));
    }
}

#[test]
fn missed_events_are_unread_although_another_worker_counts_them_as_read() {
    let saved = {
        let mut position = Position::starting(time(0), time(0));
        position.mark_read(range(0, 500));
        position
    };
    let mut own = saved.clone();
    own.mark_unread_after(time(300));
    own.mark_read(range(400, 450));

    let merged = own.merge(&saved, Some(time(300)));

    assert_eq!(
        merged.unread_to(time(600)),
        [range(300, 400), range(450, 600)]
    );
    assert_eq!(own.merge(&saved, None).up_to(), time(500));
}

#[test]
fn a_range_that_one_executor_has_not_read_is_unread_for_both() {
    let mut one = Position::starting(time(0), time(0));
    one.mark_read(range(0, 100));
    let other = Position::starting(time(70), time(70));

    let both = one.combine(&other);

    assert_eq!(both.up_to(), time(70));
    assert_eq!(both.with_since(time(90)).up_to(), time(90));
}

#[test]
fn damaged_bytes_and_unknown_formats_are_not_read_as_a_position() {
    let position = Position::starting(time(1), time(2));
    let bytes = position.to_bytes();

    assert_eq!(Position::from_bytes(&bytes), Some(position));
    assert_eq!(Position::from_bytes(&[]), None);
    assert_eq!(Position::from_bytes(&bytes[..bytes.len() - 1]), None);
    assert_eq!(Position::from_bytes(&bytes[..9]), None);
    let other = [&[FORMAT + 1][..], &bytes[1..]].concat();
    assert_eq!(Position::from_bytes(&other), None);
    let without_end = [&bytes[..bytes.len() - 8], &5_i64.to_be_bytes()[..]].concat();
    assert_eq!(Position::from_bytes(&without_end), None);
}

/// An event in the life of a worker.
#[derive(Clone, Debug)]
enum Step {
    /// A trigger is committed.
    Commit,
    /// The worker reads a page of this number of triggers and saves its position.
    Page(usize),
    /// The worker reads a page and is killed before it saves its position.
    KilledInPage(usize),
    /// The worker is killed, and starts again from its saved position.
    Restart,
    /// Another worker of the same executor reads this number of the newest triggers, and saves its own position.
    Other(usize),
    /// A trigger of the last page is not in the ledger when the position is saved.
    Late,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => Just(Step::Commit),
        3 => (1..4_usize).prop_map(Step::Page),
        1 => (1..4_usize).prop_map(Step::KilledInPage),
        1 => Just(Step::Restart),
        1 => (1..6_usize).prop_map(Step::Other),
        1 => Just(Step::Late),
    ];
    vec(step, 0..120)
}

/// The model: all triggers, the enqueued triggers, and the saved bytes.
#[derive(Default)]
struct World {
    clock: i64,
    triggers: BTreeSet<i64>,
    enqueued: BTreeSet<i64>,
    saved: Option<Vec<u8>>,
}

impl World {
    fn load(&self) -> Position {
        let saved = self.saved.as_deref();
        saved.map_or_else(
            || Position::starting(time(0), time(0)),
            |bytes| Position::from_bytes(bytes).unwrap(),
        )
    }

    fn save(&mut self, position: &Position) {
        let merged = position.merge(&self.load(), None);
        self.saved = Some(merged.to_bytes());
    }

    /// Reads at most `most` of the newest unread triggers. The first `late` of them are not enqueued.
    fn page(&mut self, position: &mut Position, most: usize, late: usize) {
        let Some(&newest) = self.triggers.last() else {
            return;
        };
        let Some((after, to)) = position.unread_to(time(newest)).pop() else {
            return;
        };
        let inside = self.triggers.range(after.as_micros() + 1..=to.as_micros());
        let page: Vec<i64> = inside.rev().take(most).copied().collect();
        let is_full = page.len() == most;
        let read_to = page.last().copied().filter(|_| is_full);
        // The next page may contain another trigger with the time of the oldest one.
        let read_to = read_to.unwrap_or(after.as_micros());
        self.enqueued.extend(page.iter().skip(late));
        position.mark_read((time(read_to), to));
        position.mark_unread(page.iter().take(late).map(|at| range(at - 1, *at)));
        if read_to > after.as_micros() {
            // The oldest trigger is read again with the next page.
            assert!(is_unread(position, read_to));
        }
    }

    fn run(&mut self, steps: &[Step]) {
        let mut worker = self.load();
        for step in steps {
            match step {
                Step::Commit => {
                    self.clock += 10;
                    self.triggers.insert(self.clock);
                }
                Step::Page(most) => {
                    self.page(&mut worker, *most + 1, 0);
                    self.save(&worker);
                }
                Step::Late => {
                    self.page(&mut worker, 3, 1);
                    self.save(&worker);
                }
                Step::KilledInPage(most) => {
                    self.page(&mut worker, *most + 1, 1);
                    worker = self.load();
                }
                Step::Restart => worker = self.load(),
                Step::Other(most) => {
                    let mut other = self.load();
                    self.page(&mut other, *most + 1, 0);
                    self.save(&other);
                }
            }
            let saved = self.load();
            for trigger in &self.triggers {
                assert!(
                    self.enqueued.contains(trigger) || is_unread(&saved, *trigger),
                    "trigger {trigger} is missed: {saved:?}"
                );
            }
        }
        for _ in 0..1_000 {
            self.page(&mut worker, 2, 0);
        }
        self.save(&worker);
    }
}

proptest! {
    #[test]
    fn every_trigger_is_enqueued_despite_worker_failures(steps in steps()) {
        let mut world = World::default();

        world.run(&steps);

        prop_assert_eq!(&world.enqueued, &world.triggers);
        prop_assert!(world.load().is_contiguous());
    }

    #[test]
    fn positions_stay_small_and_forget_nothing(times in vec(0..100_000_i64, 0..200)) {
        let mut position = Position::starting(time(0), time(0));
        position.mark_read(range(0, 200_000));

        position.mark_unread(times.iter().map(|at| range(at - 1, *at)));

        let bytes = position.to_bytes();
        prop_assert!(bytes.len() <= SavedPosition::MAX_BYTES);
        let read = Position::from_bytes(&bytes).unwrap();
        for at in times.into_iter().filter(|at| *at > 0) {
            prop_assert!(is_unread(&read, at));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..80)) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first %= 3;
        }
        if let Some(position) = Position::from_bytes(&bytes) {
            prop_assert!(position.to_bytes().len() <= SavedPosition::MAX_BYTES);
        }
    }
}

#[test]
fn unread_moments_between_read_intervals_take_bounded_memory_and_stay_unread() {
    let mut position = Position::starting(time(0), time(0));

    for n in 0..3_000 {
        position.mark_read(range(n * 10, n * 10 + 9));
    }

    assert_eq!(position.unread_to(time(30_000)).len(), MAX_IN_MEMORY);
    assert!((1..=3_000).all(|n| is_unread(&position, n * 10)));
}

#[test]
fn a_position_distinguishes_read_times_from_reopened_ranges() {
    let at = Timestamp::from_micros;
    let mut position = Position::starting(at(10), at(10));
    position.mark_read((at(10), at(50)));
    position.mark_unread([(at(20), at(30))]);

    assert_eq!(
        (position.unread_after(), position.up_to()),
        (at(20), at(50))
    );
    let read: Vec<i64> = [5, 10, 20, 21, 30, 31, 50, 51]
        .into_iter()
        .filter(|time| position.has_read(at(*time)))
        .collect();
    assert_eq!(read, [5, 10, 20, 31, 50]);
}
