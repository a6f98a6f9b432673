//! Names of NATS subjects and consumers. A character that is not allowed is written as `=` and two hex digits, so that
//! different names stay different. The escape character is not `%`, because a server of version 2.9 reads the name of a
//! consumer as a format string.

use super::NatsError;
use crate::model::{Event, EventKind};
use std::fmt::Write as _;

/// The first token of all NATS subjects that carry events.
pub(super) const PREFIX: &str = "breadcrumbs";

/// Maximum lengths in bytes of the escaped schema name and the escaped tenant name in a NATS subject. A NATS server limits a protocol line
/// to 4 KiB.
const LONGEST_SCHEMA: usize = 1_024;
const LONGEST_TENANT: usize = 200;

/// Returns the NATS subject of an event in the form `breadcrumbs.<tenant>.<schema>`. The schema is `_` for a missing
/// or a very long schema name.
pub(super) fn of_event(tenant: &str, schema: Option<&str>) -> String {
    let schema = schema.filter(|schema| !schema.is_empty()).map(tokens);
    let schema = schema.filter(|schema| schema.len() <= LONGEST_SCHEMA);
    let schema = schema.unwrap_or_else(|| "_".to_owned());
    format!("{PREFIX}.{}.{schema}", token(tenant))
}

/// Checks that the tenant name is short enough for NATS subjects and consumer names.
pub(super) fn check_tenant(tenant: &str) -> Result<(), NatsError> {
    let length = token(tenant).len();
    match length <= LONGEST_TENANT {
        true => Ok(()),
        false => Err(NatsError::Setting {
            setting: "tenant name",
            source: format!("escaped name has {length} bytes, maximum {LONGEST_TENANT}").into(),
        }),
    }
}

/// Returns the NATS message ID of an event, by which the server detects a duplicate. The ID is sent in a header, so the
/// tenant name is escaped.
pub(super) fn message_id(tenant: &str, event: &Event) -> String {
    let kind = match event.kind {
        EventKind::Created | EventKind::Updated => "written",
        EventKind::Deleted => "deleted",
        EventKind::Ping => "ping",
    };
    let (tenant, id, version) = (token(tenant), event.breadcrumb_id, event.version);
    format!("{tenant}:{id}:{version}:{kind}")
}

/// Returns the NATS subject filter for all events of a tenant.
pub(super) fn of_tenant(tenant: &str) -> String {
    format!("{PREFIX}.{}.>", token(tenant))
}

/// Returns the NATS subject filter for all events of all tenants.
pub(super) fn of_all() -> String {
    format!("{PREFIX}.>")
}

/// Returns the name of a group's durable NATS consumer. The name must not contain dots.
pub(super) fn durable(group: &str, tenant: &str) -> String {
    format!("{}@{}", token(group), token(tenant))
}

/// Escapes a name as one NATS subject token. ASCII letters, digits, `_` and `-` are unchanged, and each byte of another character becomes
/// `=` and two hexadecimal digits.
fn token(name: &str) -> String {
    match name.is_empty() {
        true => "=".to_owned(),
        false => escaped(name),
    }
}

/// Escapes each part of a dotted name as one NATS subject token. An empty part becomes `=`.
fn tokens(name: &str) -> String {
    let tokens: Vec<_> = name.split('.').map(token).collect();
    tokens.join(".")
}

fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        if character.is_ascii_alphanumeric() || matches!(character, '_' | '-') {
            text.push(character);
            continue;
        }
        let mut bytes = [0; 4];
        for byte in character.encode_utf8(&mut bytes).bytes() {
            // Writing to a `String` cannot fail.
            if write!(text, "={byte:02X}").is_err() {
                text.clear();
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, NewBreadcrumb, Timestamp};
    use proptest::prelude::*;

    #[test]
    fn dots_are_retained_in_a_schema_and_escaped_in_a_tenant() {
        assert_eq!(
            of_event("acme", Some("user.message.v1")),
            "breadcrumbs.acme.user.message.v1"
        );
        assert_eq!(of_event("a.b", None), "breadcrumbs.a=2Eb._");
        assert_eq!(of_event("a", Some("")), "breadcrumbs.a._");
        assert_eq!(of_tenant("*"), "breadcrumbs.=2A.>");
    }

    #[test]
    fn groups_of_different_tenants_have_different_durable_names() {
        assert_eq!(durable("agents", "a.b"), "agents@a=2Eb");
        assert_ne!(durable("a-b", "c"), durable("a", "b-c"));
        assert_ne!(durable("a@b", "c"), durable("a", "b@c"));
    }

    #[test]
    fn names_stay_within_the_length_limit_of_the_server() {
        let (long, longest) = ("é".repeat(1_000), "a".repeat(LONGEST_TENANT));

        assert_eq!(of_event("a", Some(&long)), "breadcrumbs.a._");
        assert!(check_tenant(&long).is_err());
        assert!(check_tenant(&longest).is_ok());
    }

    proptest! {
        #[test]
        fn the_id_of_a_message_is_one_line_of_its_tenant(tenant in "(?s).{0,12}", other in "(?s).{0,12}") {
            let event = Event::created(&NewBreadcrumb::new("a").first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH));
            let id = message_id(&tenant, &event);

            prop_assert!(id.chars().all(|c| c.is_ascii_graphic()), "{id}");
            prop_assert_eq!(tenant == other, id == message_id(&other, &event));
        }

        #[test]
        fn no_name_matches_more_than_itself_and_no_two_are_the_same(tenant in ".{0,12}", other in ".{0,12}", schema in ".{0,12}") {
            let subject = of_event(&tenant, Some(&schema));

            let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.=".contains(c);
            prop_assert!(subject.chars().all(allowed), "{subject}");
            prop_assert!(subject.split('.').all(|token| !token.is_empty()), "{subject}");
            prop_assert_eq!(tenant == other, of_tenant(&tenant) == of_tenant(&other));
        }
    }
}
