//! A client's wait for the end of a run, and the reply of the run.

use super::{Client, ClientError, QuestionView, ReplyError};
use crate::clock::later;
use crate::model::{Breadcrumb, BreadcrumbId};
use crate::request::human::REQUEST;
use crate::store::{Run, RunEnd, RunRef, RunState};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The reply to a client's request: the breadcrumbs that the run wrote.
///
/// The JSON form has the `run`, the breadcrumbs that the run wrote (`written`) and the ID of the last breadcrumb (`response`). A
/// breadcrumb that was deleted since is not in `written`, even if `response` has its ID.
///
/// Returned by [`RequestHandle::wait`](super::RequestHandle::wait) for a run that succeeded. The
/// breadcrumbs have their current versions, which can be newer than the versions that the run
/// wrote.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::{
///     Client, MemoryStore, NewBreadcrumb, Response, Runtime, Subscription, executor,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let clerk = executor("clerk").on(Subscription::trigger("order.v1")).execute(|_| async {
///     let response = Response::create(NewBreadcrumb::new("log.v1"));
///     Ok(response.and_create(NewBreadcrumb::new("quote.v1")))
/// });
/// let store = MemoryStore::default();
/// let running = Runtime::on(&store).executor(clerk).start().await?;
/// let order = NewBreadcrumb::new("order.v1");
/// let request = Client::new(&store).request("clerk", order).send().await?;
///
/// let reply = request.wait(Duration::from_secs(30)).await?;
/// assert_eq!(reply.written().len(), 2);
/// let response = reply.response().ok_or("no response")?;
/// assert_eq!(response.schema_name.as_deref(), Some("quote.v1")); // the last one
/// assert_eq!(reply.run(), request.run());
/// running.stop().await?;
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reply {
    run: RunRef,
    written: Vec<Arc<Breadcrumb>>,
    /// ID of the response: the last breadcrumb that the run wrote.
    response: Option<BreadcrumbId>,
}

impl Reply {
    /// Returns the response to the request: the last breadcrumb that the run wrote. Returns `None` if the run wrote no breadcrumb, or if
    /// the breadcrumb was deleted since.
    ///
    /// For an agent, the response is its answer, with the text in the field `message` of the
    /// context.
    #[must_use]
    pub fn response(&self) -> Option<&Arc<Breadcrumb>> {
        self.response
            .and_then(|id| self.written.iter().find(|written| written.id == id))
    }

    /// Returns the current versions of all breadcrumbs that the request's run wrote, in the order of the writes. They include the questions
    /// that the run asked before its response. Breadcrumbs that were deleted since are omitted.
    #[must_use]
    pub fn written(&self) -> &[Arc<Breadcrumb>] {
        &self.written
    }

    /// Returns the run that wrote the reply.
    ///
    /// It is the run of the [request](super::RequestHandle::run), for logs and for [`Client::run`].
    #[must_use]
    pub fn run(&self) -> &RunRef {
        &self.run
    }
}

/// Range of the pauses between two reads of a run that a client waits for: the first pause, and the maximum to which the pauses
/// grow. A run that writes nothing ends without an event.
const POLL_DELAYS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Waits until the run of a request has ended, and returns its reply.
pub(super) async fn wait(
    client: &Client,
    run: &RunRef,
    timeout: Duration,
) -> Result<Reply, ReplyError> {
    let end = later(Instant::now(), timeout);
    if let Ok(ended) = timeout_at(end, wait_for_end(client, run)).await {
        return reply(client, ended?).await;
    }
    // A store that does not answer must not extend the wait for long.
    let last = read_within(LAST_READ_TIMEOUT, client.run(run)).await?;
    let question = match &last {
        Some(last) if last.state.is_over() => return reply(client, last.clone()).await,
        Some(last) if last.state == RunState::Suspended => {
            read_within(LAST_READ_TIMEOUT, open_question(client, last)).await?
        }
        Some(_) | None => None,
    };
    Err(ReplyError::TimedOut {
        run: run.clone(),
        after: timeout,
        state: last.map(|run| run.state),
        question,
    })
}

/// Maximum duration of each store read that follows the timeout of a client's wait for a run.
const LAST_READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Waits at most `limit` for a store read and returns its result, or `None` after the time limit.
async fn read_within<T>(
    limit: Duration,
    read: impl Future<Output = Result<Option<T>, ClientError>>,
) -> Result<Option<T>, ClientError> {
    timeout_at(later(Instant::now(), limit), read)
        .await
        .unwrap_or(Ok(None))
}

/// Waits until a run is over, and returns the run's record from the ledger.
async fn wait_for_end(client: &Client, run: &RunRef) -> Result<Run, ClientError> {
    let listener = client.hub.listen(run.trigger_id);
    let mut delay = POLL_DELAYS.0;
    loop {
        let found = client.run(run).await?;
        if let Some(run) = found.filter(|run| run.state.is_over()) {
            return Ok(run);
        }
        let next = later(Instant::now(), delay);
        tokio::select! {
            // A store can announce the response before it ends the run.
            () = listener.notified() => delay = POLL_DELAYS.0,
            () = sleep_until(next) => delay = (delay * 2).min(POLL_DELAYS.1),
        }
    }
}

/// Returns the reply of a run that has ended, or the error for the client that sent the request.
async fn reply(client: &Client, ended: Run) -> Result<Reply, ReplyError> {
    let Run {
        run,
        state,
        written,
        reason,
        code,
        cause,
        ..
    } = ended;
    match state {
        RunState::Failed if code.as_deref() == Some(RunEnd::CANCELLED) => {
            Err(ReplyError::Cancelled { run })
        }
        RunState::Failed => Err(ReplyError::Failed {
            run,
            code: code.unwrap_or_default(),
            class: reason,
            cause,
        }),
        RunState::Skipped => Err(ReplyError::Skipped {
            run,
            reason: reason.unwrap_or_default(),
        }),
        RunState::Superseded => Err(ReplyError::Superseded { run }),
        RunState::Ready | RunState::Running | RunState::Suspended | RunState::Done => {
            let response = written.last().copied();
            let mut found = Vec::with_capacity(written.len());
            for id in written {
                found.extend(client.find(id).await?);
            }
            Ok(Reply {
                run,
                written: found,
                response,
            })
        }
    }
}

/// Returns the newest open question to a person that a suspended run has written.
pub(super) async fn open_question(
    client: &Client,
    run: &Run,
) -> Result<Option<Box<QuestionView>>, ClientError> {
    let questions = client.questions();
    for id in run.written.iter().rev() {
        let found = client.find(*id).await?;
        let is_question = |found: &Arc<Breadcrumb>| found.schema_name.as_deref() == Some(REQUEST);
        let Some(found) = found.filter(is_question) else {
            continue;
        };
        for question in questions.verified(&[found]).await? {
            if questions.is_open(&question).await? {
                return Ok(Some(Box::new(question)));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NewBreadcrumb, Timestamp};
    use serde_json::json;

    #[test]
    fn the_json_of_a_reply_is_stable() {
        let receipt = NewBreadcrumb::new("receipt.v1").context(json!({"id": 7}));
        let receipt = receipt.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
        let reply = Reply {
            run: RunRef::new("clerk", BreadcrumbId::NIL, 2),
            written: vec![Arc::new(receipt.clone())],
            response: Some(BreadcrumbId::NIL),
        };

        let id = BreadcrumbId::NIL.to_string();
        let expected = json!({
            "run": {"executor": "clerk", "trigger_id": id, "trigger_version": 2},
            "written": [receipt], "response": id,
        });
        assert_eq!(serde_json::to_value(&reply).unwrap(), expected);
    }
}
