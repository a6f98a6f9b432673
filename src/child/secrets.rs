//! Strings that must not appear in the output of a child process that is logged.

use std::borrow::Cow;
use std::ops::Range;

/// The text that replaces a secret in the output of a child process.
const REPLACEMENT: &str = "[secret]";

/// Strings that are replaced by `[secret]` in everything that a child process prints.
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    /// Creates the list of secrets from `values`, without blank values. Short values count too, because each can be a password. Values of
    /// several lines are stored line by line, because output is checked line by line.
    pub(crate) fn new<'a>(values: impl IntoIterator<Item = Cow<'a, str>>) -> Self {
        let mut secrets = Vec::new();
        for value in values {
            let lines = value.lines().map(str::trim);
            secrets.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
        }
        secrets.sort_unstable();
        secrets.dedup();
        Self(secrets)
    }

    /// Returns text that a child process printed, with each secret replaced by `[secret]`. All secrets are searched in the
    /// original text, because a short secret could otherwise match in the replacement of another.
    pub(crate) fn redact(&self, text: &str) -> String {
        let mut ranges = self.secret_ranges(text);
        ranges.sort_unstable_by_key(|range| range.start);
        let (mut redacted, mut end) = (String::new(), 0);
        for range in ranges {
            if range.start > end || redacted.is_empty() {
                redacted.push_str(text.get(end..range.start).unwrap_or_default());
                redacted.push_str(REPLACEMENT);
            }
            end = end.max(range.end);
        }
        redacted.push_str(text.get(end..).unwrap_or_default());
        redacted
    }

    /// Returns the byte ranges of all secrets in text that a child process printed. The ranges can overlap.
    fn secret_ranges(&self, text: &str) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        for secret in &self.0 {
            let mut from = 0;
            while let Some(at) = text.get(from..).and_then(|rest| rest.find(&**secret)) {
                let start = from + at;
                ranges.push(start..start + secret.len());
                // The next occurrence can overlap this one.
                from = start + secret.chars().next().map_or(1, char::len_utf8);
            }
        }
        ranges
    }

    /// Returns the length of the longest secret in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.0.iter().map(String::len).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_secret_is_removed_however_short_it_is() {
        let values = [
            "sk-12345",
            "sk-12345-longer",
            "two lines\nof a key  ",
            "short",
            "7",
            "",
            " \n",
        ];
        let secrets = Secrets::new(values.map(Cow::from));

        let text = secrets.redact("sk-12345-longer sk-12345 two lines of a key short 7 x");

        assert_eq!(
            text,
            "[secret] [secret] [secret] [secret] [secret] [secret] x"
        );
        assert_eq!(secrets.redact(""), "");
        assert_eq!(secrets.redact("7"), "[secret]");
        assert_eq!(secrets.longest(), "sk-12345-longer".len());
    }

    #[test]
    fn overlapping_secrets_leave_nothing_of_each_other() {
        let secrets = Secrets::new(["abcd", "cdefgh", "ghg"].map(Cow::from));

        let text = secrets.redact("x abcdefgh y ghghg z");

        assert_eq!(text, "x [secret] y [secret] z");
    }

    #[test]
    fn a_replacement_is_not_searched_for_secrets() {
        let letters = "secrt[]".chars().map(|letter| letter.to_string().into());
        let secrets = Secrets::new(letters);

        let text = secrets.redact(&"secret ".repeat(100));

        assert_eq!(text, "[secret] ".repeat(100));
    }
}
