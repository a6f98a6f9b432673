use super::super::TokenCounter;
use super::reader::read;
use super::*;
use crate::error::Retry;
use crate::executor::ContextError;
use std::sync::Mutex;

/// Returns a list of items 0, 1, .. whose age in seconds is their number, newest first.
fn history(count: i64) -> ModelSource {
    let items = (0..count).map(|n| item("note.v1", -n, json!({"n": n})));
    list("history", items.collect())
}

fn context(sources: impl IntoIterator<Item = ModelSource>) -> ModelContext {
    let trigger = item("question.v1", 10, json!("What now?"));
    ModelContext::new(trigger, sources.into_iter().collect(), Vec::new())
}

/// Returns the numbers of the items of a source.
fn remaining_items(context: &ModelContext, key: &str) -> Vec<i64> {
    let items = context.many(key).iter();
    items
        .map(|item| item.context["n"].as_i64().unwrap())
        .collect()
}

fn notes(context: &ModelContext) -> Vec<(String, usize)> {
    let mut notes = Vec::new();
    for missing in context.missing() {
        if let MissingReason::OverBudget { items, .. } = missing.reason {
            notes.push((missing.key.clone(), items));
        }
    }
    notes
}

/// Returns the largest budget in bytes that the whole context exceeds.
fn one_byte_short(context: &ModelContext, format: Format) -> ContextBudget {
    ContextBudget::default().bytes(context.render(format).len() - 1)
}

#[test]
fn a_context_within_the_budget_is_unchanged() {
    for format in FORMATS {
        let whole = example().render(format);

        let fitted = example()
            .fit(&ContextBudget::default().bytes(whole.len()), format)
            .unwrap();

        assert_eq!(fitted.render(format), whole);
    }
}

#[test]
fn the_oldest_items_are_omitted_first_and_counted_in_a_note() {
    for format in FORMATS {
        let context = context([history(50)]);
        let budget = one_byte_short(&context, format);

        let fitted = context.fit(&budget, format).unwrap();

        let remaining_items = remaining_items(&fitted, "history");
        assert!(
            remaining_items.len() < 50 && remaining_items.len() > 30,
            "{remaining_items:?}"
        );
        assert!(
            remaining_items
                .iter()
                .copied()
                .eq(0..remaining_items.len() as i64),
            "{remaining_items:?}"
        );
        assert_eq!(
            notes(&fitted),
            [("history".to_owned(), 50 - remaining_items.len())]
        );
        let text = fitted.render(format);
        assert!(
            text.contains(&format!("{} items of ", 50 - remaining_items.len())),
            "{text}"
        );
        assert!(text.len() <= budget.bytes);
    }
}

#[test]
fn items_of_lower_priority_are_omitted_before_older_items() {
    let old = ModelSource {
        key: "old".to_owned(),
        priority: 1,
        items: vec![item(
            "note.v1",
            -1_000,
            json!({"n": 0, "long": "x".repeat(500)}),
        )],
        ..history(0)
    };
    let context = context([history(50), old]);
    let budget = one_byte_short(&context, Format::Xml);

    let fitted = context.fit(&budget, Format::Xml).unwrap();

    assert_eq!(remaining_items(&fitted, "old"), [0]);
    assert!(remaining_items(&fitted, "history").len() < 50);
}

#[test]
fn items_of_equal_age_are_omitted_from_the_first_source_first() {
    let source = |key: &str| {
        let items = (0..9).map(|n| item("note.v1", 0, json!({"n": n, "long": "x".repeat(100)})));
        list(key, items.collect())
    };
    let context = context([source("first"), source("second")]);
    let budget = one_byte_short(&context, Format::Markdown);

    let fitted = context.fit(&budget, Format::Markdown).unwrap();

    assert_eq!(remaining_items(&fitted, "first"), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(remaining_items(&fitted, "second").len(), 9);
}

#[test]
fn the_order_of_the_items_stays() {
    let mut oldest_first = history(50);
    oldest_first.items.reverse();
    let context = context([oldest_first]);
    let budget = one_byte_short(&context, Format::Markdown);

    let fitted = context.fit(&budget, Format::Markdown).unwrap();

    let remaining_items = remaining_items(&fitted, "history");
    assert!(
        remaining_items.is_sorted_by(|a, b| a > b),
        "{remaining_items:?}"
    );
    assert_eq!(remaining_items.last(), Some(&0));
}

#[test]
fn each_optional_list_keeps_its_newest_items() {
    let mut required = history(9);
    (required.key, required.required) = ("required".to_owned(), true);
    let page = one("page", item("page.v1", -9, json!({"n": 7})));
    let context = context([history(9), required, page]);

    let fitted = context
        .fit(&ContextBudget::default().items_per_source(4), Format::Xml)
        .unwrap();

    assert_eq!(remaining_items(&fitted, "history"), [0, 1, 2, 3]);
    assert_eq!(remaining_items(&fitted, "required").len(), 9);
    assert_eq!(remaining_items(&fitted, "page"), [7]);
    assert_eq!(notes(&fitted), [("history".to_owned(), 5)]);
}

#[test]
fn items_omitted_by_two_budgets_are_reported_together() {
    let fit = |context: ModelContext, items| {
        let budget = ContextBudget::default().items_per_source(items);
        context.fit(&budget, Format::Xml).unwrap()
    };

    let twice = fit(fit(context([history(9)]), 6), 4);
    let once = fit(context([history(9)]), 4);

    assert_eq!(notes(&twice), [("history".to_owned(), 5)]);
    assert_eq!(twice.render(Format::Xml), once.render(Format::Xml));
}

#[test]
fn a_required_source_over_the_budget_is_an_error() {
    let mut required = history(9);
    required.required = true;
    let context = context([required]);
    let size = context.render(Format::Markdown).len();

    let error = context
        .fit(&ContextBudget::default().bytes(size - 1), Format::Markdown)
        .unwrap_err();

    assert_eq!(
        error,
        BudgetError::TooLarge {
            size,
            limit: size - 1,
            unit: "bytes"
        }
    );
    assert_eq!(error.retry(), Retry::Never);
    assert_eq!(
        error.to_string(),
        format!(
            "the trigger and the required sources take {size} bytes where the budget has {}; raise the budget, \
             exclude fields with hints, or make a source optional",
            size - 1
        )
    );
}

#[test]
fn a_trigger_of_too_many_tokens_is_an_error_that_ends_the_run() {
    let error = example()
        .fit(&ContextBudget::default().tokens(10), Format::Xml)
        .unwrap_err();

    assert!(
        matches!(
            error,
            BudgetError::TooLarge {
                limit: 10,
                unit: "tokens",
                ..
            }
        ),
        "{error:?}"
    );
    let executor_error = crate::executor::ExecutorError::Execute(error.into());
    assert_eq!(executor_error.retry(), Retry::Never);
}

#[test]
fn the_default_budget_is_100_000_estimated_tokens() {
    let huge = |chars: usize| context([one("page", item("page.v1", 0, json!("x".repeat(chars))))]);
    let budget = ContextBudget::default();

    let all = huge(290_000).fit(&budget, Format::Markdown).unwrap();
    let none = huge(300_000).fit(&budget, Format::Markdown).unwrap();

    assert!(all.get("page").is_some());
    assert!(none.get("page").is_none());
}

#[test]
fn each_item_is_counted_only_once() {
    for format in FORMATS {
        let counted = Arc::new(Mutex::new(0));
        let counter = {
            let counted = Arc::clone(&counted);
            move |text: &str| {
                *counted.lock().unwrap() += text.matches("\"n\":").count();
                text.len()
            }
        };
        let size = context([history(200)]).render(format).len();
        let budget = ContextBudget::default()
            .tokens(size - 2_000)
            .counter(Arc::new(counter));

        let fitted = context([history(200)]).fit(&budget, format).unwrap();

        assert!(remaining_items(&fitted, "history").len() < 100);
        assert_eq!(*counted.lock().unwrap(), 200);
    }
}

#[test]
fn a_counter_without_bounds_gives_an_error_and_no_overflow() {
    let counter = |_: &str| usize::MAX;
    let budget = ContextBudget::default().counter(Arc::new(counter));

    let error = context([history(9)]).fit(&budget, Format::Xml).unwrap_err();

    assert!(
        matches!(
            error,
            BudgetError::TooLarge {
                size: usize::MAX,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_fence_counts_as_sixteen_of_its_costliest_digits_since_any_key_may_be_used() {
    let counter = |text: &str| text.matches('f').count() * 100;
    for format in FORMATS {
        let text = context([]).render(format);
        let mark = &read(format, &text).marks[0];
        let most = counter(&text.replace(mark, &"f".repeat(16)));
        let fit = |tokens| {
            let budget = ContextBudget::default().tokens(tokens);
            context([]).fit(&budget.counter(Arc::new(counter)), format)
        };

        assert!(fit(most).is_ok());
        assert!(matches!(fit(most - 1), Err(BudgetError::TooLarge { size, .. }) if size == most));
    }
}

#[test]
fn a_source_omitted_over_budget_is_not_retried() {
    let error = ContextError::Missing {
        key: "page".to_owned(),
        source: MissingReason::OverBudget { items: 1, bytes: 9 },
    };

    assert_eq!(error.retry(), Retry::Never);
}

#[test]
fn three_bytes_of_ascii_or_one_other_character_are_estimated_as_a_token() {
    for (text, tokens) in [
        ("", 0),
        ("a", 1),
        ("abc", 1),
        ("abcd", 2),
        ("\u{e9}", 1),
        ("a\u{4f60}b\u{1f600}c", 3),
    ] {
        assert_eq!(EstimatedTokens.count(text), tokens, "{text}");
    }
}

#[test]
fn debug_of_a_budget_shows_its_limits() {
    let text = format!(
        "{:?}",
        ContextBudget::default()
            .tokens(5)
            .bytes(6)
            .items_per_source(7)
    );

    assert_eq!(
        text,
        "ContextBudget { tokens: 5, bytes: 6, items_per_source: 7, .. }"
    );
}
