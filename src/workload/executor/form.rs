//! Responses of a workload executor to its triggers.

use super::WorkloadExecutor;
use crate::agent::request_tags;
use crate::clock;
use crate::error::excerpt;
use crate::executor::{Failure, Response};
use crate::model::{Breadcrumb, Json, NewBreadcrumb, Timestamp};
use crate::workflow::StepFailure;
use serde_json::{Value, json};

/// Trigger kind of a workload executor: workflow requests or messages. The kind also determines the schema and fields
/// of the responses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// The executor's triggers are requests to a workflow, without a session.
    Request,
    /// The executor's triggers are messages to the workload, which may belong to a session.
    Message,
}

impl Form {
    /// Returns the executor kind, `workflow` or `workload`. Responses contain the executor ID in a field with this
    /// name.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Request => "workflow",
            Self::Message => "workload",
        }
    }

    /// Returns the schema of the workload executor's responses.
    pub(super) const fn response_schema(self) -> &'static str {
        match self {
            Self::Request => WorkloadExecutor::REQUEST_RESULT,
            Self::Message => WorkloadExecutor::RESULT,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Request => "Workflow Result",
            Self::Message => "Workload Result",
        }
    }

    /// Creates the context of the response breadcrumb for a workload run that ended with an output.
    pub(super) fn success(self, flow: &str, output: &Json) -> Value {
        match self {
            Self::Request => {
                json!({"flow": excerpt(flow, 80), "status": "success", "output": **output})
            }
            Self::Message => json!({"status": "success", "output": **output}),
        }
    }

    /// Creates the context of the response breadcrumb for a workload run that failed.
    pub(super) fn failed(self, flow: &str, failure: &StepFailure) -> Value {
        let flow = excerpt(flow, 80);
        match self {
            Self::Request if failure.code == "cancelled" && failure.step.is_none() => {
                json!({"flow": flow, "status": "cancelled"})
            }
            Self::Request => json!({"flow": flow, "status": "error", "error": failure}),
            Self::Message => json!({"status": "error", "error": failure}),
        }
    }

    /// Creates the response to a trigger, with the outcome of its workload run.
    pub(super) fn response(self, id: &str, trigger: &Breadcrumb, mut context: Value) -> Response {
        let now = Timestamp::from_micros(clock::wall_micros());
        if let Value::Object(fields) = &mut context {
            fields.insert(self.kind().to_owned(), id.into());
            fields.insert("run".to_owned(), json!(trigger.id));
            fields.insert("trigger_event_id".to_owned(), json!(trigger.id));
            fields.insert("timestamp".to_owned(), json!(now));
        }
        let result = NewBreadcrumb::new(self.response_schema())
            .title(format!("{}: {id}", self.title()))
            .tag(format!("{}:result", self.kind()))
            .tags(request_tags(trigger, 1))
            .context(context);
        Response::create(result)
    }

    /// Returns the response to a trigger whose run failed without an outcome of the workload, for example by a
    /// timeout.
    pub(super) fn failure(self, id: &str, trigger: &Breadcrumb, failure: &Failure) -> Response {
        let error = StepFailure::new("run_failed", failure.message.as_str());
        self.response(id, trigger, json!({"status": "error", "error": error}))
    }
}
