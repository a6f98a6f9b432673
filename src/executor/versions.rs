//! Transfer of runs between versions of one executor on one store, as in a rolling deployment.

use super::UniversalExecutor;
use crate::bugs::planted;
use crate::model::{Breadcrumb, EventKind, Route, Subscriptions};
use crate::store::{
    Commit, ExecutorVersion, KeyPosition, Lease, RunEnd, RunStore, StoreError, Worker,
};

/// Decision about a run whose trigger does not match this version of its executor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unmatched<'w> {
    /// The run is handed over to workers with another version of its executor, whose subscriptions match the trigger.
    Transfer {
        to: &'w Worker,
        version: &'w ExecutorVersion,
    },
    /// No recorded version of the executor matches the trigger, so the run is skipped.
    Skip,
}

/// Selects the executor version that receives a run: a matching version on a live worker, else the latest recorded matching
/// version.
///
/// `matches` returns `true` if the trigger matches the subscriptions. Subscriptions that this version of the crate cannot read
/// count as matching. They are from a newer crate, which can read the subscriptions of this worker and skips the run if no
/// version matches.
fn decide<'w>(
    workers: &'w [Worker],
    executor: &str,
    own_version: &str,
    matches: impl Fn(&Subscriptions) -> bool,
) -> Unmatched<'w> {
    let versions = workers.iter().flat_map(|worker| {
        let versions = worker.record.executors.iter();
        versions.map(move |version| (worker, version))
    });
    let others = versions
        .filter(|(_, version)| *version.id == *executor && *version.version != *own_version)
        .filter(|(_, version)| {
            Subscriptions::from_json(&version.subscriptions).map_or(true, |read| matches(&read))
        });
    if planted("skip-unmatched") {
        return Unmatched::Skip;
    }
    match others.max_by_key(|(worker, _)| (worker.is_live, worker.seen_at)) {
        Some((to, version)) => Unmatched::Transfer { to, version },
        None => Unmatched::Skip,
    }
}

/// Transfers a run to another version of its executor, whose subscriptions match the trigger. Without such a version, ends the run as
/// skipped.
///
/// `store` is the store of the handle that holds the lease. `trigger` is the current version of the trigger with its kind of
/// event, or `None` if the trigger no longer exists.
pub(crate) async fn transfer_or_skip<E: UniversalExecutor + ?Sized>(
    executor: &E,
    store: RunStore<'_>,
    lease: &Lease,
    trigger: Option<(EventKind, &Breadcrumb)>,
) -> Result<(), StoreError> {
    let own_version = executor.subscriptions().hash();
    let workers = match trigger {
        Some(_) => store.ledger().workers().await?,
        None => Vec::new(),
    };
    let matches = |subscriptions: &Subscriptions| {
        let route = trigger.map(|(kind, trigger)| subscriptions.route_breadcrumb(kind, trigger));
        matches!(route, Some(Route::Trigger { .. }))
    };
    match decide(&workers, executor.id(), &own_version, matches) {
        Unmatched::Transfer { to, version } => {
            let position = match to.is_live {
                true => KeyPosition::Held,
                false => KeyPosition::Left,
            };
            store
                .ledger()
                .transfer(lease.clone(), &version.version, to.kept_until(), position)
                .await?;
            log_transfer(lease, to, &version.version, &own_version);
        }
        Unmatched::Skip => {
            let end = (lease.clone(), RunEnd::Skipped(RunEnd::UNMATCHED));
            let commit = Commit {
                writes: Vec::new(),
                end: Some(end),
            };
            store.commit(commit).await?;
            if was_enqueued_by_another(executor.subscriptions(), lease, trigger) {
                tracing::warn!(
                    run = %lease.run,
                    own_version = &*own_version,
                    "a run was skipped: no version of its executor that was recorded in the last 24 h matches the trigger; \
                     redo the run once such a version runs"
                );
            }
        }
    }
    Ok(())
}

/// Logs that a run was transferred to the workers with another version of its executor. The level is `WARN` if no worker of the
/// version is live: the run then waits for an unknown time, and loses its position in the order of its ordering key.
fn log_transfer(lease: &Lease, to: &Worker, version: &str, own_version: &str) {
    let (run, worker) = (&lease.run, &*to.record.name);
    if to.is_live {
        tracing::info!(%run, worker, version, own_version, "a run was transferred to another version of its executor, because this \
            version does not match the trigger");
    } else {
        tracing::warn!(%run, worker, version, own_version, "a run waits at most 24 h for a worker with the executor version that matches \
            its trigger; later runs with the same ordering key do not wait; start such a worker, or end the run with Runtime::skip");
    }
}

/// Returns `true` if only another version of the executor can have enqueued the run. This holds if the trigger is unchanged, and
/// the run's event matches no trigger subscription of this version.
fn was_enqueued_by_another(
    own: &Subscriptions,
    lease: &Lease,
    trigger: Option<(EventKind, &Breadcrumb)>,
) -> bool {
    let is_unchanged =
        trigger.is_some_and(|(_, trigger)| trigger.version == lease.run.trigger_version);
    let route = lease.run.event.as_ref().map(|event| own.route(event));
    is_unchanged && matches!(route, Some(Route::Unmatched | Route::Context))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Json, Subscription, Timestamp};
    use crate::store::WorkerRecord;

    fn triggered_by(schema: &str) -> Subscriptions {
        Subscriptions::new(vec![Subscription::trigger(schema)]).unwrap()
    }

    fn worker(id: &str, subscriptions: &Subscriptions, seen: i64, now: i64) -> Worker {
        let record = WorkerRecord::new(id, id).executor("agent", subscriptions);
        let [seen, now] = [seen, now].map(|seconds| Timestamp::from_micros(seconds * 1_000_000));
        Worker::new(record, seen, seen, now)
    }

    /// Returns the worker that receives a run whose trigger matches the version `wide` but not the version `own`.
    fn receiver_of<'w>(
        workers: &'w [Worker],
        own: &Subscriptions,
        wide: &Subscriptions,
    ) -> Option<&'w str> {
        let matches = |subscriptions: &Subscriptions| subscriptions.hash() == wide.hash();
        match decide(workers, "agent", &own.hash(), matches) {
            Unmatched::Transfer { to, .. } => Some(&to.record.name),
            Unmatched::Skip => None,
        }
    }

    #[test]
    fn a_running_version_precedes_a_stopped_version() {
        let (own, wide) = (triggered_by("a.v1"), triggered_by("b.v1"));
        let workers = [
            worker("stopped", &wide, 10, 100),
            worker("runs", &wide, 90, 100),
            worker("own", &own, 100, 100),
        ];

        assert_eq!(receiver_of(&workers, &own, &wide), Some("runs"));
        assert_eq!(receiver_of(&workers[..1], &own, &wide), Some("stopped"));
    }

    #[test]
    fn a_run_that_no_version_matches_is_skipped() {
        let (own, wide) = (triggered_by("a.v1"), triggered_by("b.v1"));
        let other = worker("other", &triggered_by("c.v1"), 100, 100);
        let mut elsewhere = worker("elsewhere", &wide, 100, 100);
        elsewhere.record.executors[0].id = "tool".into();

        assert_eq!(receiver_of(&[other, elsewhere], &own, &wide), None);
        assert_eq!(receiver_of(&[], &own, &wide), None);
    }

    #[test]
    fn a_version_that_cannot_be_read_may_match() {
        let (own, wide) = (triggered_by("a.v1"), triggered_by("b.v1"));
        let mut newer = worker("newer", &wide, 100, 100);
        newer.record.executors[0].subscriptions = Json::from(serde_json::json!([{"role": "seer"}]));
        newer.record.executors[0].version = "newer".into();

        assert_eq!(receiver_of(&[newer], &own, &wide), Some("newer"));
    }
}
