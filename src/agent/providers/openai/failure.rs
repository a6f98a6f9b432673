//! What a status and the headers and body of an error come to.

use crate::agent::providers::completions::failure::Failed;
use serde_json::Value;
use std::time::Duration;

/// Reads the body that came with a status; a page of HTML, or nothing, is as good as no body.
pub(super) fn failed(status: u16, retry_after: Option<Duration>, body: &[u8]) -> Failed {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut failed = Failed::of(body.get("error").unwrap_or(&body));
    failed.status = status;
    failed.retry_after = retry_after;
    failed
}

/// The time of a `Retry-After`: seconds, or an HTTP date. `now` is in microseconds since 1970.
pub(super) fn retry_after(header: &str, now: i64) -> Option<Duration> {
    let header = header.trim();
    if let Ok(seconds) = header.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(header)
        .ok()?;
    let micros = at.as_microsecond().saturating_sub(now);
    Some(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1994-11-06T08:49:37Z
    const THEN: i64 = 784_111_777_000_000;

    #[test]
    fn a_retry_after_is_read_as_seconds_or_as_a_date() {
        let seconds = |text| retry_after(text, THEN).map(|delay| delay.as_secs());

        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:07 GMT"), Some(30));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        for text in ["", "-1", "1.5", "soon", "99999999999999999999"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
