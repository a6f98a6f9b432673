use super::*;
use crate::model::{BreadcrumbId, NewBreadcrumb};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

fn id(n: u8) -> BreadcrumbId {
    BreadcrumbId::from_bytes(u128::from(n).to_be_bytes())
}

fn run(n: u8) -> RunRef {
    RunRef::new(["one", "two"][usize::from(n % 2)], id(n / 2), 1)
}

fn time(n: u8) -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_secs(u64::from(n))
}

fn suspended_run(n: u8, since: u8, selectors: &[Selector]) -> Arc<SuspendedRun> {
    Arc::new(SuspendedRun {
        run: run(n),
        selectors: selectors.to_vec(),
        since: time(since),
        after: Timestamp::UNIX_EPOCH,
    })
}

fn schema(n: u8) -> String {
    format!("s{n}.v1")
}

/// Selectors of all kinds: with tags, string conditions and other conditions.
fn selectors() -> impl Strategy<Value = Selector> {
    (0_u8..2, 0_u8..6, 0_u8..6).prop_map(|(of, kind, text)| {
        let selector = Selector::schema(schema(of));
        let tag = format!("t{text}");
        match kind {
            0 => selector.all_tags([tag]),
            1 => selector.all_tags([tag, "t1".to_owned()]),
            2 => selector.matching("$.order.id", "eq", tag),
            3 => selector
                .matching("$.name", "eq", tag)
                .matching("$.n", "gt", 3),
            4 => selector.any_tags([tag]),
            _ => selector.matching("$.n", "eq", text),
        }
    })
}

fn breadcrumbs() -> impl Strategy<Value = Breadcrumb> {
    (0_u8..2, 0_u8..6, 0_u8..6, 0_u8..6).prop_map(|(of, tag, id, n)| {
        let context = json!({
            "order": {"id": format!("t{id}")},
            "name": format!("t{n}"),
            "n": n,
        });
        let new = NewBreadcrumb::new(schema(of)).tag(format!("t{tag}"));
        let new = new.context(context);
        new.first_version(BreadcrumbId::NIL, time(200))
    })
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u8, Vec<Selector>),
    Remove(u8),
    Forget(u8, u8),
    ForgetConcerned(Box<Breadcrumb>, bool),
    /// A check of all suspended runs that lists the runs below a number.
    Check(u8),
}

fn steps() -> impl Strategy<Value = Step> {
    let selectors = proptest::collection::vec(selectors(), 1..4);
    prop_oneof![
        6 => (0_u8..40, 1_u8..9, selectors).prop_map(|(n, since, all)| Step::Insert(n, since, all)),
        2 => (0_u8..40).prop_map(Step::Remove),
        1 => (0_u8..40, 1_u8..9).prop_map(|(n, since)| Step::Forget(n, since)),
        1 => (breadcrumbs(), any::<bool>()).prop_map(|(found, all)| Step::ForgetConcerned(Box::new(found), all)),
        1 => (0_u8..60).prop_map(Step::Check),
    ]
}

/// The suspended runs by their number.
type Model = BTreeMap<u8, Arc<SuspendedRun>>;

fn apply(wakes: &WakeIndex, model: &mut Model, step: Step) {
    match step {
        Step::Insert(n, since, selectors) => {
            let suspended_run = suspended_run(n, since, &selectors);
            let known = model.get(&n).map(|known| known.since);
            let is_newer = known < Some(suspended_run.since);
            let inserted = wakes.insert(&suspended_run);
            assert_eq!(inserted == Inserted::Added, is_newer);
            if is_newer {
                model.insert(n, suspended_run);
            }
        }
        Step::Remove(n) => {
            wakes.remove(&run(n));
            model.remove(&n);
        }
        Step::Forget(n, since) => {
            wakes.forget(&run(n), time(since));
            model.retain(|known, suspended_run| *known != n || suspended_run.since != time(since));
        }
        Step::ForgetConcerned(found, has_context) => {
            let event = Event::updated(&found);
            let event = if has_context { event } else { event.envelope() };
            wakes.forget_concerned(&event);
            // Other runs of the schema may be forgotten too. The next check adds them again.
            model.retain(|n, _| wakes.state().since(&run(*n)).is_some());
            let remaining = model
                .values()
                .filter(|suspended_run| suspended_run.wakes_on(&found));
            assert_eq!(remaining.count(), 0);
        }
        Step::Check(listed) => {
            wakes.begin_check();
            for (_, suspended_run) in model.range(..listed) {
                assert_eq!(wakes.insert(suspended_run), Inserted::Known);
            }
            wakes.end_check();
            model.retain(|n, _| *n < listed);
        }
    }
}

/// Asserts that an event finds all runs that its breadcrumb wakes, and only stored runs.
fn assert_found(wakes: &WakeIndex, model: &Model, found: &Breadcrumb) {
    let event = Event::updated(found);
    let candidates = wakes.concerned(found);
    let is_candidate = |n: u8| candidates.iter().any(|candidate| candidate.run == run(n));
    for (n, suspended_run) in model {
        assert!(
            is_candidate(*n) || !suspended_run.wakes_on(found),
            "{suspended_run:?}"
        );
    }
    for candidate in &candidates {
        let is_stored = |suspended_run: &Arc<SuspendedRun>| {
            (&suspended_run.run, suspended_run.since) == (&candidate.run, candidate.since)
        };
        assert!(model.values().any(is_stored), "{candidate:?}");
    }
    let wakes_any = model
        .values()
        .any(|suspended_run| suspended_run.wakes_on(found));
    for event in [event.envelope(), event] {
        assert!(wakes.concerns(&event) || !wakes_any);
    }
}

fn assert_is_like_its_model(exact_limit: usize, steps: Vec<Step>, found: &[Breadcrumb]) {
    let wakes = WakeIndex::with_exact_limit(exact_limit);
    let mut model = Model::new();
    for step in steps {
        apply(&wakes, &mut model, step);
        for found in found {
            assert_found(&wakes, &model, found);
        }
    }
    for n in model.into_keys() {
        wakes.remove(&run(n));
    }
    assert!(wakes.is_empty() && wakes.selectors().is_empty());
    assert!(wakes.state().compact.is_bare());
}

proptest! {
    #[test]
    fn every_breadcrumb_leads_to_the_suspended_runs_that_it_wakes(
        exact_limit in prop_oneof![Just(0_usize), Just(5)],
        steps in proptest::collection::vec(steps(), 1..60),
        found in proptest::collection::vec(breadcrumbs(), 4),
    ) {
        assert_is_like_its_model(exact_limit, steps, &found);
    }
}

/// Runs with the same comparison are found exactly, because an event must not cause reads of very many rows.
#[test]
fn runs_that_share_a_common_tag_are_stored_with_their_selectors() {
    let wakes = WakeIndex::with_exact_limit(0);
    for n in 0..60 {
        let above = Selector::schema("s0.v1").all_tags(["t"]);
        let above = above.matching("$.n", "gt", n);
        wakes.insert(&suspended_run(n, 1, &[above]));
    }
    let new = NewBreadcrumb::new("s0.v1")
        .tag("t")
        .context(json!({"n": 1}));
    let found = new.first_version(BreadcrumbId::NIL, time(200));

    let candidates = wakes.concerned(&found);

    // Sixteen runs are candidates because of their tag. The others are found by their condition, which the breadcrumb fails.
    assert_eq!(candidates.len(), 16);
    assert_eq!(wakes.state().exact.len(), 44);
}

#[test]
fn answers_lead_to_each_of_more_than_a_hundred_thousand_runs() {
    const RUNS: u32 = 120_000;
    let wakes = WakeIndex::default();
    let reply = |n: u32| Selector::schema("reply.v1").all_tags([format!("to:{n}")]);
    let id = |n: u32| BreadcrumbId::from_bytes(u128::from(n).to_be_bytes());
    let run = |n: u32| RunRef::new("asks", id(n), 1);
    for n in 0..RUNS {
        let suspended_run = SuspendedRun {
            run: run(n),
            selectors: vec![reply(n)],
            since: time(1),
            after: time(0),
        };
        assert_eq!(wakes.insert(&Arc::new(suspended_run)), Inserted::Added);
    }

    for n in [0, 999, 1_000, 100_000, RUNS - 1] {
        let new = NewBreadcrumb::new("reply.v1").tag(format!("to:{n}"));
        let found = wakes.concerned(&new.first_version(BreadcrumbId::NIL, time(2)));
        let runs: Vec<RunRef> = found.into_iter().map(|candidate| candidate.run).collect();
        assert_eq!(runs, [run(n)]);
    }
}

#[test]
fn an_answer_that_is_too_large_for_an_event_leads_to_the_run_that_tests_its_context() {
    let wakes = WakeIndex::with_exact_limit(0);
    let selector = Selector::schema("reply.v1").matching("$.order", "eq", "7");
    wakes.insert(&suspended_run(1, 1, &[selector]));
    let large = "x".repeat(Event::MAX_CONTEXT_BYTES + 1);
    let new = NewBreadcrumb::new("reply.v1").context(json!({"order": "7", "large": large}));
    let found = new.first_version(BreadcrumbId::NIL, time(200));
    let event = Event::created(&found);
    assert!(event.context.is_none());

    let candidates = wakes.concerned(&found);

    assert_eq!(candidates.len(), 1);
    assert!(wakes.concerns(&event));
}
