//! Property tests of the interpreter with random flows, and random outcomes in any order.

use super::random::{Chance, Done, Player, chances, flows, graphs};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Upper bound of the number of calls in a run: 200 steps, each with three attempts, suspended and resumed.
const BOUND: usize = 2_000;

struct Played {
    begun: Next,
    done: Vec<(Done, Next)>,
    progress: Progress,
}

impl Played {
    fn all(&self) -> impl Iterator<Item = &Next> {
        std::iter::once(&self.begun).chain(self.done.iter().map(|(_, next)| next))
    }

    fn events(&self) -> Vec<FlowEvent> {
        self.all().flat_map(|next| next.events.clone()).collect()
    }
}

fn begin(workflow: &Arc<Workflow>) -> (FlowRun, Next) {
    FlowRun::begin(Arc::clone(workflow), "main", "run", Value::Null).unwrap()
}

/// Returns the events of a run in which at most `stride` steps begin per call. The run is saved and restored between the calls.
fn events_in_strides(workflow: &Arc<Workflow>, chances: &[Chance], stride: u64) -> Vec<FlowEvent> {
    let begun = FlowRun::begin_in_strides(stride, Arc::clone(workflow), "main", "run", Value::Null);
    let (mut run, mut came) = begun.unwrap();
    let (mut player, mut chances) = (Player::default(), chances.iter().copied());
    let mut events = Vec::new();
    loop {
        player.record(&came);
        events.extend(came.events);
        run = FlowRun::restore(Arc::clone(workflow), run.progress().clone()).unwrap();
        run = run.in_strides(stride);
        if run.progress().finished().is_some() {
            return events;
        }
        came = run.start_more_steps();
        if came == Next::default() && !run.has_more_steps() {
            let next = player.choose(chances.next());
            came = next.expect("no step is in flight").to(&mut run);
        }
    }
}

fn play(workflow: &Arc<Workflow>, chances: &[Chance]) -> Played {
    let (mut run, begun) = begin(workflow);
    let mut player = Player::default();
    player.record(&begun);
    let mut chances = chances.iter().copied();
    let mut done = Vec::new();
    while run.progress().finished().is_none() {
        assert!(done.len() < BOUND, "the run does not end");
        let next = player
            .choose(chances.next())
            .expect("no step is in flight, but the run has not ended");
        let came = next.to(&mut run);
        assert_eq!(came.anomaly, None);
        player.record(&came);
        let paths = |ready: &[Ready]| -> BTreeSet<StepPath> {
            ready.iter().map(|ready| ready.path.clone()).collect()
        };
        assert_eq!(paths(&run.outstanding()), paths(&player.in_flight));
        done.push((next, came));
    }
    assert_eq!(player.in_flight, []);
    Played {
        begun,
        done,
        progress: run.progress().clone(),
    }
}

fn is_below(path: &StepPath, other: &StepPath) -> bool {
    let rest = path.as_str().strip_prefix(other.as_str());
    rest.is_some_and(|rest| rest.starts_with(['/', '#']))
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_run_ends_within_its_bounds_and_once(flows in flows(), chances in chances()) {
        let played = play(&workflow(flows), &chances);

        let finished = played.all().filter(|next| next.finished.is_some()).count();

        prop_assert_eq!(finished, 1);
        prop_assert!(played.progress.steps() <= 201);
        prop_assert!(played.progress.nodes.is_empty());
    }

    #[test]
    fn all_that_is_started_ends_once_and_events_are_well_nested(flows in flows(), chances in chances()) {
        let events = play(&workflow(flows), &chances).events();

        let mut open: Vec<StepPath> = Vec::new();
        let mut seen = BTreeSet::new();
        for event in &events {
            match &event.kind {
                FlowEventKind::Started => {
                    let outside = open.iter().any(|path| is_below(&event.path, path));
                    prop_assert!(outside || event.path.as_str() == "main", "{} has no open parent", event.path);
                    prop_assert!(seen.insert(event.path.clone()), "{} began twice", event.path);
                    open.push(event.path.clone());
                }
                FlowEventKind::Finished | FlowEventKind::Failed(_) | FlowEventKind::Cancelled => {
                    let at = open.iter().position(|path| *path == event.path);
                    prop_assert!(at.is_some(), "{} was not open", event.path);
                    open.remove(at.unwrap());
                    let left = open.iter().find(|path| is_below(path, &event.path));
                    prop_assert!(left.is_none(), "{:?} was left open in {}", left, event.path);
                }
                FlowEventKind::Retried { .. }
                | FlowEventKind::Suspended { .. }
                | FlowEventKind::Resumed { .. }
                | FlowEventKind::Escalated { .. }
                | FlowEventKind::LoopExhausted { .. }
                | FlowEventKind::Paused
                | FlowEventKind::Unpaused => {
                    prop_assert!(open.contains(&event.path), "{:?} of a step that is not open", event);
                }
            }
        }
        prop_assert!(open.is_empty(), "{:?}", open);
    }

    #[test]
    fn a_run_is_the_same_however_many_steps_begin_at_a_time(
        flows in flows(), chances in chances(), stride in 1_u64..6,
    ) {
        let workflow = workflow(flows);

        let events = events_in_strides(&workflow, &chances, stride);

        prop_assert_eq!(events, play(&workflow, &chances).events());
    }

    #[test]
    fn sequence_numbers_have_no_gap(flows in flows(), chances in chances()) {
        let events = play(&workflow(flows), &chances).events();

        let numbers: Vec<u64> = events.iter().map(|event| event.sequence).collect();

        prop_assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn no_attempt_is_handed_out_twice(flows in flows(), chances in chances()) {
        let played = play(&workflow(flows), &chances);

        let mut seen = BTreeSet::new();
        for ready in played.all().flat_map(|next| &next.ready) {
            prop_assert!(!ready.again);
            prop_assert!(seen.insert((ready.path.clone(), ready.attempt)), "{} was handed out twice", ready.path);
        }
    }

    #[test]
    fn the_same_outcomes_give_the_same_also_when_saved_and_read_back_each_time(
        flows in flows(), chances in chances(),
    ) {
        let workflow = workflow(flows);
        let played = play(&workflow, &chances);
        let (mut run, begun) = begin(&workflow);
        prop_assert_eq!(&begun, &played.begun);

        for (done, came) in &played.done {
            let saved = serde_json::to_string(run.progress()).unwrap();
            let progress: Progress = serde_json::from_str(&saved).unwrap();
            prop_assert_eq!(&progress, run.progress());
            run = FlowRun::restore(Arc::clone(&workflow), progress).unwrap();
            prop_assert_eq!(&done.to(&mut run), came);
        }

        prop_assert_eq!(run.progress(), &played.progress);
    }

    #[test]
    fn events_and_outcomes_survive_being_recorded(flows in flows(), chances in chances()) {
        let played = play(&workflow(flows), &chances);

        let events = played.events();
        let text = serde_json::to_string(&events).unwrap();
        prop_assert_eq!(serde_json::from_str::<Vec<FlowEvent>>(&text).unwrap(), events);
        for (done, _) in &played.done {
            if let Done::Reported(_, _, outcome) = done {
                let text = serde_json::to_string(outcome).unwrap();
                prop_assert_eq!(&serde_json::from_str::<StepOutcome>(&text).unwrap(), outcome);
            }
        }
    }
}

/// Returns the JSON pointers of a value and of all values in it.
fn pointers(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), value)];
    while let Some((pointer, value)) = open.pop() {
        if let Value::Object(fields) = value {
            let fields = fields.iter();
            open.extend(fields.map(|(name, field)| {
                let name = name.replace('~', "~0").replace('/', "~1");
                (format!("{pointer}/{name}"), field)
            }));
        }
        found.push(pointer);
    }
    found
}

proptest! {
    #[test]
    fn a_progress_that_was_tampered_with_does_no_harm(
        flows in flows(), chances in chances(), at in any::<prop::sample::Index>(), other in any::<prop::sample::Index>(),
        number in any::<u64>(),
    ) {
        let workflow = workflow(flows);
        let (mut run, begun) = begin(&workflow);
        let mut ready = begun.ready;
        for (which, _) in chances.iter().take(usize::from(number as u8 % 8)) {
            if ready.is_empty() {
                break;
            }
            let one = ready.remove(usize::from(*which) % ready.len());
            ready.extend(run.tell(&one.path, one.attempt, StepOutcome::success(json!(1))).ready);
        }
        let mut saved = serde_json::to_value(run.progress()).unwrap();
        let pointers = pointers(&saved);
        // Replaces a number with another one, or any other value with another part of the progress.
        let part = saved.pointer(&pointers[other.index(pointers.len())]).unwrap().clone();
        let place = saved.pointer_mut(&pointers[at.index(pointers.len())]).unwrap();
        *place = if place.is_number() { json!(number) } else { part };

        let Ok(progress) = serde_json::from_str::<Progress>(&saved.to_string()) else { return Ok(()) };
        let Ok(mut run) = FlowRun::restore(workflow, progress) else { return Ok(()) };
        for one in run.outstanding() {
            drop(run.tell(&one.path, one.attempt, StepOutcome::success(json!(1))));
        }
        drop(run.cancel());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_graph_runs_each_step_once_after_all_it_depends_on(
        (edges, order) in graphs(), picks in proptest::collection::vec(any::<prop::sample::Index>(), 12),
    ) {
        let name = |at: &usize| format!("s{at}");
        let steps: Vec<Value> = order
            .iter()
            .map(|at| json!({"id": name(at), "tool": "search", "depends_on": edges[*at].iter().map(name).collect::<Vec<_>>()}))
            .collect();
        let (mut run, begun) = begin(&workflow(json!({"main": {"steps": steps, "dag": true}})));
        let mut ready = begun.ready;
        let mut finished = Vec::new();

        let mut picks = picks.into_iter();
        while run.progress().finished().is_none() {
            for one in &ready {
                let at: usize = one.path.as_str().trim_start_matches("main/s").parse().unwrap();
                prop_assert!(edges[at].iter().all(|on| finished.contains(on)), "{} began before its dependencies ended", one.path);
            }
            let at = picks.next().unwrap().index(ready.len());
            let one = ready.remove(at);
            finished.push(one.path.as_str().trim_start_matches("main/s").parse::<usize>().unwrap());
            let next = run.tell(&one.path, one.attempt, StepOutcome::success(json!(1)));
            ready.extend(next.ready);
        }

        finished.sort_unstable();
        prop_assert_eq!(finished, (0..edges.len()).collect::<Vec<_>>());
    }
}
