//! Embedded text of a breadcrumb: the parts that its `llm_hints` do not exclude.

use super::MAX_TEXT_BYTES;
use crate::model::Breadcrumb;
use crate::store::schema_hints;
use crate::store::{BreadcrumbStore, StoreError};
use serde_json::Value;
use std::sync::Arc;

/// Returns the text to embed for each breadcrumb, or `None` if this text is empty or the breadcrumb's `llm_hints` are invalid.
///
/// # Errors
/// Fails if the store cannot read the hints of the schemas, because the text could then contain hidden fields.
pub(super) async fn texts(
    store: &impl BreadcrumbStore,
    of: &[Arc<Breadcrumb>],
) -> Result<Vec<Option<String>>, StoreError> {
    let breadcrumbs: Vec<&Breadcrumb> = of.iter().map(|one| &**one).collect();
    let visible = schema_hints::visible_contexts(store, &breadcrumbs).await?;
    let texts = breadcrumbs.iter().zip(visible).map(|(breadcrumb, visible)| {
        if visible.is_none() {
            let id = breadcrumb.id;
            tracing::warn!(%id, "breadcrumb has invalid llm_hints and is stored without a vector, so vector search cannot find it");
        }
        let text = visible.map(|context| text(&breadcrumb.title, &context));
        text.filter(|text| !text.is_empty())
    });
    Ok(texts.collect())
}

/// Returns the embedded text of a breadcrumb: its title and the values of its context, one per line. A number or a boolean follows
/// its field name.
fn text(title: &str, context: &Value) -> String {
    let mut text = truncate(title.trim()).to_owned();
    let mut stack = vec![("", context)];
    while let Some((name, value)) = stack.pop()
        && text.len() < MAX_TEXT_BYTES
    {
        match value {
            Value::Null => {}
            Value::String(text_value) => push(&mut text, &["", text_value]),
            Value::Bool(flag) => push(&mut text, &[name, if *flag { "yes" } else { "no" }]),
            Value::Number(number) => push(&mut text, &[name, &number.to_string()]),
            Value::Array(items) => stack.extend(items.iter().rev().map(|item| (name, item))),
            Value::Object(fields) => {
                stack.extend(fields.iter().rev().map(|(name, field)| (&**name, field)));
            }
        }
    }
    truncate(&text).to_owned()
}

fn push(text: &mut String, words: &[&str]) {
    let mut before = "\n";
    for word in words {
        let word = truncate(word.trim());
        if !word.is_empty() {
            if !text.is_empty() {
                text.push_str(before);
            }
            text.push_str(word);
            before = " ";
        }
    }
}

/// Truncates a string to [`MAX_TEXT_BYTES`] at a character boundary, before it is embedded.
pub(super) fn truncate(text: &str) -> &str {
    let end = text.floor_char_boundary(MAX_TEXT_BYTES);
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, NewBreadcrumb, Timestamp};
    use crate::store::{BreadcrumbStoreExt, MemoryStore};
    use serde_json::json;

    fn breadcrumb(new: NewBreadcrumb) -> Arc<Breadcrumb> {
        Arc::new(new.first_version(BreadcrumbId::NIL, Timestamp::from_micros(1)))
    }

    async fn text_of(store: &MemoryStore, new: NewBreadcrumb) -> Option<String> {
        let texts = texts(store, &[breadcrumb(new)]).await.unwrap();
        texts.into_iter().next().unwrap()
    }

    #[tokio::test]
    async fn texts_stand_for_themselves_and_numbers_after_their_names() {
        let context = json!({
            "message": " Hello ", "none": null, "empty": "", "deep": {"list": ["a", {"n": 1.5}, 2]}, "open": true,
        });
        let new = NewBreadcrumb::new("note.v1")
            .title("Title")
            .context(context);

        let text = text_of(&MemoryStore::default(), new).await.unwrap();

        let mut lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.remove(0), "Title");
        lines.sort_unstable();
        assert_eq!(lines, ["Hello", "a", "list 2", "n 1.5", "open yes"]);
    }

    #[tokio::test]
    async fn fields_excluded_by_hints_are_not_in_the_text() {
        let store = MemoryStore::default();
        let context = json!({"shown": "yes", "key": "sk-4711"});
        let hints = json!({"exclude": ["key"]});
        let defined = NewBreadcrumb::new("schema.def.v1")
            .tag("defines:hinted.v1")
            .context(json!({"llm_hints": hints}));
        store.create(defined).await.unwrap();
        let own = NewBreadcrumb::new("note.v1")
            .context(context.clone())
            .llm_hints(hints);
        let of_schema = NewBreadcrumb::new("hinted.v1").context(context);

        for new in [own, of_schema] {
            assert_eq!(text_of(&store, new).await.as_deref(), Some("yes"));
        }
    }

    #[tokio::test]
    async fn hints_that_cannot_be_used_withhold_everything() {
        let store = MemoryStore::default();
        for hints in [
            json!({"exclude": 1}),
            json!({"transform": {"a": {"type": "unknown"}}}),
        ] {
            let new = NewBreadcrumb::new("note.v1")
                .title("Title")
                .context(json!({"a": "b"}));

            assert_eq!(text_of(&store, new.llm_hints(hints)).await, None);
        }
    }

    #[tokio::test]
    async fn a_text_is_cut_at_a_character() {
        let long = "ü".repeat(MAX_TEXT_BYTES);
        let new = NewBreadcrumb::new("note.v1")
            .title("a")
            .context(json!([long, "b"]));

        let text = text_of(&MemoryStore::default(), new).await.unwrap();

        assert!(text.len() <= MAX_TEXT_BYTES && text.len() > MAX_TEXT_BYTES - 2);
        assert!(
            text.starts_with("a\nü") && text.ends_with('ü'),
            "{}",
            text.len()
        );
    }

    #[tokio::test]
    async fn a_context_without_content_has_no_text() {
        for context in [json!(null), json!({}), json!({"a": [" ", null]})] {
            let new = NewBreadcrumb::new("note.v1").context(context);

            assert_eq!(text_of(&MemoryStore::default(), new).await, None);
        }
    }
}
