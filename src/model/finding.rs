//! Errors and warnings about definitions, each with its path and its line and column.

use super::definition_path::{DefinitionPath, Position};
use serde::Serialize;
use std::fmt;

/// An error or a warning about a definition. An error prevents the load of the definition, and a warning does not.
///
/// Checks of definitions return findings. Show the message with the path or the position to the
/// author of the definition.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The severity of the definition's problem: a warning or an error.
    pub severity: Severity,
    /// The path of the value with the problem in the definition.
    pub path: DefinitionPath,
    /// The line and column of the value with the problem, if the definition was read from text.
    #[serde(flatten)]
    pub position: Option<Position>,
    /// The problem of the definition in one sentence, with the nearest valid name if there is one.
    pub message: String,
}

/// The severity of a problem in a definition.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Severity of a problem because of which a part of the definition has no effect or an unexpected effect, although the
    /// definition loads.
    Warning,
    /// Severity of a problem because of which the definition does not load.
    Error,
}

impl Severity {
    /// Returns the name of the severity of a finding: `warning` or `error`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl Finding {
    #[cfg(any(feature = "agents", test))]
    pub(crate) fn warning(path: DefinitionPath, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, path, message.into())
    }

    #[cfg(any(feature = "workflows", test))]
    pub(crate) fn error(path: DefinitionPath, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, path, message.into())
    }

    pub(crate) fn new(severity: Severity, path: DefinitionPath, message: String) -> Self {
        Self {
            severity,
            path,
            position: None,
            message,
        }
    }
}

impl fmt::Display for Finding {
    /// Writes the line and column, the path and the message of a definition's problem, for example `line 3 column 5: tools:
    /// unknown field`. Absent parts are omitted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = &self.position {
            write!(f, "{position}: ")?;
        }
        if !self.path.parts().is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Errors and warnings about one definition, up to a maximum number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    found: Vec<Finding>,
    omitted: usize,
    /// The first error of the definition. It is stored even if the list of errors and warnings already had its maximum length.
    error: Option<Box<Finding>>,
}

impl Findings {
    /// The maximum number of errors and warnings about one definition.
    pub(crate) const MAX: usize = 100;

    pub(crate) fn push(&mut self, finding: Finding) {
        if finding.severity == Severity::Error && self.error.is_none() {
            self.error = Some(Box::new(finding.clone()));
        }
        match self.found.len() < Self::MAX {
            true => self.found.push(finding),
            false => self.omitted += 1,
        }
    }

    pub(crate) fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        for finding in findings {
            self.push(finding);
        }
    }

    pub(crate) fn first_error(&self) -> Option<&Finding> {
        self.error.as_deref()
    }

    /// Returns the errors and warnings about the definition. If some were omitted, a last item has their number.
    pub(crate) fn into_vec(mut self) -> Vec<Finding> {
        if self.omitted > 0 {
            let severity = match self.error {
                Some(_) => Severity::Error,
                None => Severity::Warning,
            };
            let message = format!("{} more problems are omitted", self.omitted);
            self.found
                .push(Finding::new(severity, DefinitionPath::default(), message));
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_bounded_and_the_omitted_ones_are_counted() {
        let mut found = Findings::default();
        let warning = |n: usize| Finding::warning(DefinitionPath::default().item(n), "a");
        found.extend((0..Findings::MAX + 1).map(warning));
        found.push(Finding::error(DefinitionPath::default(), "b"));

        assert_eq!(found.first_error().map(|error| &*error.message), Some("b"));
        let found = found.into_vec();

        assert_eq!(found.len(), Findings::MAX + 1);
        let last = &found[Findings::MAX];
        assert_eq!(last.message, "2 more problems are omitted");
        assert_eq!(last.severity, Severity::Error);
    }

    #[test]
    fn a_finding_prints_position_and_path_and_serializes_both() {
        let mut finding = Finding::warning(DefinitionPath::default().field("tools").item(1), "odd");
        assert_eq!(finding.to_string(), "tools[1]: odd");

        finding.position = Some(Position {
            file: None,
            line: 3,
            column: 5,
        });

        assert_eq!(finding.to_string(), "line 3 column 5: tools[1]: odd");
        assert_eq!(
            serde_json::to_value(&finding).unwrap(),
            serde_json::json!({"severity": "warning", "path": "tools[1]", "line": 3, "column": 5, "message": "odd"})
        );
    }
}
