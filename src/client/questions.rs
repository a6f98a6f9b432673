//! Questions to people: which are open, and their answers.

use super::{Client, ClientError, creator_of};
use crate::agent::human;
use crate::clock::wall_micros;
use crate::model::{Breadcrumb, BreadcrumbId, Json, NewBreadcrumb, Selector, Timestamp};
use crate::store::{
    BreadcrumbStoreExt as _, NewRequest, Query, Requested, Run, RunRef, RunState, StoreError,
    WrittenBy,
};
use crate::tool::Checker;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A person with name and roles, as the authentication of the service knows the person.
///
/// ```
/// use universal_executor::client::Principal;
///
/// let ann = Principal::new("ann").with_role("finance");
/// assert!(ann.has_role("finance"));
/// ```
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Principal {
    /// The name, which the answer has as its writer.
    pub name: String,
    /// The roles.
    pub roles: Vec<String>,
}

impl Principal {
    /// Creates a person without roles.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            roles: Vec::new(),
        }
    }

    /// Adds a role.
    #[must_use]
    pub fn with_role(mut self, role: impl Into<String>) -> Self {
        self.roles.push(role.into());
        self
    }

    /// Returns `true` if the person has a role.
    #[must_use]
    pub fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|own| own == role)
    }

    /// Returns `true` if a list of names and roles permits the person. An empty list permits everyone.
    fn is_in(&self, allowed: &[String]) -> bool {
        let is_named = |entry: &String| match entry.strip_prefix(human::ROLE) {
            Some(role) => self.has_role(role),
            None => *entry == self.name,
        };
        allowed.is_empty() || allowed.iter().any(is_named)
    }
}

impl From<&str> for Principal {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// The kind of a question.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QuestionKind {
    /// A tool call that needs an approval: [`Questions::approve`] and [`Questions::deny`] answer it.
    Approval,
    /// Any other question: [`Questions::answer`] answers it.
    Question,
}

/// A question to a person, as plain data. It can be printed and serialized.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QuestionView {
    /// The ID of the question, the same everywhere.
    pub id: String,
    /// The kind of the question.
    pub kind: QuestionKind,
    /// The text of the question.
    pub question: String,
    /// The tool to call.
    pub tool: Option<String>,
    /// The description of the tool.
    pub description: Option<String>,
    /// The arguments of the call, as the run will make it. Characters that reorder text are shown as escapes.
    pub arguments: Option<Json>,
    /// The answers to choose from; any answer if empty.
    pub options: Vec<String>,
    /// The names of the people with the right to answer, and roles as `role:<name>`; everyone if empty.
    pub allowed: Vec<String>,
    /// The agent or flow that asks.
    pub asked_by: String,
    /// The time of the question.
    pub asked_at: Timestamp,
    /// The time after which no answer counts.
    pub expires_at: Option<Timestamp>,
    /// The JSON Schema of the answer. Checked with the feature `validate`.
    pub schema: Option<Json>,
    /// The breadcrumb of the question.
    pub breadcrumb: BreadcrumbId,
    /// The digest of the call, which binds an approval to it.
    #[serde(skip)]
    digest: Option<String>,
    /// The run that asks.
    #[serde(skip)]
    run: RunRef,
}

impl QuestionView {
    /// Reads a question of a run. `None` if the breadcrumb is not one: an approval is bound to a call by its digest.
    pub(super) fn of(breadcrumb: &Breadcrumb) -> Option<Self> {
        let context = &breadcrumb.context;
        let text = |field: &str| context.get(field).and_then(Value::as_str);
        let owned = |field: &str| text(field).map(str::to_owned);
        let list = |field: &str| {
            let items = context.get(field).and_then(Value::as_array);
            let items = items.into_iter().flatten().filter_map(Value::as_str);
            items.map(str::to_owned).collect()
        };
        let kind = match text("kind")? {
            "approval" => QuestionKind::Approval,
            _ => QuestionKind::Question,
        };
        let digest = owned("digest").filter(|_| kind == QuestionKind::Approval);
        if kind == QuestionKind::Approval && digest.is_none() {
            return None;
        }
        Some(Self {
            id: owned("requestId")?,
            kind,
            question: owned("question").unwrap_or_default(),
            tool: owned("tool"),
            description: owned("description").filter(|text| !text.is_empty()),
            arguments: context.get("arguments").cloned().map(Json::from),
            options: list("options"),
            allowed: list("of"),
            asked_by: owned("requestedBy").unwrap_or_default(),
            asked_at: breadcrumb.created_at,
            expires_at: text("expires_at").and_then(|time| time.parse().ok()),
            schema: context.get("schema").cloned().map(Json::from),
            breadcrumb: breadcrumb.id,
            digest,
            run: creator_of(breadcrumb)?,
        })
    }
}

impl fmt::Display for QuestionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} asks: {}", self.asked_by, self.question)?;
        if let (Some(tool), Some(arguments)) = (&self.tool, &self.arguments) {
            write!(f, " {tool}({arguments})")?;
        }
        if !self.options.is_empty() {
            write!(f, " [{}]", self.options.join(", "))?;
        }
        Ok(())
    }
}

/// An answer has no effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// No question has this ID.
    #[error("no question has the ID {id:?}")]
    Unknown {
        /// The ID.
        id: String,
    },
    /// The question was answered before, or its run does not wait any more.
    #[error("question {id:?} is not open: {}", closed(by.as_deref(), *at, *run))]
    NotOpen {
        /// The ID of the question.
        id: String,
        /// The name of the person with the answer that counts.
        by: Option<String>,
        /// The time of the answer.
        at: Option<Timestamp>,
        /// The state of the run that asked, if it has ended.
        run: Option<RunState>,
    },
    /// The person may not answer.
    #[error("{person:?} may not answer question {id:?}; allowed: {}", allowed.join(", "))]
    NotAllowed {
        /// The ID of the question.
        id: String,
        /// The name of the person.
        person: String,
        /// The people and roles that may answer.
        allowed: Vec<String>,
    },
    /// The time for an answer is over.
    #[error("question {id:?} expired at {at}")]
    Expired {
        /// The ID of the question.
        id: String,
        /// The end of the time.
        at: Timestamp,
    },
    /// The answer does not fit the schema of the question.
    #[error("the answer to question {id:?} does not fit its schema: {problem}")]
    Invalid {
        /// The ID of the question.
        id: String,
        /// The problem, with its path in the answer.
        problem: String,
    },
    /// An approval got an answer, or a question got an approval.
    #[error("question {id:?} is answered by {expected}")]
    WrongKind {
        /// The ID of the question.
        id: String,
        /// The methods that answer the question.
        expected: &'static str,
    },
    /// The question cannot be read, or the answer cannot be written.
    #[error("cannot answer a question")]
    Client(#[from] ClientError),
}

fn closed(by: Option<&str>, at: Option<Timestamp>, run: Option<RunState>) -> String {
    match (by, at, run) {
        (_, _, Some(RunState::Suspended)) => "the run waits for something else".to_owned(),
        (Some(by), Some(at), _) => format!("{by} answered it at {at}"),
        (_, Some(at), _) => format!("it was answered at {at}"),
        (_, None, Some(state)) => format!("the run that asked is {state}"),
        (_, None, None) => "it was answered".to_owned(),
    }
}

impl AnswerError {
    /// Returns when a retry can succeed.
    #[must_use]
    pub fn retry(&self) -> crate::error::Retry {
        match self {
            Self::Unknown { .. }
            | Self::NotOpen { .. }
            | Self::NotAllowed { .. }
            | Self::Expired { .. }
            | Self::Invalid { .. }
            | Self::WrongKind { .. } => crate::error::Retry::Never,
            Self::Client(source) => source.retry(),
        }
    }

    /// Returns the code of the error, for logs and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "unknown_question",
            Self::NotOpen { .. } => "not_open",
            Self::NotAllowed { .. } => "not_allowed",
            Self::Expired { .. } => "expired",
            Self::Invalid { .. } => "invalid_answer",
            Self::WrongKind { .. } => "wrong_kind",
            Self::Client(source) => source.code(),
        }
    }
}

impl From<StoreError> for AnswerError {
    fn from(error: StoreError) -> Self {
        Self::Client(error.into())
    }
}

/// The questions to people of agents, flows and chats on one store. Created by [`Client::questions`].
///
/// The service authenticates people and passes a [`Principal`]. The answer of a run never counts as the answer of a person.
#[derive(Clone, Debug)]
pub struct Questions {
    client: Client,
}

/// Maximum number of questions that are searched for open ones: the newest.
const MOST: usize = 1_000;

/// The name in the keys of answers. Only one answer to a question is written.
const ANSWERS: &str = "universal-executor:answers";

impl Questions {
    pub(super) const fn new(client: Client) -> Self {
        Self { client }
    }

    /// Lists the open questions, the newest first, of the newest 1,000 questions.
    ///
    /// # Errors
    /// [`ClientError`] if the store fails.
    pub async fn open(&self) -> Result<Vec<QuestionView>, ClientError> {
        let query = Query::new(Selector::schema(human::REQUEST)).limit(MOST);
        let found = self.client.store.search(&query).await?;
        let mut open = Vec::new();
        for question in self.genuine(&found).await? {
            if self.is_open(&question).await? {
                open.push(question);
            }
        }
        Ok(open)
    }

    /// Returns the questions that a run has written, as the store recorded it: anyone can write a copy with other arguments.
    pub(super) async fn genuine(
        &self,
        found: &[Arc<Breadcrumb>],
    ) -> Result<Vec<QuestionView>, ClientError> {
        let first = found.iter().filter(|found| found.version == 1);
        let questions: Vec<QuestionView> = first.filter_map(|one| QuestionView::of(one)).collect();
        if questions.is_empty() || !self.client.store.capabilities().lineage {
            return Ok(questions);
        }
        let versions: Vec<_> = questions.iter().map(|one| (one.breadcrumb, 1)).collect();
        let writers = self.client.ledger()?.written_by(&versions).await?;
        let written = questions.into_iter().zip(writers);
        let written = written.filter(|(question, writer)| {
            let executor = Arc::clone(&question.run.executor);
            *writer == WrittenBy::Executor(executor)
        });
        Ok(written.map(|(question, _)| question).collect())
    }

    /// Returns `true` if an answer to a question would count.
    pub(super) async fn is_open(&self, question: &QuestionView) -> Result<bool, ClientError> {
        let is_expired = question
            .expires_at
            .is_some_and(|end| is_over(end, Duration::ZERO));
        Ok(!is_expired && self.closing(question).await?.is_none())
    }

    /// Lists the open questions that a person may answer, as [`open`](Self::open).
    ///
    /// # Errors
    /// [`ClientError`] if the store fails.
    pub async fn open_for(&self, person: &Principal) -> Result<Vec<QuestionView>, ClientError> {
        let mut open = self.open().await?;
        open.retain(|question| person.is_in(&question.allowed));
        Ok(open)
    }

    /// Returns a question by its ID, whether or not it is open.
    ///
    /// # Errors
    /// [`AnswerError::Unknown`] and [`AnswerError::Client`].
    pub async fn get(&self, id: &str) -> Result<QuestionView, AnswerError> {
        const PAGE: usize = 100;
        let selector = Selector::schema(human::REQUEST).all_tags([tag(id)]);
        let mut query = Query::new(selector).limit(PAGE);
        let mut closed = None;
        for _ in 0..MOST / PAGE {
            let found = self.client.store.search(&query).await?;
            for question in self.genuine(&found).await? {
                if question.id != id {
                    continue;
                }
                if self.is_open(&question).await? {
                    return Ok(question);
                }
                closed.get_or_insert(question);
            }
            query.before = found.last().map(|last| last.order_key());
            if found.len() < PAGE {
                break;
            }
        }
        closed.ok_or_else(|| AnswerError::Unknown { id: id.to_owned() })
    }

    /// Lets a run make the call that it asks about, exactly as the question shows it.
    ///
    /// # Errors
    /// [`AnswerError`] if the answer has no effect. The same answer of the same person again is no error.
    pub async fn approve(&self, id: &str, person: &Principal) -> Result<(), AnswerError> {
        let question = self.get(id).await?;
        let answer = json!({"approved": true});
        self.write(&question, QuestionKind::Approval, person, answer)
            .await
    }

    /// Refuses a call. The model sees the reason as the result of the call.
    ///
    /// # Errors
    /// As [`approve`](Self::approve).
    pub async fn deny(
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

    /// Answers a question that is not an approval.
    ///
    /// # Errors
    /// As [`approve`](Self::approve).
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

    /// Writes an answer, unless it has no effect.
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
        if let Some(closing) = self.closing(question).await? {
            let given = closing.answer.as_ref();
            return match given.is_some_and(|given| says(given, &response)) {
                true => Ok(()),
                false => Err(closing.error(id)),
            };
        }
        if let Some(at) = question.expires_at.filter(|end| is_over(*end, MARGIN)) {
            return Err(AnswerError::Expired { id, at });
        }
        let written = self.write_once(question, response).await?;
        match written {
            // The run checks the same by the clock of the store, and by the writer that the store has noted.
            Some(written) if !answers_it(question, &written) => {
                Err(refused(question, person, &written))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Writes an answer. Two people may answer at once, so it has a key. Returns `None` if it was written before.
    async fn write_once(
        &self,
        question: &QuestionView,
        response: NewBreadcrumb,
    ) -> Result<Option<Arc<Breadcrumb>>, AnswerError> {
        if !self.client.store.capabilities().keyed_requests {
            return Ok(Some(self.client.store.create(response).await?));
        }
        let key = human::hash(&[&question.id, &question.breadcrumb.to_string()]);
        let request = NewRequest::new(ANSWERS, key, response);
        match self.client.ledger()?.request(request).await {
            Ok(Requested::Created { breadcrumb }) => Ok(Some(breadcrumb)),
            Ok(Requested::Existing { .. }) => Ok(None),
            Err(StoreError::KeyConflict { id: earlier, .. }) => {
                let earlier = self.client.store.get(earlier).await?;
                Err(Closing::answered(earlier).error(question.id.clone()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the answer or the state of the run that closes a question. `None` if it is open or expired.
    async fn closing(&self, question: &QuestionView) -> Result<Option<Closing>, ClientError> {
        let selector = Selector::schema(human::RESPONSE).all_tags([tag(&question.id)]);
        let query = Query::new(selector).limit(MOST);
        let answers = self.client.store.search(&query).await?;
        let is_answer = |found: &&Arc<Breadcrumb>| answers_it(question, found);
        if let Some(first) = answers.iter().rev().find(is_answer) {
            return Ok(Some(Closing::answered(Arc::clone(first))));
        }
        let run = self.client.run(&question.run).await?;
        let is_closed = |run: &Run| run.state.is_over() || !waits_for(run, question);
        Ok(run.filter(is_closed).map(|run| Closing {
            answer: None,
            run: Some(run.state),
        }))
    }
}

/// Checks an answer by the question alone.
fn check(
    question: &QuestionView,
    kind: QuestionKind,
    person: &Principal,
    answer: &Value,
) -> Result<(), AnswerError> {
    let id = question.id.clone();
    if question.kind != kind {
        let expected = match question.kind {
            QuestionKind::Approval => "approve and deny",
            QuestionKind::Question => "answer",
        };
        return Err(AnswerError::WrongKind { id, expected });
    }
    if !person.is_in(&question.allowed) {
        return Err(AnswerError::NotAllowed {
            id,
            person: person.name.clone(),
            allowed: question.allowed.clone(),
        });
    }
    fits(question, answer).map_err(|problem| AnswerError::Invalid { id, problem })
}

/// Checks an answer by the schema of its question.
fn fits(question: &QuestionView, answer: &Value) -> Result<(), String> {
    match (&question.schema, answer.get("answer")) {
        (Some(schema), Some(answer)) => Checker::compile(schema)?.check(answer),
        (Some(_) | None, _) => Ok(()),
    }
}

/// The error of an answer that was written and does not count.
fn refused(question: &QuestionView, person: &Principal, written: &Breadcrumb) -> AnswerError {
    let id = question.id.clone();
    match question.expires_at.filter(|end| written.updated_at > *end) {
        Some(at) => AnswerError::Expired { id, at },
        None => AnswerError::NotAllowed {
            id,
            person: person.name.clone(),
            allowed: question.allowed.clone(),
        },
    }
}

/// Returns `true` unless a suspended run waits for something else.
fn waits_for(run: &Run, question: &QuestionView) -> bool {
    let answer = NewBreadcrumb::new(human::RESPONSE).tag(tag(&question.id));
    let answer = answer.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
    let wakes = run.wake.as_ref().map(|wake| wake.selectors.as_slice());
    let mut selectors = wakes.unwrap_or_default().iter();
    run.state != RunState::Suspended || selectors.any(|selector| selector.matches(&answer))
}

/// The reason for which a question is closed: an answer, or the end of its run.
struct Closing {
    answer: Option<Arc<Breadcrumb>>,
    run: Option<RunState>,
}

impl Closing {
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

fn tag(id: &str) -> String {
    format!("request:{id}")
}

/// Time after the end of a question at which the clock of this process decides. Before, the clock of the store does.
const MARGIN: Duration = Duration::from_secs(5 * 60);

/// Returns `true` if a time and a margin have passed, by the clock of this process.
fn is_over(time: Timestamp, margin: Duration) -> bool {
    time + margin < Timestamp::from_micros(wall_micros())
}

/// Returns `true` if a breadcrumb is an answer to a question that counts.
fn answers_it(question: &QuestionView, found: &Breadcrumb) -> bool {
    let (digest, allowed) = (question.digest.as_deref(), &question.allowed);
    let in_time = question
        .expires_at
        .is_none_or(|end| found.updated_at <= end);
    let decision = human::decision(found, &found.context, &question.id, digest, allowed);
    in_time && decision.is_some() && fits(question, &found.context).is_ok()
}

/// The breadcrumb of an answer.
fn response(question: &QuestionView, person: &Principal, answer: Value) -> NewBreadcrumb {
    let mut context = answer;
    if let Value::Object(fields) = &mut context {
        fields.insert("request_id".to_owned(), question.id.as_str().into());
        fields.insert("principal".to_owned(), json!(person));
        if let Some(digest) = &question.digest {
            fields.insert("digest".to_owned(), digest.as_str().into());
        }
    }
    NewBreadcrumb::new(human::RESPONSE)
        .tag(tag(&question.id))
        .created_by(&*person.name)
        .context(context)
}

/// Returns `true` if an answer that was given is equal to a new one.
fn says(given: &Breadcrumb, new: &NewBreadcrumb) -> bool {
    given.context == new.context && given.created_by == new.created_by
}
