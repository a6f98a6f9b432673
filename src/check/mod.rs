//! Checks of definitions before they run: agents, tools, schemas, workflows and workloads.
//!
//! Use this in a test or a build step of a service that has definitions in files, and before a service uses the definitions on an RCRT
//! (Right Context Right Time) server. A check reads [`CheckSource`]s, which are files or breadcrumbs, and returns a [`Report`] of
//! typed [`Finding`]s. It does no I/O; `examples/check_definitions` reads folders, stores and servers.
//!
//! A file is checked in strict mode, in which an unknown field is an error. A breadcrumb is checked as a service loads it: an
//! unknown field is a warning. [`Check::strict`] sets one mode for both.
//!
//! ```
//! use universal_executor::check::{Check, CheckSource, Kind};
//!
//! let text = r#"{
//!   "agent_id": "helper",
//!   "prompt": "Answer questions.",
//!   "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}]
//! }"#;
//!
//! let report = Check::new().all([CheckSource::json("helper.json", text)]);
//!
//! let checked = &report.definitions[0];
//! assert_eq!(checked.kind, Kind::Agent);
//! assert_eq!(
//!     checked.findings[0].to_string(),
//!     "line 3 column 13: prompt: unknown field \"prompt\"; did you mean \"system_prompt\"?"
//! );
//! assert!(report.has_errors());
//! ```
//!
//! # Types to start with
//! | to | use |
//! |---|---|
//! | read a file or a breadcrumb | [`CheckSource`] |
//! | check many definitions, or one | [`Check::all`], [`Check::one`] |
//! | fail a test or a build | [`Report::has_errors`] |
//! | print the problems | [`Finding`], whose `Display` has position, path and message |
//!
//! # Limits
//! A check knows neither the models and tools that a service registers nor the capabilities of its store. It reports at most 100
//! findings for each definition and the number of omitted findings.

mod agent;
mod common;
mod kind;
mod related;
mod report;
mod schema;
mod source;
mod tool;
mod workflow;

pub use crate::model::{DefinitionPath, DefinitionPathPart, Finding, Position, Severity};
pub use kind::Kind;
pub use report::{Checked, Report};
pub use source::CheckSource;

use crate::model::{DefinitionOptions, Findings};
use common::CheckContext;
use related::Declaration;

/// A check of agent, tool, schema and workflow definitions, with its settings.
///
/// A check reads no file and no store. It keeps no state, so one value can check any number of
/// definitions.
///
/// # Examples
/// ```
/// use universal_executor::check::{Check, CheckSource, Severity};
///
/// let text = r#"{
///   "name": "sum",
///   "subscriptions": [{"schema_name": "order.v1", "role": "trigger"}],
///   "writes": ["price.v1"]
/// }"#;
/// let source = CheckSource::json("sum.json", text);
///
/// // The unknown field `writes` is an error in a file.
/// assert!(Check::new().all([source.clone()]).has_errors());
///
/// let lenient = Check::new().strict(false).one(&source);
/// assert!(lenient.findings.iter().all(|finding| finding.severity == Severity::Warning));
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Check {
    options: DefinitionOptions,
    strict: Option<bool>,
}

impl Check {
    /// Creates a check with default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the check apply the rules of an RCRT (Right Context Right Time) server to the definitions. See
    /// [`DefinitionOptions::rcrt`].
    ///
    /// Use it for definitions that an RCRT server and its agents also read.
    pub fn rcrt(mut self) -> Self {
        self.options = self.options.rcrt();
        self
    }

    /// Sets whether unknown fields are errors or warnings: errors if `true`, warnings if `false`, in files and in breadcrumbs. By default
    /// they are errors in files and warnings in breadcrumbs.
    pub fn strict(mut self, is_strict: bool) -> Self {
        self.strict = Some(is_strict);
        self
    }

    /// Checks each given definition of an agent, tool, schema or workflow alone, and then the relations between the definitions.
    ///
    /// The joint check finds cycles of executors that trigger one another, and schemas that no definition writes. An agent that may
    /// create any schema is not part of a cycle, because its definition does not list schemas.
    ///
    /// Pass all definitions of a service at once: the joint check sees only the given sources. The
    /// problems of one definition are in its [`Checked`], the joint ones in [`Report::findings`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::check::{Check, CheckSource};
    ///
    /// let text = r#"{
    ///   "name": "sum",
    ///   "subscriptions": [{"schema_name": "order.v1", "role": "trigger"}]
    /// }"#;
    /// let report = Check::new().all([CheckSource::json("sum.json", text)]);
    ///
    /// assert!(!report.has_errors());
    /// let message = "no definition writes order.v1; a person or a service must write it";
    /// assert_eq!(report.findings[0].message, message);
    /// ```
    #[must_use]
    pub fn all<'s>(&self, sources: impl IntoIterator<Item = CheckSource<'s>>) -> Report {
        let mut definitions = Vec::new();
        let mut declared = Vec::new();
        for source in sources {
            let (checked, declaration) = self.read(&source);
            definitions.push(checked);
            declared.extend(declaration);
        }
        let findings = related::check(&declared).into_vec();
        Report {
            definitions,
            findings,
        }
    }

    /// Checks one definition of an agent, tool, schema or workflow, without its relations to other definitions.
    ///
    /// Text that is not valid JSON or YAML gives one finding and the kind [`Kind::Unknown`].
    #[must_use]
    pub fn one(&self, source: &CheckSource<'_>) -> Checked {
        self.read(source).0
    }

    fn read(&self, source: &CheckSource<'_>) -> (Checked, Option<Declaration>) {
        let name = source.name().to_owned();
        let document = match source.read() {
            Ok(document) => document,
            Err(error) => {
                let mut findings = Findings::default();
                findings.push(common::load_finding(&error));
                return (Checked::new(name, Kind::Unknown, None, findings), None);
            }
        };
        let value = document.value();
        let kind = Kind::of(&value);
        let mut options = self.options.clone();
        options.strict = self.strict.unwrap_or(source.is_file());
        let mut context = CheckContext::new(&value, &options);
        if source.is_file() {
            context.check_envelope();
        }
        let declaration = match kind {
            Kind::Agent => agent::check(&mut context),
            Kind::Tool => tool::check(&mut context),
            Kind::RemoteTool => tool::check_remote(&mut context),
            Kind::Schema => schema::check(&mut context),
            Kind::Workflow => workflow::check(&mut context, source.name()),
            Kind::Subscriptions => agent::check_subscriptions_only(&mut context),
            Kind::Other => {
                context.warn_of_other();
                None
            }
            Kind::Unknown => {
                context.refuse_unknown();
                None
            }
        };
        let id = declaration.as_ref().map(|declared| declared.id.clone());
        let mut checked = Checked::new(name, kind, id, context.findings);
        for finding in &mut checked.findings {
            finding.position = document.locate(&finding.path);
        }
        (checked, declaration)
    }
}

#[cfg(test)]
mod tests;
