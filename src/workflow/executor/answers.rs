//! What runs of flows and of workloads are answered with.

use crate::agent::request_tags;
use crate::clock;
use crate::executor::{Failure, Response};
use crate::model::{Breadcrumb, NewBreadcrumb, Timestamp};
use crate::workflow::StepFailure;
use serde_json::{Value, json};

/// Who answers.
pub(crate) struct Answers<'e> {
    /// What it is, as its answers call it.
    pub(crate) kind: &'static str,
    pub(crate) title: &'static str,
    pub(crate) schema: &'static str,
    /// Its id.
    pub(crate) id: &'e str,
}

impl Answers<'_> {
    /// What a run came to.
    pub(crate) fn result(&self, trigger: &Breadcrumb, mut context: Value) -> Response {
        let now = Timestamp::from_micros(clock::wall_micros());
        if let Value::Object(fields) = &mut context {
            fields.insert(self.kind.to_owned(), self.id.into());
            fields.insert("run".to_owned(), json!(trigger.id));
            fields.insert("trigger_event_id".to_owned(), json!(trigger.id));
            fields.insert("timestamp".to_owned(), json!(now));
        }
        let result = NewBreadcrumb::new(self.schema)
            .title(format!("{}: {}", self.title, self.id))
            .tag(format!("{}:result", self.kind))
            .tags(request_tags(trigger, 1))
            .context(context);
        Response::create(result)
    }

    /// That a run failed beside what it does.
    pub(crate) fn failure(&self, trigger: &Breadcrumb, failure: &Failure) -> Response {
        let error = StepFailure::new("run_failed", failure.message.as_str());
        self.result(trigger, json!({"status": "error", "error": error}))
    }
}
