//! People who answer questions, and the questions of runs, as serializable data without a store handle.

use crate::client::creator_of;
use crate::model::{Breadcrumb, BreadcrumbId, Json, Timestamp};
use crate::request::human::{QuestionSchema, QuestionTerms, texts};
use crate::store::RunRef;
use crate::tool::ROLE;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// The name and the roles of a person, which decide whether the person may answer a question. The service authenticates the
/// person.
///
/// The methods of [`Questions`](super::Questions) compare it with the approvers of a question. An
/// approver is a name, or a role as `role:<name>`. The crate does not authenticate: create a
/// principal only from a session or token that your service has checked. A `&str` converts into a
/// person without roles.
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
    /// The name of the person, which the list of a question's approvers can contain. The answer breadcrumb has this name as its
    /// creator.
    pub name: String,
    /// The names of the roles that the person has.
    pub roles: Vec<String>,
}

impl Principal {
    /// Creates a person with this name and without roles.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            roles: Vec::new(),
        }
    }

    /// Adds a role to the person.
    ///
    /// `role` is the plain name, such as `finance`. Approver lists write it as `role:finance`.
    #[must_use]
    pub fn with_role(mut self, role: impl Into<String>) -> Self {
        self.roles.push(role.into());
        self
    }

    /// Returns `true` if the person has the role `role`.
    #[must_use]
    pub fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|own| own == role)
    }

    /// Returns `true` if the list `list` of names and roles contains the person's name or a role of the person.
    pub(super) fn is_in(&self, list: &[String]) -> bool {
        list.iter().any(|entry| match entry.strip_prefix(ROLE) {
            Some(role) => self.has_role(role),
            None => *entry == self.name,
        })
    }
}

impl From<&str> for Principal {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// The kind of a question to a person: the approval of a tool call, or any other question. Each kind of question is answered with
/// different methods.
///
/// A method for the other kind fails with
/// [`AnswerError::WrongKind`](super::AnswerError::WrongKind).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QuestionKind {
    /// A request for a person's approval of a tool call. [`approve`](super::Questions::approve),
    /// [`approve_with`](super::Questions::approve_with) and [`reject`](super::Questions::reject) answer it.
    Approval,
    /// A question to a person, other than a tool approval. [`answer`](super::Questions::answer) answers it.
    Question,
}

/// A question of a run to a person, as printable and serializable data without a store handle.
///
/// Returned by [`Questions::open`](super::Questions::open),
/// [`Questions::get`](super::Questions::get), and by a turn that waits for a person. An open
/// question and a closed one have the same fields; [`Questions::state`](super::Questions::state)
/// returns the difference.
///
/// The `Display` form is one line: the executor, the text, the tool with its arguments, and the
/// options.
///
/// # Examples
/// ```
/// use universal_executor::client::{Principal, QuestionKind, QuestionView};
///
/// /// Returns the buttons that a page shows to a person.
/// fn buttons(question: &QuestionView, person: &Principal) -> Vec<String> {
///     match question.kind {
///         _ if !question.permits(person) => Vec::new(),
///         QuestionKind::Approval => vec!["approve".to_owned(), "reject".to_owned()],
///         _ => question.options.clone(),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QuestionView {
    /// The ID of the question, by which any process can read or answer the question.
    ///
    /// Pass it to the methods of [`Questions`](super::Questions). It is neither a secret nor a
    /// permission.
    pub id: String,
    /// The kind of the question to the person: the approval of a tool call, or any other question. The kind decides which methods
    /// answer the question.
    pub kind: QuestionKind,
    /// The text of the question that a run asks a person.
    pub question: String,
    /// The name of the tool whose call needs the approval. `None` for a question that is not an approval.
    pub tool: Option<String>,
    /// The description of the tool whose call needs the approval.
    pub description: Option<String>,
    /// The arguments with which the run will make the tool call. Characters that reorder text are shown as escapes.
    pub arguments: Option<Json>,
    /// The proposed answers from which the person can choose; if empty, the question proposes no answers.
    ///
    /// The options are a proposal for the page. [`answer`](super::Questions::answer) checks only the [schema](Self::schema).
    pub options: Vec<String>,
    /// The names of the people with the right to answer the question, and roles as `role:<name>`; everyone if empty.
    pub allowed: Vec<String>,
    /// Further approver lists, for a tool with several rules that name approvers: a person must be in [`allowed`](Self::allowed) and in
    /// each of these lists.
    pub also_allowed: Vec<Vec<String>>,
    /// The ID of the executor that asks the question, such as an agent or a flow. The run recorded the ID when it wrote the question.
    pub asked_by: String,
    /// The time at which the run asked the question.
    pub asked_at: Timestamp,
    /// The deadline of the question: the run accepts no later answer.
    ///
    /// `None` if the question has no deadline.
    pub expires_at: Option<Timestamp>,
    /// The JSON Schema of the answer to the question. Checked with the feature `validate`.
    pub schema: Option<Json>,
    /// If `true`, [`approve_with`](super::Questions::approve_with) can change the arguments of the tool call.
    pub changeable: bool,
    /// The JSON Schema of the tool's arguments, or `None` if it has more than 16 KiB. Changed arguments are checked by it with the feature
    /// `validate`.
    pub arguments_schema: Option<Json>,
    /// ID of the breadcrumb that contains the question.
    ///
    /// Its schema is `human.request.v1`.
    pub breadcrumb: BreadcrumbId,
    /// The conditions that a person's answer must meet for the run to accept it, such as the permitted people, the schema and the
    /// deadline.
    #[serde(skip)]
    pub(super) terms: QuestionTerms,
    /// The run that asks the question.
    #[serde(skip)]
    pub(super) run: RunRef,
}

impl QuestionView {
    /// Returns the run that asks the question.
    #[cfg(feature = "mcp-server")]
    pub(crate) fn run(&self) -> &RunRef {
        &self.run
    }

    /// Returns `true` if the person `person` may answer the question.
    ///
    /// The check covers [`allowed`](Self::allowed) and [`also_allowed`](Self::also_allowed), but
    /// not the deadline and not the rules for changed arguments.
    #[must_use]
    pub fn permits(&self, person: &Principal) -> bool {
        let people = &self.terms.people;
        people.list_without(|list| person.is_in(list)).is_none()
    }

    /// Reads a question of a run from its breadcrumb. `None` if the breadcrumb is not a question, or has no
    /// [terms](QuestionTerms::of).
    pub(in crate::client) fn of(breadcrumb: &Breadcrumb) -> Option<Self> {
        let (terms, run) = (QuestionTerms::of(breadcrumb)?, creator_of(breadcrumb)?);
        let context = &breadcrumb.context;
        let text = |field: &str| context.get(field).and_then(Value::as_str);
        let owned = |field: &str| text(field).map(str::to_owned);
        let items = |field: &str| {
            let items = context.get(field).and_then(Value::as_array);
            items.into_iter().flatten()
        };
        let list = |field: &str| texts(items(field));
        let json = |schema: Option<&QuestionSchema>| schema.map(|schema| schema.json().clone());
        let kind = match terms.digest {
            Some(_) => QuestionKind::Approval,
            None => QuestionKind::Question,
        };
        let also_allowed = items("also_of").filter_map(Value::as_array);
        Some(Self {
            id: terms.request_id.clone(),
            kind,
            question: owned("question").unwrap_or_default(),
            tool: owned("tool"),
            description: owned("description").filter(|text| !text.is_empty()),
            arguments: terms.arguments.clone(),
            options: list("options"),
            allowed: list("of"),
            also_allowed: also_allowed.map(texts).collect(),
            asked_by: run.executor.to_string(),
            asked_at: terms.asked_at,
            expires_at: terms.expires_at,
            schema: json(terms.schema.as_ref()),
            changeable: terms.changeable,
            arguments_schema: json(terms.arguments_schema.as_ref()),
            breadcrumb: breadcrumb.id,
            terms,
            run,
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
