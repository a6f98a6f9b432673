//! Property tests of `fit` against an oracle that renders every candidate and takes the first one within the budget.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;

/// Generates an item. `any_context` gives each item a unique ID.
fn any_item() -> impl Strategy<Value = ModelItem> {
    let schema = select(&["a.v1", "b.v1", "not plain"][..]);
    (schema, 0..4_i64, 1..3_u64, "[a<\n\u{e9}]{0,30}").prop_map(
        |(schema, seconds, version, text)| ModelItem {
            version,
            ..item(schema, seconds, json!(text))
        },
    )
}

fn any_source() -> impl Strategy<Value = ModelSource> {
    (vec(any_item(), 0..6), any::<bool>(), 0..4_u8, -1..2_i64).prop_map(
        |(mut items, is_one, required, priority)| {
            items.truncate(if is_one { 1 } else { items.len() });
            ModelSource {
                is_one,
                required: required == 0,
                priority,
                ..list("", items)
            }
        },
    )
}

/// Generates sources with different keys and items with different IDs, and sometimes a missing source.
fn any_context() -> impl Strategy<Value = ModelContext> {
    let parts = (
        any_item(),
        vec(any_source(), 0..5),
        any::<bool>(),
        any::<u64>(),
    );
    parts.prop_map(|(trigger, mut sources, is_missing, seed)| {
        let mut id = u128::from(seed);
        for (at, source) in sources.iter_mut().enumerate() {
            source.key = ["page", "a key", "history", "<k>", "\n"][at].to_owned();
            for item in &mut source.items {
                // A linear congruential generator gives unique IDs without an order.
                id = id
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407)
                    % (1 << 64);
                item.id = BreadcrumbId::from_bytes(id.to_be_bytes());
            }
        }
        let notes = is_missing.then(|| missing("catalog", unavailable()));
        ModelContext::new(trigger, sources, notes.into_iter().collect())
    })
}

/// Counts each byte as a token, so that the tokens of pieces add up to the tokens of the text.
fn bytes(text: &str) -> usize {
    text.len()
}

type Ids = Vec<BreadcrumbId>;

fn ids(context: &ModelContext) -> BTreeMap<String, Ids> {
    let sources = context.sources().iter();
    sources
        .map(|source| {
            (
                source.key.clone(),
                source.items.iter().map(|item| item.id).collect(),
            )
        })
        .collect()
}

/// Returns the items that may be omitted, in the documented order, and the number of items that have to be omitted.
fn order(context: &ModelContext, max_items: usize) -> (Ids, usize) {
    let mut candidates = Vec::new();
    let mut surplus = Vec::new();
    for source in context.sources().iter().filter(|source| !source.required) {
        let mut items: Vec<_> = source.items.iter().collect();
        items.sort_by_key(|item| (item.updated_at, item.version, item.id));
        let too_many = if source.is_one {
            0
        } else {
            items.len().saturating_sub(max_items)
        };
        for (at, item) in items.into_iter().enumerate() {
            let key = (source.priority, item.updated_at, item.version, item.id);
            let group = if at < too_many {
                &mut surplus
            } else {
                &mut candidates
            };
            group.push(key);
        }
    }
    surplus.sort();
    candidates.sort();
    let count = surplus.len();
    let all = surplus.into_iter().chain(candidates);
    (all.map(|(.., id)| id).collect(), count)
}

/// Returns the context without these items, with notes on them.
fn without(context: &ModelContext, omitted: &[BreadcrumbId], format: Format) -> ModelContext {
    let mut rest = context.clone();
    for source in &mut rest.sources {
        let (left_out, kept) = std::mem::take(&mut source.items)
            .into_iter()
            .partition::<Vec<_>, _>(|item| omitted.contains(&item.id));
        source.items = kept;
        if !left_out.is_empty() {
            let bytes = left_out.iter().map(|item| item.content(format).len()).sum();
            let items = left_out.len();
            rest.missing.push(missing(
                &source.key,
                MissingReason::OverBudget { items, bytes },
            ));
        }
    }
    rest
}

/// Returns the context with the fewest omitted items whose text is within `limit` bytes.
fn oracle(
    context: &ModelContext,
    limit: usize,
    max_items: usize,
    format: Format,
) -> Option<ModelContext> {
    let (order, surplus) = order(context, max_items);
    (surplus..=order.len())
        .map(|count| without(context, &order[..count], format))
        .find(|rest| rest.render(format).len() <= limit)
}

/// Generates a context, a format, a limit in bytes from slightly too small to more than enough, and a limit of items.
fn any_case() -> impl Strategy<Value = (ModelContext, Format, usize, usize)> {
    let max_items = prop_oneof![3 => Just(usize::MAX), 1 => 0..4_usize];
    (any_context(), select(&FORMATS[..]), 0..110_usize, max_items).prop_map(
        |(context, format, percent, max_items)| {
            let least = without(&context, &order(&context, 0).0, format)
                .render(format)
                .len();
            let whole = context.render(format).len();
            let limit =
                least.saturating_sub(20) + (whole + 20).saturating_sub(least) * percent / 100;
            (context, format, limit, max_items)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn byte_and_token_budgets_omit_items_in_the_documented_order(
        (context, format, limit, max_items) in any_case(),
        in_tokens in any::<bool>(),
    ) {
        let budget = ContextBudget::default().items_per_source(max_items).counter(Arc::new(bytes));
        let budget = match in_tokens {
            true => budget.tokens(limit),
            false => budget.bytes(limit),
        };

        let fitted = context.clone().fit(&budget, format).ok();

        let expected = oracle(&context, limit, max_items, format);
        prop_assert_eq!(fitted.as_ref().map(ids), expected.as_ref().map(ids));
        let Some((fitted, expected)) = fitted.zip(expected) else { return Ok(()) };
        let text = fitted.render(format);
        prop_assert!(text.len() <= limit);
        let notes = |context: &ModelContext| {
            let mut notes: Vec<_> = context.missing().iter().map(ToString::to_string).collect();
            notes.sort();
            notes
        };
        prop_assert_eq!(notes(&fitted), notes(&expected));
        prop_assert_eq!(&fitted.trigger().context, &context.trigger().context);
        for (before, after) in context.sources().iter().zip(fitted.sources()) {
            prop_assert!(!before.required || before.items.len() == after.items.len());
            prop_assert!(after.required || after.is_one || after.items.len() <= max_items);
        }
        let again = fitted.fit(&budget, format).map(|again| again.render(format));
        prop_assert_eq!(again, Ok(text));
    }

    #[test]
    fn a_fitted_context_stays_within_the_estimated_token_limit(
        (context, format, bytes, _) in any_case(),
    ) {
        let limit = bytes / 3;
        let budget = ContextBudget::default().tokens(limit);

        let fitted = context.clone().fit(&budget, format);

        let Ok(fitted) = fitted else { return Ok(()) };
        let text = fitted.render(format);
        prop_assert!(budget.counter.count(&text) <= limit);
        let (order, _) = order(&context, usize::MAX);
        let left: usize = fitted.sources().iter().map(|source| source.items.len()).sum();
        let all: usize = context.sources().iter().map(|source| source.items.len()).sum();
        prop_assert_eq!(ids(&fitted), ids(&without(&context, &order[..all - left], format)));
        let again = fitted.fit(&budget, format).map(|again| again.render(format));
        prop_assert_eq!(again, Ok(text));
    }
}
