//! Memory size of an event, and size limits of a delivered event.

use crate::model::{Breadcrumb, Event};

/// Maximum size in bytes of the context in an event of an event stream. A larger context is omitted.
const MAX_CONTEXT: usize = 16 << 10;

/// Estimated memory overhead of an event's tag or schema name in bytes.
const PER_TEXT: usize = 64;

/// Maximum memory size of an event's tags and schema name in bytes, about 80 KiB, which no breadcrumb in a store of
/// this crate exceeds.
const MAX_LABELS: usize = Breadcrumb::MAX_TAGS * (PER_TEXT + Breadcrumb::MAX_TAG_BYTES)
    + PER_TEXT
    + Breadcrumb::MAX_SCHEMA_BYTES;

/// Returns the approximate memory size of an event in bytes.
pub(crate) fn event_size(event: &Event) -> usize {
    let context = event.context.as_ref().map_or(0, |context| context.size());
    size_of::<Event>()
        .saturating_add(labels(event))
        .saturating_add(context)
}

/// Removes an event's context if the context is larger than [`MAX_CONTEXT`]. Returns `None` if the tags and the schema
/// name are larger than [`MAX_LABELS`].
pub(super) fn within_size_limits(mut event: Event) -> Option<Event> {
    event.context = event
        .context
        .filter(|context| context.size() <= MAX_CONTEXT);
    (labels(&event) <= MAX_LABELS).then_some(event)
}

fn labels(event: &Event) -> usize {
    let texts = event.tags.iter().chain(&event.schema_name);
    texts.map(|text| PER_TEXT + text.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NewBreadcrumb, Timestamp};
    use serde_json::json;

    fn event(tags: Vec<String>, context: usize) -> Event {
        let new = NewBreadcrumb::new("x".repeat(Breadcrumb::MAX_SCHEMA_BYTES));
        let new = new.context(json!("x".repeat(context - 2)));
        let mut event =
            Event::created(&new.first_version(Default::default(), Timestamp::UNIX_EPOCH));
        event.tags = tags;
        event
    }

    #[test]
    fn an_event_with_tags_over_the_store_limit_is_dropped() {
        let largest = vec!["x".repeat(Breadcrumb::MAX_TAG_BYTES); Breadcrumb::MAX_TAGS];
        let mut longer = largest.clone();
        longer[0].push('x');

        assert!(within_size_limits(event(largest, 100)).is_some());
        assert!(within_size_limits(event(longer, 100)).is_none());
        // Many short tags take as much memory as a few long ones.
        assert!(within_size_limits(event(vec![String::new(); 2_000], 100)).is_none());
    }

    #[test]
    fn a_context_of_more_than_16_kibibytes_is_omitted() {
        for (bytes, has_context) in [(16_384, true), (16_385, false)] {
            let event = within_size_limits(event(Vec::new(), bytes)).unwrap();

            assert_eq!(event.context.is_some(), has_context, "{bytes}");
        }
    }

    #[test]
    fn the_size_of_an_event_grows_with_its_context_and_tags() {
        let plain = event_size(&event(Vec::new(), 100));

        assert_eq!(event_size(&event(Vec::new(), 1_100)) - plain, 1_000);
        assert!(event_size(&event(vec!["x".repeat(1_000)], 100)) - plain >= 1_000);
    }
}
