//! Questions that runs ask people: lists of the open questions, and writes of the answers.

mod check;
mod error;
mod state;
mod view;

pub use error::AnswerError;
pub use state::QuestionState;
pub use view::{Principal, QuestionKind, QuestionView};

use super::{Client, ClientError};
use crate::clock::wall_micros;
use crate::error::excerpt;
use crate::executor::QUESTION;
use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb, Selector, Timestamp, request_tag};
use crate::request::human::{CLOCK_MARGIN, WrittenAnswer};
use crate::request::{answers_to, human};
use crate::store::{Query, Run, RunState, WrittenBy};
use check::{check, refused_answer_error};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The questions to people that the agents, flows and chats of one store have asked. Created by [`Client::questions`].
///
/// The service authenticates people and passes a [`Principal`]. The answer of a run never counts as the answer of a person.
///
/// A question is either the approval of a tool call or a question of a tool or flow with a free
/// answer. Its run is suspended until the answer, so it occupies no worker and survives a restart.
/// The run continues with the answer on any worker.
///
/// | to | use |
/// |---|---|
/// | list questions | [`open`](Self::open), [`open_for`](Self::open_for) |
/// | approve a tool call | [`approve`](Self::approve), [`approve_with`](Self::approve_with) |
/// | refuse a tool call | [`reject`](Self::reject) |
/// | answer another question | [`answer`](Self::answer) |
/// | show one question | [`get`](Self::get), [`state`](Self::state) |
///
/// Each method reads the store; nothing is cached. The store decides about the time of an answer by
/// its own clock.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::agent::{Agent, ScriptedModel};
/// use universal_executor::client::{Principal, TurnEvent};
/// use universal_executor::tool::json_tool;
/// use universal_executor::{Client, MemoryStore, Runtime, Subscription};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let refund = json_tool("refund", "Refunds an order.", json!({}), |_, _| async {
///     Ok(json!("refunded"))
/// });
/// let model = ScriptedModel::calling("refund", json!({"order": 7}), "Order 7 is refunded.");
/// let helper = Agent::new("helper", model)
///     .on(Subscription::trigger("user.message.v1"))
///     .tool(refund)
///     .needs_approval(["refund"]);
/// let store = MemoryStore::default();
/// let running = Runtime::on(&store).agent(helper).start().await?;
/// let client = Client::new(&store);
///
/// let mut turn = client.session("helper", "session-1")?.send("Refund order 7.").await?;
/// while let Some(next) = turn.next().await {
///     match next?.event {
///         TurnEvent::Question(question) => {
///             assert_eq!(question.tool.as_deref(), Some("refund"));
///             client.questions().approve(&question.id, &Principal::new("ann")).await?;
///         }
///         TurnEvent::End(end) => assert_eq!(end.text(), Some("Order 7 is refunded.")),
///         _ => {}
///     }
/// }
/// assert!(client.questions().open().await?.is_empty());
/// running.stop().await?;
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Questions {
    client: Client,
}

/// Maximum number of breadcrumbs in a search for questions or answers. The search returns the newest breadcrumbs.
const MAX_BREADCRUMBS: usize = 1_000;

impl Questions {
    pub(super) const fn new(client: Client) -> Self {
        Self { client }
    }

    /// Lists the questions to people that are still open, among the newest 1,000 questions, the newest first.
    ///
    /// Use this for an overview of all people. [`open_for`](Self::open_for) lists the questions of
    /// one person. The call makes one search, and further reads for each question that has not
    /// expired.
    ///
    /// # Errors
    /// [`ClientError`] if the store fails.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{Client, MemoryStore};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let client = Client::new(&MemoryStore::default());
    /// for question in client.questions().open().await? {
    ///     println!("{}: {question}", question.id);
    /// }
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn open(&self) -> Result<Vec<QuestionView>, ClientError> {
        let query = Query::new(Selector::schema(human::REQUEST)).limit(MAX_BREADCRUMBS);
        let found = self.client.search(&query).await?;
        let mut open = Vec::new();
        for question in self.verified(&found).await? {
            // Most old questions need no call.
            let expired = question.terms.expired(now(), CLOCK_MARGIN);
            if expired.is_none() && self.is_open(&question).await? {
                open.push(question);
            }
        }
        Ok(open)
    }

    /// Returns the questions in `found` whose stated author is correct: the store recorded the same executor as the writer.
    /// Anyone can write a copy with other arguments. If the store does not record writers, returns all questions.
    pub(super) async fn verified(
        &self,
        found: &[Arc<Breadcrumb>],
    ) -> Result<Vec<QuestionView>, ClientError> {
        let questions = found
            .iter()
            .filter_map(|breadcrumb| QuestionView::of(breadcrumb));
        let questions: Vec<QuestionView> = questions.collect();
        if questions.is_empty() || !self.client.store.capabilities().lineage {
            return Ok(questions);
        }
        let versions: Vec<_> = questions
            .iter()
            .map(|question| (question.breadcrumb, 1))
            .collect();
        let writers = self.client.written_by(&versions).await?;
        let written = questions.into_iter().zip(writers);
        let written = written.filter(|(question, writer)| {
            let executor = Arc::clone(&question.run.executor);
            *writer == WrittenBy::Executor(executor)
        });
        Ok(written.map(|(question, _)| question).collect())
    }

    /// Returns `true` if a question to a person is open. The question is open while its run waits for the answer, its deadline has not
    /// passed, and no accepted answer exists.
    pub(super) async fn is_open(&self, question: &QuestionView) -> Result<bool, ClientError> {
        let run = self.client.run(&question.run).await?;
        let is_closed = run.as_ref().is_some_and(|run| is_closed(run, question));
        if is_closed || passed_deadline(question, run.as_ref()).is_some() {
            return Ok(false);
        }
        Ok(self.accepted_answer(question).await?.is_none())
    }

    /// Lists the open questions that the given person may answer, the newest first. The search covers the newest 1,000 questions
    /// to all people.
    ///
    /// Use this for the page of a signed-in person. A question without approvers is listed for
    /// everyone.
    ///
    /// # Errors
    /// [`ClientError`] if the store fails.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::client::{Client, ClientError, Principal};
    ///
    /// /// Returns the lines of the page on which Ann decides.
    /// async fn page(client: &Client) -> Result<Vec<String>, ClientError> {
    ///     let ann = Principal::new("ann").with_role("finance");
    ///     let open = client.questions().open_for(&ann).await?;
    ///     Ok(open.iter().map(ToString::to_string).collect())
    /// }
    /// ```
    pub async fn open_for(&self, person: &Principal) -> Result<Vec<QuestionView>, ClientError> {
        let mut open = self.open().await?;
        open.retain(|question| question.permits(person));
        Ok(open)
    }

    /// Returns a question to a person by its ID, whether or not it is open.
    ///
    /// Use this for the page of one question. If an executor asked several questions with this ID,
    /// the newest open one is returned, otherwise the newest one.
    ///
    /// # Errors
    /// [`AnswerError::Unknown`], [`AnswerError::Ambiguous`] and [`AnswerError::Client`].
    pub async fn get(&self, id: &str) -> Result<QuestionView, AnswerError> {
        const PAGE: usize = 100;
        let selector = Selector::schema(human::REQUEST).all_tags([request_tag(id)]);
        let mut query = Query::new(selector).limit(PAGE);
        let (mut open, mut closed): (Option<QuestionView>, Option<QuestionView>) = (None, None);
        for _ in 0..MAX_BREADCRUMBS / PAGE {
            let found = self.client.search(&query).await?;
            for question in self.verified(&found).await? {
                if question.id != id {
                    continue;
                }
                let known = open.as_ref().or(closed.as_ref());
                if known.is_some_and(|known| known.run.executor != question.run.executor) {
                    return Err(AnswerError::Ambiguous { id: id.to_owned() });
                }
                if open.is_none() {
                    match self.is_open(&question).await? {
                        true => open = Some(question),
                        false => closed = closed.or(Some(question)),
                    }
                }
            }
            query.before = found.last().map(|last| last.order_key());
            if found.len() < PAGE {
                break;
            }
        }
        let found = open.or(closed);
        found.ok_or_else(|| AnswerError::Unknown { id: id.to_owned() })
    }

    /// Returns the state of a question to a person: open, answered and by whom, expired, or closed.
    ///
    /// ```
    /// use universal_executor::client::{AnswerError, Client, QuestionState};
    ///
    /// /// Describes a question for a page.
    /// async fn describe(client: &Client, question: &str) -> Result<String, AnswerError> {
    ///     Ok(match client.questions().state(question).await? {
    ///         QuestionState::Open => "waits for an answer".to_owned(),
    ///         QuestionState::Answered { by: Some(by), at, approved: Some(true) } => format!("{by} approved at {at}"),
    ///         QuestionState::Answered { at, .. } => format!("answered at {at}"),
    ///         QuestionState::Expired { at } => format!("expired at {at}"),
    ///         QuestionState::Closed { run } => format!("closed: the run is {run}"),
    ///         _ => "unknown".to_owned(),
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn state(&self, id: &str) -> Result<QuestionState, AnswerError> {
        let question = self.get(id).await?;
        if let Some(answer) = self.accepted_answer(&question).await? {
            let is_approval = question.kind == QuestionKind::Approval;
            return Ok(QuestionState::answered(&answer, is_approval));
        }
        let run = self.client.run(&question.run).await?;
        let expired = passed_deadline(&question, run.as_ref());
        let closed = run.filter(|run| is_closed(run, &question));
        let closed = closed.map(|run| (run.state, run.since));
        Ok(QuestionState::unanswered(closed, expired))
    }

    /// Approves the tool call in a question. The run then makes the call with exactly the arguments that the question shows.
    ///
    /// The approval holds for these arguments only. If the tool or the rules change before the
    /// call, the run asks again, with a new ID.
    ///
    /// # Errors
    /// [`AnswerError`] if the answer has no effect. Repeating the same answer of the same person is not an error.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::client::{AnswerError, Client, ClientError, Principal};
    ///
    /// /// Returns the text for the person who clicked on "approve".
    /// async fn approve(client: &Client, id: &str, by: &Principal) -> Result<String, ClientError> {
    ///     Ok(match client.questions().approve(id, by).await {
    ///         Ok(()) => "approved".to_owned(),
    ///         Err(AnswerError::Client(error)) => return Err(error),
    ///         Err(AnswerError::NotOpen { by: Some(by), .. }) => format!("answered by {by}"),
    ///         Err(AnswerError::Expired { at, .. }) => format!("the question expired at {at}"),
    ///         Err(error) => error.to_string(),
    ///     })
    /// }
    /// ```
    ///
    /// # Cancel safety
    /// If this future is dropped, the answer may have been written. A repeated call is
    /// safe.
    pub async fn approve(&self, id: &str, person: &Principal) -> Result<(), AnswerError> {
        let question = self.get(id).await?;
        let answer = json!({"approved": true});
        self.write(&question, QuestionKind::Approval, person, answer)
            .await
    }

    /// Approves a tool call with other arguments than those in the question. [`QuestionView::arguments`] has the arguments of the model.
    ///
    /// The arguments must fit [`QuestionView::arguments_schema`] and have at most 64 KiB. The person must be permitted by each rule of
    /// the tool whose condition holds for the changed arguments, and before the rule's time since the question is over; a condition
    /// in code counts as one that holds. The arguments in the question, sent back unchanged, are no change. The run checks the
    /// arguments like those of any other call: guardrails check them, and if a guardrail replaces them, the run asks again. The model
    /// receives the result together with the changed arguments.
    ///
    /// ```
    /// use serde_json::json;
    /// use universal_executor::client::{AnswerError, Client, Principal};
    ///
    /// /// Pays at most 100.
    /// async fn pay_less(client: &Client, question: &str) -> Result<(), AnswerError> {
    ///     let ann = Principal::new("ann").with_role("finance");
    ///     client.questions().approve_with(question, &ann, json!({"amount": 100})).await
    /// }
    /// ```
    ///
    /// # Errors
    /// [`AnswerError`] if the answer has no effect, such as [`AnswerError::Invalid`] and [`AnswerError::NotAllowed`] of the changed
    /// arguments, and [`AnswerError::NotChangeable`]. Repeating the same answer of the same person is not an error.
    pub async fn approve_with(
        &self,
        id: &str,
        person: &Principal,
        arguments: impl Into<Value>,
    ) -> Result<(), AnswerError> {
        let question = self.get(id).await?;
        let answer = json!({"approved": true, "arguments": arguments.into()});
        self.write(&question, QuestionKind::Approval, person, answer)
            .await
    }

    /// Refuses the tool call that a question asks about. The model sees the reason as the result of the call.
    ///
    /// The run does not fail: the model receives the error `rejected` with the reason, and
    /// continues. The reason can be empty.
    ///
    /// # Errors
    /// As [`approve`](Self::approve).
    ///
    /// # Examples
    /// ```
    /// use universal_executor::client::{AnswerError, Client, Principal};
    ///
    /// async fn reject(client: &Client, question: &str) -> Result<(), AnswerError> {
    ///     let ann = Principal::new("ann").with_role("finance");
    ///     client.questions().reject(question, &ann, "The order was delivered.").await
    /// }
    /// ```
    pub async fn reject(
        &self,
        id: &str,
        person: &Principal,
        reason: impl Into<String>,
    ) -> Result<(), AnswerError> {
        let question = self.get(id).await?;
        let answer = json!({"approved": false, "comment": reason.into()});
        self.write(&question, QuestionKind::Approval, person, answer)
            .await
    }

    /// Answers a question to a person, other than a question about the approval of a tool call.
    ///
    /// The answer is any JSON value, such as one of [`QuestionView::options`]. If the question has
    /// a [schema](QuestionView::schema), the answer must match it (checked with the feature
    /// `validate`).
    ///
    /// # Errors
    /// As [`approve`](Self::approve).
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::client::TurnEvent;
    /// use universal_executor::tool::{ask_human, json_tool};
    /// use universal_executor::{Client, MemoryStore, Runtime, Subscription};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let name = json_tool("name", "Asks for the name.", json!({}), |_, _| async {
    ///     Err(ask_human("Who are you?"))
    /// });
    /// let helper = Agent::new("helper", ScriptedModel::calling("name", json!({}), "Hello, Ann!"))
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .tool(name);
    /// let store = MemoryStore::default();
    /// let running = Runtime::on(&store).agent(helper).start().await?;
    /// let client = Client::new(&store);
    ///
    /// let mut turn = client.session("helper", "session-1")?.send("Hi!").await?;
    /// while let Some(next) = turn.next().await {
    ///     match next?.event {
    ///         TurnEvent::Question(question) => {
    ///             assert_eq!(question.question, "Who are you?");
    ///             client.questions().answer(&question.id, &"ann".into(), "Ann").await?;
    ///         }
    ///         TurnEvent::End(end) => assert_eq!(end.text(), Some("Hello, Ann!")),
    ///         _ => {}
    ///     }
    /// }
    /// running.stop().await?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn answer(
        &self,
        id: &str,
        person: &Principal,
        answer: impl Into<Value>,
    ) -> Result<(), AnswerError> {
        let question = self.get(id).await?;
        let answer = json!({"answer": answer.into()});
        self.write(&question, QuestionKind::Question, person, answer)
            .await
    }

    /// Writes a person's answer to a question. Writes nothing if the question is closed or expired, or if the person may not answer it.
    async fn write(
        &self,
        question: &QuestionView,
        kind: QuestionKind,
        person: &Principal,
        answer: Value,
    ) -> Result<(), AnswerError> {
        let id = question.id.clone();
        check(question, kind, person, &answer)?;
        let response = response(question, person, answer);
        let store = &*self.client.store;
        if let Some(close_reason) = self.close_reason(question).await? {
            let accepted_answer = close_reason.answer.as_ref();
            return match accepted_answer
                .is_some_and(|accepted_answer| human::is_same(store, accepted_answer, &response))
            {
                true => Ok(()),
                false => Err(close_reason.error(id)),
            };
        }
        let terms = &question.terms;
        // Before the end of the margin, the clock of the store decides.
        if let Some(at) = terms.expired(now(), CLOCK_MARGIN) {
            return Err(AnswerError::Expired { id, at });
        }
        // The run checks the same by the clock of the store, and by the writer that the store has noted.
        let counts = |found: &Breadcrumb| terms.counts_in_time(found, Duration::ZERO);
        let written = human::write_once(store, terms, response, counts).await;
        let written = written.map_err(|error| {
            let operation = format!("answer question {:?}", excerpt(&id, 80));
            ClientError::of_store(operation, error)
        })?;
        match written {
            WrittenAnswer::Other(earlier) => Err(CloseReason::answered(earlier).error(id)),
            WrittenAnswer::Own(written) if !counts(&written) => {
                Err(refused_answer_error(question, &written))
            }
            WrittenAnswer::Own(_) => Ok(()),
        }
    }

    /// Returns the reason why a question to a person is closed: its accepted answer, or the state of the run that asked the
    /// question. `None` if the question is open or expired.
    async fn close_reason(
        &self,
        question: &QuestionView,
    ) -> Result<Option<CloseReason>, ClientError> {
        if let Some(answer) = self.accepted_answer(question).await? {
            return Ok(Some(CloseReason::answered(answer)));
        }
        let run = self.client.run(&question.run).await?;
        let closed = run.filter(|run| is_closed(run, question));
        Ok(closed.map(|run| CloseReason {
            answer: None,
            run: Some(run.state),
        }))
    }

    /// Returns the accepted answer to a question: the first answer that meets the question's conditions, such as its schema and
    /// deadline.
    async fn accepted_answer(
        &self,
        question: &QuestionView,
    ) -> Result<Option<Arc<Breadcrumb>>, ClientError> {
        let selector = answers_to(&question.id, human::RESPONSE);
        let query = Query::new(selector).limit(MAX_BREADCRUMBS);
        let answers = self.client.search(&query).await?;
        let terms = &question.terms;
        let counts = |found: &&Arc<Breadcrumb>| terms.counts_in_time(found, Duration::ZERO);
        Ok(answers.iter().rev().find(counts).cloned())
    }
}

/// Returns `true` if a run no longer waits for the answer to a question.
fn is_closed(run: &Run, question: &QuestionView) -> bool {
    run.state.is_over() || !waits_for(run, question)
}

/// Returns the deadline of a question if the deadline has passed, or `None` otherwise. The current time is the store's time as estimated
/// from the run, or the time of this process without a run.
///
/// An answer at the deadline counts until a worker has claimed the run, which is due at the deadline.
fn passed_deadline(question: &QuestionView, run: Option<&Run>) -> Option<Timestamp> {
    let end = question.terms.expires_at?;
    let now = run.map_or_else(now, store_time);
    let is_unclaimed = match run.map(|run| run.state) {
        None | Some(RunState::Ready | RunState::Suspended) => true,
        Some(
            RunState::Running
            | RunState::Done
            | RunState::Skipped
            | RunState::Superseded
            | RunState::Failed,
        ) => false,
    };
    let is_over = if is_unclaimed { end < now } else { end <= now };
    is_over.then_some(end)
}

/// Estimates the current time of the store's clock from the timestamps in a run's ledger record. For a suspended run that is not
/// due, the result is before the run's due time. For a run without a due time, the result is the later of the run's last change
/// of state and the clock of this process.
fn store_time(run: &Run) -> Timestamp {
    match (run.due, run.due_for) {
        (Some(due), Some(for_time)) => due + for_time,
        (Some(due), None) if run.state == RunState::Suspended => due.just_before(),
        (Some(_), None) | (None, Some(_) | None) => run.since.max(now()),
    }
}

/// Returns `false` if the run is suspended and an answer to the question would not wake the run, and `true` otherwise.
fn waits_for(run: &Run, question: &QuestionView) -> bool {
    let answer = NewBreadcrumb::new(human::RESPONSE).tag(request_tag(&question.id));
    let answer = answer.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
    let wakes = run.wake.as_ref().map(|wake| wake.selectors.as_slice());
    let mut selectors = wakes.unwrap_or_default().iter();
    run.state != RunState::Suspended || selectors.any(|selector| selector.matches(&answer))
}

/// Reason why a question to a person is closed: an accepted answer, or the state of the run that asked the question.
struct CloseReason {
    answer: Option<Arc<Breadcrumb>>,
    run: Option<RunState>,
}

impl CloseReason {
    const fn answered(answer: Arc<Breadcrumb>) -> Self {
        Self {
            answer: Some(answer),
            run: None,
        }
    }

    fn error(self, id: String) -> AnswerError {
        let by = self
            .answer
            .as_ref()
            .and_then(|answer| answer.created_by.clone());
        AnswerError::NotOpen {
            id,
            by,
            at: self.answer.map(|answer| answer.created_at),
            run: self.run,
        }
    }
}

/// Returns the current time by the clock of this process.
fn now() -> Timestamp {
    Timestamp::from_micros(wall_micros())
}

/// Creates the breadcrumb that stores a person's answer to a question.
fn response(question: &QuestionView, person: &Principal, answer: Value) -> NewBreadcrumb {
    let mut context = answer;
    if let Value::Object(fields) = &mut context {
        // Another run can write a question with the same request ID.
        let breadcrumb = question.breadcrumb.to_string();
        fields.insert(QUESTION.to_owned(), breadcrumb.into());
        fields.insert("principal".to_owned(), json!(person));
        if let Some(digest) = &question.terms.digest {
            fields.insert("digest".to_owned(), digest.as_str().into());
        }
    }
    human::response(&question.id, &person.name, context)
}
