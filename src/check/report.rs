use super::{Finding, Kind, Severity};
use crate::model::Findings;
use serde::Serialize;

/// The result of a check of several definitions, such as agent and workflow definitions. It serializes to one JSON object.
///
/// [`Check::all`](super::Check::all) returns it. Print each definition's findings, then the joint
/// ones, and fail the build if [`has_errors`](Self::has_errors) is `true`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The checked definitions, in the order of the sources that the caller passed to the check.
    pub definitions: Vec<Checked>,
    /// The problems between the checked definitions: cycles of executors that trigger one another, and subscribed schemas that no
    /// definition writes.
    ///
    /// All of them are warnings: they depend on definitions and services that the check may not
    /// know.
    pub findings: Vec<Finding>,
}

/// The result of a check of one definition, such as an agent or workflow definition.
///
/// [`Check::one`](super::Check::one) returns it, and [`Report::definitions`] has one for each
/// source.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Checked {
    /// The name of the checked file or text, or the title and ID of the checked breadcrumb.
    pub source: String,
    /// The kind of the checked definition.
    pub kind: Kind,
    /// The ID of the agent or workflow, the name of the tool, or the name of the defined schema. `None` if the definition cannot be read.
    ///
    /// The joint check knows a definition only if it has an ID.
    pub id: Option<String>,
    /// The problems of the checked definition, at most 100. If there are more, one further finding has the number of omitted
    /// problems.
    pub findings: Vec<Finding>,
}

impl Checked {
    pub(super) fn new(source: String, kind: Kind, id: Option<String>, findings: Findings) -> Self {
        Self {
            source,
            kind,
            id,
            findings: findings.into_vec(),
        }
    }
}

impl Report {
    /// Returns the number of findings with the severity `severity` in the report.
    ///
    /// The count includes the joint findings. A finding about omitted problems counts once.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::check::{Check, CheckSource, Severity};
    ///
    /// let text = r#"{"flows": {"main": {"steps": [{"return": 1}]}}}"#;
    /// let report = Check::new().all([CheckSource::json("one.json", text)]);
    /// assert_eq!(report.count(Severity::Error), 0);
    /// ```
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        let all = self.definitions.iter().flat_map(|one| &one.findings);
        let all = all.chain(&self.findings);
        all.filter(|finding| finding.severity == severity).count()
    }

    /// Returns `true` if at least one checked definition does not load.
    ///
    /// Warnings do not count. A definition with warnings loads, but a part of it has no effect.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    /// Returns the names of the checked tools that run as code on an RCRT server.
    ///
    /// This crate does not execute such code. Serve each name with a Rust function, or leave it
    /// to the server.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::check::{Check, CheckSource};
    ///
    /// let text = r#"{"name": "shout", "code": {"language": "typescript", "source": ""}}"#;
    /// let report = Check::new().all([CheckSource::json("shout.json", text)]);
    /// assert_eq!(report.remote_tools().collect::<Vec<_>>(), ["shout"]);
    /// ```
    pub fn remote_tools(&self) -> impl Iterator<Item = &str> {
        let remote = self.definitions.iter();
        let remote = remote.filter(|checked| checked.kind == Kind::RemoteTool);
        remote.filter_map(|checked| checked.id.as_deref())
    }
}
