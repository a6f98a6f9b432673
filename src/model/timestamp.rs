use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::ops::Add;
use std::str::FromStr;
use std::time::Duration;

/// A time in UTC with microsecond precision, formatted as RFC 3339 (`2026-11-21T20:33:40.535554Z`).
///
/// Parsing truncates to microseconds, so all stores persist the same time.
///
/// [`ExecutionContext::now`](crate::ExecutionContext::now) returns the store's time. Adding a
/// [`Duration`] saturates at the maximum time. An offset in the text is converted to UTC.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::model::Timestamp;
///
/// let start: Timestamp = "2026-11-21T21:33:40+01:00".parse()?;
/// let end = start + Duration::from_secs(2);
///
/// assert_eq!(end.to_string(), "2026-11-21T20:33:42Z");
/// assert_eq!(end.since(start), Duration::from_secs(2));
/// assert_eq!(start.since(end), Duration::ZERO);
/// # Ok::<(), universal_executor::model::ParseTimestampError>(())
/// ```
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const UNIX_EPOCH: Self = Self(0);

    /// Creates the time `micros` microseconds after 1970-01-01T00:00:00Z.
    ///
    /// Negative values are times before 1970. Every value is valid. Text is limited to the years
    /// that RFC 3339 can express, so an extreme value prints as the nearest of them.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the time one microsecond earlier.
    pub(crate) const fn just_before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// Returns the time one microsecond later.
    pub(crate) const fn just_after(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the number of microseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the duration since `earlier`, or zero if `earlier` is later than this time.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Returns the time that is `duration` later. Saturates at the maximum time.
    fn add(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let within = self.0.clamp(
            jiff::Timestamp::MIN.as_microsecond(),
            jiff::Timestamp::MAX.as_microsecond(),
        );
        match jiff::Timestamp::from_microsecond(within) {
            Ok(moment) => moment.fmt(f),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error of a string that is not an RFC 3339 timestamp.
///
/// The message has the first 64 bytes of the string. A retry cannot succeed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("cannot parse timestamp {text:?}: expected RFC 3339 such as 2026-11-21T20:33:40Z")]
pub struct ParseTimestampError {
    text: String,
}

impl FromStr for Timestamp {
    type Err = ParseTimestampError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<jiff::Timestamp>()
            .map(|moment| Self(moment.as_microsecond()))
            .map_err(|_| ParseTimestampError {
                text: crate::error::excerpt(text, 64).into_owned(),
            })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimestampVisitor;

        impl de::Visitor<'_> for TimestampVisitor {
            type Value = Timestamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Timestamp, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(TimestampVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_reads_and_writes_rfc_3339() {
        let text = "2026-11-21T20:33:40.535554Z";

        let moment: Timestamp = text.parse().unwrap();

        assert_eq!(moment.to_string(), text);
        assert_eq!(serde_json::to_value(moment).unwrap(), text);
    }

    #[test]
    fn an_offset_is_read_and_written_as_utc() {
        let moment: Timestamp = "2026-11-21T21:33:40+01:00".parse().unwrap();

        assert_eq!(moment.to_string(), "2026-11-21T20:33:40Z");
    }

    #[test]
    fn a_parse_error_names_the_invalid_timestamp() {
        let error = "yesterday".parse::<Timestamp>().unwrap_err();

        assert!(error.to_string().contains("\"yesterday\""), "{error}");
    }

    #[test]
    fn the_ends_of_time_print_without_panic() {
        for moment in [Timestamp(i64::MIN), Timestamp(i64::MAX), Timestamp(0)] {
            assert!(!moment.to_string().is_empty());
        }
        assert_eq!(
            Timestamp(i64::MAX) + Duration::from_secs(1),
            Timestamp(i64::MAX)
        );
    }
}
