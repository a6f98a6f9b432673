//! The turns of a chat session that have not ended.

use super::super::{ClientError, RequestHandle};
use super::cursor::Cursor;
use super::{Session, Turn};
use crate::model::{Breadcrumb, Selector};
use crate::store::{Query, Run, RunEnd, RunRef};
use std::sync::Arc;

/// Number of messages in one page of the search for open turns of a session.
const PAGE: usize = 100;

/// Maximum number of later chat messages that are read, the newest first, to find out whether a later turn of the session has
/// ended. A turn without a run in the ledger counts as ended if a later turn has ended.
const LATER_MESSAGES: usize = 20;

/// Maximum number of messages that one call of [`Session::open_turns`] checks: the newest.
const MAX_MESSAGES: usize = 1_000;

/// The stage of a chat turn, derived from its run: open, ended, or cancelled before a worker started the run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Open,
    /// The chat turn has ended after a worker had received its message. Workers receive the messages of a session in order, so
    /// they have enqueued the runs of all earlier messages.
    Ended,
    /// The turn was cancelled before a worker started the run. The cancellation is no evidence about earlier messages, because a client
    /// can cancel a turn that no worker has received.
    NotStarted,
}

impl Stage {
    fn of(run: &Run) -> Self {
        let has_started = run.attempts > 0 || !run.written.is_empty();
        let is_cancelled = run.code.as_deref() == Some(RunEnd::CANCELLED);
        match run.state.is_over() {
            false => Self::Open,
            true if is_cancelled && !has_started => Self::NotStarted,
            true => Self::Ended,
        }
    }
}

impl Session {
    /// Returns the turns of the session that have not ended, in the order of their messages, the oldest first. Each one starts with its
    /// first event, like the turn that [`send`](Self::send) returned.
    ///
    /// Use this when a chat program starts again and has no [cursor](super::Envelope::cursor) of the last turn. Call it before
    /// [`history`](Self::history), so that the answer of a turn that ends between the two calls is not missed. A turn has the same
    /// [request](Turn::request) ID in both.
    ///
    /// The call checks the newest 100 messages of the session. If none of their turns has ended, it checks older messages as well,
    /// at most 1,000 in total. Turns of further messages are not returned.
    ///
    /// A message that no worker has enqueued counts as open, unless the turn of a later message has ended: workers enqueue the
    /// messages of a session in order. A later turn that was cancelled before a worker started it does not count. The ledger deletes the
    /// oldest of its finished runs when it has too many. If all runs of a session are deleted, a breadcrumb that the executor wrote
    /// shows that a turn has ended. A turn that was cancelled or skipped wrote none, nor did a turn that succeeded with
    /// [`Response::none()`](crate::Response::none). Such a turn is returned as open if it is the newest one, and [`Turn::next`] waits for
    /// its end until the turn of a later message has ended. Set a time limit for a program that must continue.
    ///
    /// The store retains the events of a turn for an hour. Of a turn that waits longer, older events are omitted, and
    /// [`End`](super::TurnEvent::End) has the whole answer.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`] and [`ClientError::Store`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::client::TurnEvent;
    /// use universal_executor::{Client, MemoryStore, Runtime, Subscription};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// # let store = MemoryStore::default();
    /// # let helper = Agent::new("helper", ScriptedModel::new(["Hello, Ann!", "You are Ann."]))
    /// #     .instructions("You are helpful.")
    /// #     .on(Subscription::trigger("user.message.v1"));
    /// # let running = Runtime::on(&store).agent(helper).start().await?;
    /// let session = Client::new(&store).session("helper", "session-1")?;
    /// session.send("I am Ann.").await?.wait_for_end(Duration::from_secs(30)).await?;
    /// session.send("Who am I?").await?;
    ///
    /// // The chat program is killed, and starts again.
    /// let session = Client::new(&store).session("helper", "session-1")?;
    /// let mut open = session.open_turns().await?;
    /// let mut shown = String::new();
    /// for past in session.history().await? {
    ///     shown += &format!("user: {}\nagent: ", past.message);
    ///     let turn = open.iter_mut().find(|turn| turn.request().id() == past.request);
    ///     match (turn, past.end) {
    ///         (Some(turn), _) => {
    ///             // `TurnEvent::Text` has the pieces of the answer, from the first one.
    ///             while let Some(next) = turn.next().await {
    ///                 if let TurnEvent::End(end) = next?.event {
    ///                     shown += &end.to_string();
    ///                 }
    ///             }
    ///         }
    ///         (None, Some(end)) => shown += &end.to_string(),
    ///         (None, None) => shown += "(no answer)",
    ///     }
    ///     shown += "\n";
    /// }
    /// assert_eq!(shown, "user: I am Ann.\nagent: Hello, Ann!\nuser: Who am I?\nagent: You are Ann.\n");
    /// # running.stop().await?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn open_turns(&self) -> Result<Vec<Turn>, ClientError> {
        let mut query = Query::new(self.message_selector()).limit(PAGE);
        let (mut open, mut checked, mut has_ended) = (Vec::new(), 0, false);
        while !has_ended && checked < MAX_MESSAGES {
            let messages = self.client.search(&query).await?;
            query.before = messages.last().map(|last| last.order_key());
            checked += messages.len();
            has_ended = self.add_open(&messages, &mut open).await?;
            if messages.len() < PAGE {
                break;
            }
        }
        open.reverse();
        Ok(open.into_iter().map(|run| self.turn(run)).collect())
    }

    fn turn(&self, run: RunRef) -> Turn {
        let request = RequestHandle::new(self.client.clone(), run);
        Turn::new(self.client.clone(), request, Cursor::default())
    }

    /// Appends to `open` the run of each chat message in `messages` whose turn has not ended. The messages must be in order, the
    /// newest first. Returns `true` if one of the turns has ended.
    async fn add_open(
        &self,
        messages: &[Arc<Breadcrumb>],
        open: &mut Vec<RunRef>,
    ) -> Result<bool, ClientError> {
        let (mut runs, mut without_row) = (Vec::with_capacity(messages.len()), Vec::new());
        for message in messages {
            let run = self.run_of(message);
            let stage = self.stage(&run).await?;
            if stage.is_none() {
                without_row.push(run.trigger_id.to_string());
            }
            runs.push((run, stage));
        }
        let writers = self.writers(&without_row).await?;
        let mut has_ended = false;
        for (run, known) in runs {
            let stage = match known {
                Some(stage) => stage,
                None if has_ended => Stage::Ended,
                // The ledger has deleted the run, or a worker enqueued it after the first read.
                None if writers.contains(&run) => self.stage(&run).await?.unwrap_or(Stage::Ended),
                None => Stage::Open,
            };
            match stage {
                Stage::Open => open.push(run),
                Stage::Ended => has_ended = true,
                Stage::NotStarted => {}
            }
        }
        Ok(has_ended)
    }

    /// Returns `true` if the turn of any message after `message` in the session has ended.
    pub(super) async fn has_later_ended_turn(
        &self,
        message: &Breadcrumb,
    ) -> Result<bool, ClientError> {
        let mut query = Query::new(self.message_selector()).limit(LATER_MESSAGES);
        query.after = Some(message.updated_at);
        let later = self.client.search(&query).await?;
        self.add_open(&later, &mut Vec::new()).await
    }

    /// Returns the stage of a chat turn, or `None` if the ledger does not have the turn's run.
    async fn stage(&self, run: &RunRef) -> Result<Option<Stage>, ClientError> {
        let found = self.client.run(run).await?;
        Ok(found.as_ref().map(Stage::of))
    }

    /// Returns the runs of the session's executor that answered one of these chat messages with a breadcrumb, such as a response
    /// or a dead letter. Finds the newest breadcrumbs only.
    async fn writers(&self, messages: &[String]) -> Result<Vec<RunRef>, ClientError> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        // Breadcrumbs of a run have the session tag of its trigger. Other executors can answer the same messages.
        let written = Query::new(Selector::any().all_tags([self.tag()])).limit(PAGE);
        let (client, executor) = (&self.client, &self.executor);
        client.writers(executor, messages, written).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TurnEnd, TurnEvent};
    use super::*;
    use crate::client::Client;
    use crate::error::permanent;
    use crate::executor::{Response, UniversalExecutor as _, executor};
    use crate::model::{Event, NewBreadcrumb, Subscription};
    use crate::store::{BreadcrumbStore as _, BreadcrumbStoreExt as _, MemoryLimits, MemoryStore};
    use serde_json::json;
    use std::time::Duration;

    fn session(store: &MemoryStore, id: &str) -> Session {
        Client::new(store).session("helper", id).unwrap()
    }

    /// Executes the run of a turn: answers the message, or fails on the message `fail`.
    async fn execute(store: &MemoryStore, turn: &Turn) {
        let helper = executor("helper")
            .on(Subscription::trigger("user.message.v1"))
            .attempts(1)
            .execute(|cx| async move {
                match cx.trigger().context.text("message") {
                    Some("fail") => Err(permanent("no")),
                    Some(_) | None => {
                        let answer = NewBreadcrumb::new("agent.response.v1");
                        Ok(Response::create(answer.context(json!({"message": "Hi."}))))
                    }
                }
            });
        let helper = helper.bind(store).unwrap();
        let message = store.get(turn.request().run().trigger_id).await.unwrap();
        helper
            .process_event(&Event::created(&message))
            .await
            .unwrap();
    }

    fn ids(turns: &[Turn]) -> Vec<String> {
        turns.iter().map(|turn| turn.request().id()).collect()
    }

    #[tokio::test]
    async fn a_message_without_a_run_is_open_unless_a_later_turn_has_ended() {
        let store = MemoryStore::default();
        let chat = session(&store, "s-1");
        let mut sent = Vec::new();
        for text in ["a", "b", "c"] {
            sent.push(chat.send(text).await.unwrap());
        }

        let before = chat.open_turns().await.unwrap();
        execute(&store, &sent[1]).await;
        let after = chat.open_turns().await.unwrap();

        assert_eq!(ids(&before), ids(&sent));
        assert_eq!(ids(&after), ids(&sent[2..]));
    }

    #[tokio::test]
    async fn a_turn_that_was_cancelled_before_any_worker_does_not_end_the_earlier_turns() {
        let store = MemoryStore::default();
        let chat = session(&store, "s-1");
        let mut sent = Vec::new();
        for text in ["a", "b", "c"] {
            sent.push(chat.send(text).await.unwrap());
        }

        sent[1].cancel().await.unwrap();

        let open = chat.open_turns().await.unwrap();
        let mut expected = ids(&sent);
        expected.remove(1);
        assert_eq!(ids(&open), expected);
        let message = store.get(sent[0].request().run().trigger_id).await.unwrap();
        assert!(!chat.has_later_ended_turn(&message).await.unwrap());
    }

    #[tokio::test]
    async fn a_cancellation_leaves_a_turn_that_ended_before_the_ledger_deleted_its_run() {
        let store = MemoryStore::with_limits(MemoryLimits {
            finished_runs: 1,
            ..MemoryLimits::default()
        });
        let turn = session(&store, "s-1").send("Hi").await.unwrap();
        execute(&store, &turn).await;
        let other = session(&store, "s-2").send("Hi").await.unwrap();
        execute(&store, &other).await;

        turn.cancel().await.unwrap();

        let run = Client::new(&store).run(turn.request().run()).await.unwrap();
        assert!(run.is_none(), "the cancellation enqueued {run:?}");
    }

    #[tokio::test]
    async fn a_turn_that_ended_is_not_open_after_the_ledger_deleted_its_run() {
        let store = MemoryStore::with_limits(MemoryLimits {
            finished_runs: 1,
            ..MemoryLimits::default()
        });
        let mut turns = Vec::new();
        for (id, text) in [("answered", "Hi"), ("failed", "fail"), ("newest", "Hi")] {
            let turn = session(&store, id).send(text).await.unwrap();
            execute(&store, &turn).await;
            turns.push(turn);
        }

        let client = Client::new(&store);
        for (turn, id) in turns.iter().zip(["answered", "failed"]) {
            let run = client.run(turn.request().run()).await.unwrap();
            assert!(run.is_none(), "the ledger still has {run:?}");
            let open = session(&store, id).open_turns().await.unwrap();
            assert!(open.is_empty(), "{id} {open:?}");
        }
    }

    #[tokio::test]
    async fn many_breadcrumbs_of_another_executor_do_not_hide_the_answer() {
        let store = MemoryStore::with_limits(MemoryLimits {
            finished_runs: 1,
            ..MemoryLimits::default()
        });
        let turn = session(&store, "s-1").send("Hi").await.unwrap();
        execute(&store, &turn).await;
        let logger = executor("logger")
            .on(Subscription::trigger("user.message.v1"))
            .execute(|_| async {
                let lines = (0..=PAGE).map(|_| NewBreadcrumb::new("line.v1"));
                Ok(lines.fold(Response::none(), Response::and_create))
            });
        let logger = logger.bind(&store).unwrap();
        let message = store.get(turn.request().run().trigger_id).await.unwrap();
        logger
            .process_event(&Event::created(&message))
            .await
            .unwrap();

        let open = session(&store, "s-1").open_turns().await.unwrap();

        let run = Client::new(&store).run(turn.request().run()).await.unwrap();
        assert!(run.is_none(), "the ledger still has {run:?}");
        assert!(open.is_empty(), "{open:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_without_a_run_ends_after_the_turn_of_a_later_message_has_ended() {
        let store = MemoryStore::default();
        let chat = session(&store, "s-1");
        let mut without_run = chat.send("a").await.unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let later = chat.send("b").await.unwrap();
        execute(&store, &later).await;

        let event = without_run.next().await.unwrap().unwrap().event;

        let TurnEvent::End(TurnEnd::Unanswered { reason, .. }) = event else {
            panic!("{event:?}");
        };
        assert_eq!(reason.as_deref(), Some("run_missing"));
        assert!(without_run.next().await.is_none());
    }

    #[tokio::test]
    async fn a_breadcrumb_from_outside_does_not_end_a_turn() {
        let store = MemoryStore::default();
        let turn = session(&store, "s-1").send("Hi").await.unwrap();
        let run = turn.request().run();
        let creator = json!({
            "id": "helper",
            "trigger_id": run.trigger_id,
            "trigger_version": run.trigger_version,
        });
        let forged = NewBreadcrumb::new("agent.response.v1").tag("session:s-1");
        let forged = forged.context(json!({"message": "no", "creator": creator}));
        store.create(forged).await.unwrap();

        let open = session(&store, "s-1").open_turns().await.unwrap();

        assert_eq!(ids(&open), [turn.request().id()]);
    }

    #[tokio::test]
    async fn the_turns_of_the_newest_messages_are_returned_up_to_the_limit() {
        let store = MemoryStore::default();
        let chat = session(&store, "s-1");
        let mut sent = Vec::new();
        for number in 0..=MAX_MESSAGES {
            sent.push(chat.send(number.to_string()).await.unwrap());
        }

        let open = chat.open_turns().await.unwrap();

        assert_eq!(open.len(), MAX_MESSAGES);
        assert_eq!(ids(&open), ids(&sent[1..]));
    }
}
