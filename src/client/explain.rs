//! Reports on a breadcrumb: the executors that it triggers, and the reasons why it does not trigger the other executors.

use super::{Client, ClientError};
use crate::error::Chain;
use crate::model::{
    Breadcrumb, BreadcrumbId, DefinitionError, Event, Explanation, NewBreadcrumb, Route,
    Subscriptions, Timestamp,
};
use crate::store::{Run, RunState};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Report on one breadcrumb and the executors of all workers. Created by [`Client::explain`]. Implements `Display` and `Serialize`.
///
/// The JSON contains the whole breadcrumb, and each explanation quotes values of its context: show both only to people
/// with access to the breadcrumb. An explanation that is an error is an object with the field `error`.
///
/// The `Display` form is for a terminal: one line per executor, subscription and run. It contains
/// no credentials from unreadable subscriptions.
///
/// # Examples
/// ```
/// use universal_executor::client::TriggerReport;
///
/// /// Returns the executors that a live worker runs and that the breadcrumb does not trigger.
/// fn unmatched(report: &TriggerReport) -> Vec<&str> {
///     let live = report.executors.iter().filter(|one| one.live_workers > 0);
///     live.filter(|one| one.run.is_none()).map(|one| &*one.executor).collect()
/// }
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TriggerReport {
    /// The current version of the breadcrumb for which this report says which executors it triggers.
    pub breadcrumb: Arc<Breadcrumb>,
    /// One report for each version of each executor on whether the breadcrumb triggers it, sorted by executor ID.
    ///
    /// Empty if no worker was recorded on the store in the last 24 h.
    pub executors: Vec<ExecutorReport>,
    /// The runs on this breadcrumb by executors that no worker has registered.
    ///
    /// An open run among them waits until a worker with its executor starts.
    pub other_runs: Vec<Run>,
}

/// Report on one breadcrumb and one version of an executor.
///
/// During a rolling deploy, an executor has two versions, and so two reports. Its `Display` form is
/// a part of the report on the breadcrumb.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ExecutorReport {
    /// ID of the executor whose subscriptions this report compares with the breadcrumb.
    pub executor: Arc<str>,
    /// The version of the executor: a hash of its subscriptions.
    ///
    /// Workers with equal subscriptions have the same version, even if their code differs.
    pub version: Arc<str>,
    /// The number of live workers with this version of the executor.
    ///
    /// With 0, the version runs nowhere: it was stopped, or its workers stored no record for 30 s.
    pub live_workers: usize,
    /// Result of each subscription of the executor: matched, or the first condition that failed. An error if a worker with another version
    /// of this crate wrote subscriptions that this version cannot read. The text of the error quotes the subscriptions; the `Display` of
    /// [`TriggerReport`] removes credentials from it.
    #[serde(serialize_with = "explanation_or_error")]
    pub explanation: Result<Explanation, DefinitionError>,
    /// The executor's run on the current version of the breadcrumb, if there is one.
    ///
    /// `None` if the breadcrumb does not trigger the executor, if no worker has enqueued the run
    /// yet, or if the ledger has deleted it.
    pub run: Option<Run>,
}

/// Creates a report on one breadcrumb: which executors of all workers it triggers, and why it does not trigger the others.
pub(super) async fn explain(
    client: &Client,
    id: BreadcrumbId,
) -> Result<TriggerReport, ClientError> {
    let breadcrumb = client.store.get(id).await;
    let breadcrumb = breadcrumb
        .map_err(|error| ClientError::of_store(format!("read breadcrumb {id}"), error))?;
    let mut runs = client.runs_on(id).await?;
    runs.retain(|run| run.run.trigger_version == breadcrumb.version);
    let event = Event::created(&breadcrumb);
    let mut reports: BTreeMap<(Arc<str>, Arc<str>), ExecutorReport> = BTreeMap::new();
    for worker in client.workers().await? {
        for executor in worker.record.executors {
            let name = (Arc::clone(&executor.id), Arc::clone(&executor.version));
            let report = reports.entry(name).or_insert_with(|| ExecutorReport {
                executor: Arc::clone(&executor.id),
                version: Arc::clone(&executor.version),
                live_workers: 0,
                explanation: Subscriptions::from_json(&executor.subscriptions)
                    .map(|subscriptions| subscriptions.explain(&event)),
                run: runs
                    .iter()
                    .find(|run| run.run.executor == executor.id)
                    .cloned(),
            });
            report.live_workers += usize::from(worker.is_live);
        }
    }
    let executors: Vec<ExecutorReport> = reports.into_values().collect();
    runs.retain(|run| {
        executors
            .iter()
            .all(|report| report.executor != run.run.executor)
    });
    Ok(TriggerReport {
        breadcrumb,
        executors,
        other_runs: runs,
    })
}

/// Checks that a live worker has the executor `executor`, and that the breadcrumb `new` triggers this executor.
///
/// # Errors
/// [`ClientError::NoListener`] with the reason.
pub(super) async fn check_listener(
    client: &Client,
    executor: &Arc<str>,
    new: &NewBreadcrumb,
) -> Result<(), ClientError> {
    let example = new
        .clone()
        .first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
    let event = Event::created(&example);
    let mut reason = "no live worker has the executor".to_owned();
    let mut unreadable_reason = None;
    for worker in client
        .workers()
        .await?
        .into_iter()
        .filter(|worker| worker.is_live)
    {
        let executors = worker.record.executors.iter();
        for version in executors.filter(|version| version.id == *executor) {
            let explanation = match Subscriptions::from_json(&version.subscriptions) {
                Ok(subscriptions) => subscriptions.explain(&event),
                Err(error) => {
                    unreadable_reason = Some(unreadable_message(&error));
                    continue;
                }
            };
            match explanation.route {
                Route::Trigger { .. } | Route::NeedsContext => return Ok(()),
                Route::Unmatched | Route::Context => {
                    // The explanation quotes the breadcrumb, which must not reach a log.
                    reason = "its triggers do not match the breadcrumb".to_owned();
                }
            }
        }
    }
    Err(ClientError::NoListener {
        executor: Arc::clone(executor),
        // Unreadable subscriptions can match the breadcrumb, so they explain the error better than a mismatch does.
        reason: unreadable_reason.unwrap_or(reason),
    })
}

/// Serializes the explanation of a subscription match. If the subscriptions cannot be read, serializes an object with the read error.
fn explanation_or_error<S: Serializer>(
    explanation: &Result<Explanation, DefinitionError>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match explanation {
        Ok(explanation) => explanation.serialize(serializer),
        Err(error) => serializer.collect_map([("error", unreadable_message(error))]),
    }
}

/// Returns the error text for subscriptions that cannot be read from a worker's record. The text contains no credentials.
fn unreadable_message(error: &DefinitionError) -> String {
    format!(
        "its subscriptions cannot be read, a worker with another version of this crate wrote them: {}",
        Chain(error)
    )
}

impl fmt::Display for TriggerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Breadcrumb {
            id,
            version,
            schema_name,
            ..
        } = &*self.breadcrumb;
        let schema = schema_name.as_deref().unwrap_or("no schema");
        writeln!(f, "breadcrumb {id} v{version} ({schema})")?;
        if self.executors.is_empty() {
            writeln!(
                f,
                "no worker has been started on this store in the last 24 h"
            )?;
        }
        for executor in &self.executors {
            write!(f, "{executor}")?;
        }
        for run in &self.other_runs {
            writeln!(
                f,
                "{} is {}, and no worker has its executor",
                run.run, run.state
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for ExecutorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            executor,
            live_workers,
            ..
        } = self;
        writeln!(f, "executor {executor:?}, live workers: {live_workers}")?;
        match &self.run {
            Some(run) => {
                write!(f, "  run: {}", run.state)?;
                // A suspension ends the attempt and starts the count again.
                if run.state != RunState::Suspended {
                    write!(f, ", attempts: {}", run.attempts)?;
                }
                for detail in [&run.code, &run.cause].into_iter().flatten() {
                    write!(f, ", {detail}")?;
                }
                writeln!(f)?;
            }
            None => writeln!(f, "  run: none")?,
        }
        match &self.explanation {
            Ok(explanation) => {
                for line in explanation.to_string().lines() {
                    writeln!(f, "  {line}")?;
                }
                Ok(())
            }
            Err(error) => writeln!(f, "  {}", unreadable_message(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Json, Subscription};
    use crate::store::{
        BreadcrumbStoreExt as _, ExecutorVersion, MemoryStore, RunLedger as _, WorkerRecord,
    };
    use serde_json::json;

    /// Creates a store with the record of a worker whose subscriptions have a role that this version of the crate does not know.
    async fn with_unreadable_subscriptions() -> MemoryStore {
        let store = MemoryStore::default();
        let mut version = ExecutorVersion::new("clerk", &Subscriptions::default());
        let unknown = json!([{"schema_name": "order.v1", "role": "password=hunter2"}]);
        version.subscriptions = Json::from(unknown);
        let mut record = WorkerRecord::new("worker-1", "desk");
        record.executors.push(version);
        store.record_worker(&record).await.unwrap();
        store
    }

    #[tokio::test]
    async fn a_report_names_the_reason_why_subscriptions_cannot_be_read_without_credentials() {
        let store = with_unreadable_subscriptions().await;
        let order = store.create(NewBreadcrumb::new("order.v1")).await.unwrap();

        let report = Client::new(&store).explain(order.id).await.unwrap();

        let executor = report.executors.first().unwrap();
        let error = executor.explanation.as_ref().unwrap_err();
        assert_eq!((error.subscription(), error.field()), (Some(0), "role"));
        let printed = report.to_string();
        assert!(
            printed.contains("role: unknown value \"password=[hidden]\""),
            "{printed}"
        );
        assert!(!printed.contains("hunter2"), "{printed}");
    }

    #[tokio::test]
    async fn the_json_of_a_trigger_report_is_stable() {
        let store = with_unreadable_subscriptions().await;
        let order = store.create(NewBreadcrumb::new("order.v1")).await.unwrap();
        let subscriptions = Subscriptions::new([Subscription::trigger("order.v1")]).unwrap();
        let record = WorkerRecord::new("worker-2", "desk").executor("teller", &subscriptions);
        store.record_worker(&record).await.unwrap();

        let report = Client::new(&store).explain(order.id).await.unwrap();

        let error = report.executors[0].explanation.as_ref().unwrap_err();
        let expected = json!({
            "breadcrumb": &*order,
            "executors": [
                {
                    "executor": "clerk", "version": &*Subscriptions::default().hash(), "live_workers": 1,
                    "explanation": {"error": unreadable_message(error)}, "run": null,
                },
                {
                    "executor": "teller", "version": &*subscriptions.hash(), "live_workers": 1,
                    "explanation": {
                        "route": {"trigger": {"subscription": 0}},
                        "subscriptions": [{
                            "role": "trigger", "name": null, "asks": "schema_name \"order.v1\"",
                            "matched": true, "reason": null,
                        }],
                    },
                    "run": null,
                },
            ],
            "other_runs": [],
        });
        let written = serde_json::to_value(&report).unwrap();
        assert_eq!(written, expected);
        assert!(!written.to_string().contains("hunter2"), "{written}");
    }

    #[test]
    fn the_json_of_each_route_has_its_name() {
        let expected = json!([
            "unmatched", "context", {"trigger": {"subscription": 1}}, "needs_context",
        ]);

        let routes = [
            Route::Unmatched,
            Route::Context,
            Route::Trigger { subscription: 1 },
            Route::NeedsContext,
        ];

        assert_eq!(serde_json::to_value(routes).unwrap(), expected);
    }

    #[tokio::test]
    async fn a_request_without_a_listener_names_the_reason_why_subscriptions_cannot_be_read() {
        let store = with_unreadable_subscriptions().await;
        let request = Client::new(&store).request("clerk", NewBreadcrumb::new("order.v1"));

        let error = request.require_listener().send().await.unwrap_err();

        let ClientError::NoListener { reason, .. } = &error else {
            panic!("{error:?}");
        };
        assert!(reason.contains("cannot be read"), "{reason}");
        assert!(
            reason.contains("role: unknown value \"password=[hidden]\""),
            "{reason}"
        );
    }
}
