//! Questions to people: which are open, and their answers.

use super::{Client, ClientError};
use crate::agent::human;
use crate::clock::wall_micros;
use crate::model::{Breadcrumb, BreadcrumbId, Json, NewBreadcrumb, Selector, Timestamp};
use crate::store::{BreadcrumbStoreExt as _, NewRequest, Query, RunRef, RunState, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

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
    /// The breadcrumb of the question.
    pub breadcrumb: BreadcrumbId,
    /// The digest of the call, which binds an approval to it.
    #[serde(skip)]
    digest: Option<String>,
    #[serde(skip)]
    run: Option<RunRef>,
}

impl QuestionView {
    /// Reads a question. `None` if the breadcrumb is not one.
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
            breadcrumb: breadcrumb.id,
            digest: owned("digest"),
            run: asking_run(context),
        })
    }
}

/// Returns the run that wrote a question.
fn asking_run(context: &Json) -> Option<RunRef> {
    let creator = context.get("creator")?;
    let trigger: BreadcrumbId = creator.get("trigger_id")?.as_str()?.parse().ok()?;
    let version = creator.get("trigger_version")?.as_u64()?;
    Some(RunRef::new(creator.get("id")?.as_str()?, trigger, version))
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
        for question in found.iter().filter_map(|found| QuestionView::of(found)) {
            if self.is_open(&question).await? {
                open.push(question);
            }
        }
        Ok(open)
    }

    /// Returns `true` if an answer to a question would count.
    pub(super) async fn is_open(&self, question: &QuestionView) -> Result<bool, ClientError> {
        Ok(!is_expired(question) && self.closing(question).await?.is_none())
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
        let selector = Selector::schema(human::REQUEST).all_tags([tag(id)]);
        let found = self.client.store.search(&Query::new(selector)).await?;
        let questions = found.iter().filter_map(|found| QuestionView::of(found));
        let mut questions = questions.filter(|question| question.id == id);
        questions
            .next_back()
            .ok_or_else(|| AnswerError::Unknown { id: id.to_owned() })
    }

    /// Lets a run make the call that it asks about, exactly as the question shows it.
    ///
    /// # Errors
    /// [`AnswerError`] if the answer has no effect: then nothing is written. The same answer of the same person again is no error.
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
        let response = response(question, person, answer);
        let closing = self.closing(question).await?;
        if let Some(closing) = closing {
            let is_same = closing.answer.as_ref();
            let is_same = is_same.is_some_and(|given| says(given, &response));
            return match is_same {
                true => Ok(()),
                false => Err(closing.error(id)),
            };
        }
        if let Some(at) = question.expires_at.filter(|_| is_expired(question)) {
            return Err(AnswerError::Expired { id, at });
        }
        if !self.client.store.capabilities().keyed_requests {
            self.client.store.create(response).await?;
            return Ok(());
        }
        // Two people may answer at once.
        let request = NewRequest::new(ANSWERS, id.clone(), response);
        match self.client.ledger()?.request(request).await {
            Ok(_) => Ok(()),
            Err(StoreError::KeyConflict { id: earlier, .. }) => {
                let earlier = self.client.store.get(earlier).await?;
                Err(Closing::answered(earlier).error(id))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the answer or the end of the run that closes a question. `None` if it is open or expired.
    async fn closing(&self, question: &QuestionView) -> Result<Option<Closing>, ClientError> {
        let selector = Selector::schema(human::RESPONSE).all_tags([tag(&question.id)]);
        let answers = self.client.store.search(&Query::new(selector)).await?;
        let is_answer = |found: &&Arc<Breadcrumb>| answers_it(question, found);
        if let Some(first) = answers.iter().rev().find(is_answer) {
            return Ok(Some(Closing::answered(Arc::clone(first))));
        }
        let Some(run) = &question.run else {
            return Ok(None);
        };
        let run = self.client.run(run).await?;
        Ok(run.filter(|run| run.state.is_over()).map(|run| Closing {
            answer: None,
            run: Some(run.state),
        }))
    }
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

fn is_expired(question: &QuestionView) -> bool {
    let now = Timestamp::from_micros(wall_micros());
    question.expires_at.is_some_and(|end| end < now)
}

/// Returns `true` if a breadcrumb is an answer to a question that counts.
fn answers_it(question: &QuestionView, found: &Breadcrumb) -> bool {
    let (digest, allowed) = (question.digest.as_deref(), &question.allowed);
    let in_time = question
        .expires_at
        .is_none_or(|end| found.updated_at <= end);
    let decision = human::decision(found, &found.context, &question.id, digest, allowed);
    in_time && decision.is_some()
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
