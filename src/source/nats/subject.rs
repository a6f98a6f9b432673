//! Names in NATS: what is not allowed in them is written as `%` and two hex digits, so that different names stay different.

use std::fmt::Write as _;

/// The first token of all subjects.
pub(super) const PREFIX: &str = "breadcrumbs";

/// The subject of an event: `breadcrumbs.<tenant>.<schema>`, `_` for one without a schema.
pub(super) fn of_event(tenant: &str, schema: Option<&str>) -> String {
    let schema = match schema {
        Some(schema) if !schema.is_empty() => tokens(schema),
        Some(_) | None => "_".to_owned(),
    };
    format!("{PREFIX}.{}.{schema}", token(tenant))
}

/// What matches all events of a tenant.
pub(super) fn of_tenant(tenant: &str) -> String {
    format!("{PREFIX}.{}.>", token(tenant))
}

/// What matches everything that a stream of breadcrumbs has.
pub(super) fn of_all() -> String {
    format!("{PREFIX}.>")
}

/// The name of a durable consumer, which NATS wants without dots.
pub(super) fn durable(group: &str, tenant: &str) -> String {
    format!("{}-{}", token(group), token(tenant))
}

/// A name as one token: without dots, wildcards, spaces and control characters.
fn token(name: &str) -> String {
    match name.is_empty() {
        true => "%".to_owned(),
        false => escaped(name, |_| false),
    }
}

/// A name with dots as tokens, none of which is empty.
fn tokens(name: &str) -> String {
    let tokens: Vec<_> = name.split('.').map(token).collect();
    tokens.join(".")
}

fn escaped(name: &str, also: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        if character.is_ascii_alphanumeric() || matches!(character, '_' | '-') || also(character) {
            text.push(character);
            continue;
        }
        let mut bytes = [0; 4];
        for byte in character.encode_utf8(&mut bytes).bytes() {
            // Writing to a string cannot fail.
            if write!(text, "%{byte:02X}").is_err() {
                text.clear();
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_schema_keeps_its_dots_and_a_tenant_does_not() {
        assert_eq!(
            of_event("acme", Some("user.message.v1")),
            "breadcrumbs.acme.user.message.v1"
        );
        assert_eq!(of_event("a.b", None), "breadcrumbs.a%2Eb._");
        assert_eq!(of_event("a", Some("")), "breadcrumbs.a._");
        assert_eq!(of_tenant("*"), "breadcrumbs.%2A.>");
    }

    proptest! {
        #[test]
        fn no_name_matches_more_than_itself_and_no_two_are_the_same(tenant in ".{0,12}", other in ".{0,12}", schema in ".{0,12}") {
            let subject = of_event(&tenant, Some(&schema));

            let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.%".contains(c);
            prop_assert!(subject.chars().all(allowed), "{subject}");
            prop_assert!(subject.split('.').all(|token| !token.is_empty()), "{subject}");
            prop_assert_eq!(tenant == other, of_tenant(&tenant) == of_tenant(&other));
        }
    }
}
