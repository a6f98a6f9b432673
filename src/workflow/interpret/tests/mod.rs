//! Tests of the interpreter with scripted outcomes. The actions of each call are compared as strings: `do main/0`, `stop main/0`, `done 3`.

mod budget;
mod control;
mod properties;
mod random;
mod recovery;
mod sequence;
mod side_by_side;

use super::*;
use crate::workflow::ModelInput;
use serde_json::{Value, json};

/// Returns a definition with these flows.
fn definition(flows: Value) -> Value {
    let mut definition = json!({
        "models": {"small": {}},
        "tools": {"search": {}, "publish": {}},
        "agents": {"writer": {"instruction": "Write."}},
        "policies": {"limits": {"steps": 200, "items": 20, "value_bytes": 4096}},
    });
    definition["flows"] = flows;
    definition
}

fn workflow(flows: Value) -> Arc<Workflow> {
    Arc::new(Workflow::from_json(&definition(flows)).unwrap())
}

/// A run that is saved and restored before each call, with its events and steps.
struct Script {
    run: FlowRun,
    events: Vec<FlowEvent>,
    ready: Vec<Ready>,
}

impl Script {
    /// Begins a run of a flow with these steps. Returns the run and its first actions.
    fn of(steps: Value) -> (Self, Vec<String>) {
        let flow = Value::from_iter([("steps", steps)]);
        Self::of_flows(Value::from_iter([("main", flow)]))
    }

    fn of_flows(flows: Value) -> (Self, Vec<String>) {
        let input = json!({"topic": "rust", "list": [1, 2, 3]});
        let (run, next) = FlowRun::begin(workflow(flows), "main", "run", input).unwrap();
        let mut script = Self {
            run,
            events: Vec::new(),
            ready: Vec::new(),
        };
        let shown = script.note(next);
        (script, shown)
    }

    /// Replaces the run with one restored from its saved progress, as after the loss of a worker.
    fn restart(&mut self) {
        let saved = serde_json::to_string(self.run.progress()).unwrap();
        let progress: Progress = serde_json::from_str(&saved).unwrap();
        assert_eq!(&progress, self.run.progress());
        self.run = FlowRun::restore(Arc::clone(self.run.workflow()), progress).unwrap();
    }

    fn step(&mut self, step: impl FnOnce(&mut FlowRun) -> Next) -> Vec<String> {
        self.restart();
        let next = step(&mut self.run);
        self.note(next)
    }

    fn note(&mut self, next: Next) -> Vec<String> {
        let shown = show(&next);
        self.events.extend(next.events);
        self.ready.extend(next.ready);
        shown
    }

    fn tell(&mut self, path: &str, outcome: StepOutcome) -> Vec<String> {
        let attempt = self.task(path).attempt;
        self.step(|run| run.tell(&path.into(), attempt, outcome))
    }

    fn ok(&mut self, path: &str, value: Value) -> Vec<String> {
        self.tell(path, StepOutcome::success(value))
    }

    fn fails(&mut self, path: &str) -> Vec<String> {
        self.tell(path, StepOutcome::failure("broken", "it broke"))
    }

    /// Returns the step that was last handed out at a path.
    fn task(&self, path: &str) -> &Ready {
        let mut ready = self.ready.iter().rev();
        ready.find(|ready| ready.path.as_str() == path).unwrap()
    }

    fn input(&self, path: &str) -> Value {
        match &self.task(path).task {
            StepTask::Agent { input, .. } | StepTask::Tool { input, .. } => (**input).clone(),
            StepTask::Model {
                input: ModelInput::Data(input),
                ..
            } => (**input).clone(),
            other => panic!("{other:?} has no input"),
        }
    }

    /// Returns all events as strings: `+main/0` (started), `-main/0` (finished), `!main/0 broken` (failed), `~main/0` (cancelled), and
    /// other events by name.
    fn events(&self) -> Vec<String> {
        self.events.iter().map(show_event).collect()
    }
}

fn show(next: &Next) -> Vec<String> {
    let cancel = next.cancel.iter().map(|path| format!("stop {path}"));
    let ready = next.ready.iter().map(|ready| format!("do {}", ready.path));
    let finished = next.finished.iter().map(show_finish);
    let anomaly = next.anomaly.iter().map(|anomaly| format!("{anomaly:?}"));
    cancel.chain(ready).chain(finished).chain(anomaly).collect()
}

fn show_finish(finish: &Finish) -> String {
    match finish {
        Finish::Completed { output } => format!("done {output}"),
        Finish::Failed { failure } => {
            let step = failure.step.as_ref().map_or("nowhere", StepPath::as_str);
            format!("failed {} at {step}", failure.code)
        }
        Finish::Cancelled => "cancelled".to_owned(),
    }
}

fn show_event(event: &FlowEvent) -> String {
    let path = &event.path;
    match &event.kind {
        FlowEventKind::Started => format!("+{path}"),
        FlowEventKind::Finished => format!("-{path}"),
        FlowEventKind::Failed(failure) => format!("!{path} {}", failure.code),
        FlowEventKind::Cancelled => format!("~{path}"),
        FlowEventKind::Retried { attempt, after, .. } => {
            format!("retry {path} {attempt} after {}ms", after.as_millis())
        }
        FlowEventKind::Suspended { ticket } => format!("suspended {path} {ticket}"),
        FlowEventKind::Resumed { ticket } => format!("resumed {path} {ticket}"),
        FlowEventKind::Escalated { escalation } => format!("escalated {path} {escalation}"),
        FlowEventKind::LoopExhausted { iterations } => {
            format!("loop_exhausted {path} {iterations}")
        }
        FlowEventKind::Paused => "paused".to_owned(),
        FlowEventKind::Unpaused => "unpaused".to_owned(),
    }
}
