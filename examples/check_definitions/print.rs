//! Output of the report as text and as JSON.

use super::Checked;
use serde::Serialize;
use std::fmt::Write as _;
use universal_executor::check::{Finding, Report, Severity};

/// The document that `--json` prints.
#[derive(Serialize)]
struct Document<'r> {
    #[serde(flatten)]
    report: &'r Report,
    remote_tools: Vec<&'r str>,
    /// The sources that cannot be read.
    unread: &'r [String],
    errors: usize,
    warnings: usize,
}

/// Returns one JSON document.
///
/// # Errors
/// Never fails for a report.
pub(crate) fn json((report, unread): &Checked) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(&Document {
        report,
        remote_tools: report.remote_tools().collect(),
        unread,
        errors: report.count(Severity::Error) + unread.len(),
        warnings: report.count(Severity::Warning),
    })
}

/// Returns one line for each problem, errors first, and a summary.
pub(crate) fn text((report, unread): &Checked) -> String {
    let mut text = String::new();
    for problem in unread {
        line(&mut text, &format!("error: {problem}"));
    }
    for severity in [Severity::Error, Severity::Warning] {
        for checked in &report.definitions {
            for finding in of(&checked.findings, severity) {
                line(&mut text, &in_source(&checked.source, finding));
            }
        }
        for finding in of(&report.findings, severity) {
            line(&mut text, &format!("{}: {finding}", severity.as_str()));
        }
    }
    let remote: Vec<&str> = report.remote_tools().collect();
    if !remote.is_empty() {
        line(&mut text, &format!("remote tools: {}", remote.join(", ")));
    }
    let summary = format!(
        "{} definitions, {} errors, {} warnings",
        report.definitions.len(),
        report.count(Severity::Error) + unread.len(),
        report.count(Severity::Warning)
    );
    line(&mut text, &summary);
    text.truncate(text.trim_end().len());
    text
}

fn of(findings: &[Finding], severity: Severity) -> impl Iterator<Item = &Finding> {
    let findings = findings.iter();
    findings.filter(move |finding| finding.severity == severity)
}

/// Returns `error: tools/adder.json:3:5: context.name: message`.
fn in_source(source: &str, finding: &Finding) -> String {
    let mut place = source.to_owned();
    if let Some(position) = &finding.position {
        // Writing to a string cannot fail.
        write!(place, ":{}:{}", position.line, position.column).unwrap_or_default();
    }
    let path = match finding.path.parts().is_empty() {
        true => String::new(),
        false => format!("{}: ", finding.path),
    };
    let severity = finding.severity.as_str();
    format!("{severity}: {place}: {path}{}", finding.message)
}

/// Adds a line without control characters, which a title from a server can contain.
fn line(text: &mut String, line: &str) {
    text.push_str(&line.replace(|c: char| c.is_control(), " "));
    text.push('\n');
}
