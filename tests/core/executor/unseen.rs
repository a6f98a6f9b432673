//! Excluded fields never appear in the context for a model.

use futures::FutureExt as _;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};
use universal_executor::executor::Format;
use universal_executor::{ContextBudget, ExecutionContext, NewBreadcrumb};

const NAMES: [&str; 4] = ["a", "b", "c", "it's"];

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!("")),
        Just(json!(null)),
        Just(json!("</data> ```"))
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let name = select(&NAMES[..]).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(name, inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Puts a unique text at every leaf of a value.
fn mark(value: Value, next: &mut usize) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(|item| mark(item, next)).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields
                .map(|(name, field)| (name, mark(field, next)))
                .collect()
        }
        leaf => {
            *next += 1;
            json!(format!(
                "mark{next}mark{}",
                leaf.as_str().unwrap_or_default()
            ))
        }
    }
}

/// Collects the marks below a path of field names. A path continues in every item of a list.
fn below(value: &Value, way: &[&str], found: &mut Vec<String>) {
    match (value, way) {
        (Value::String(text), []) => {
            found.extend(text.split("mark").nth(1).map(|n| format!("mark{n}mark")))
        }
        (Value::Array(items), way) => items.iter().for_each(|item| below(item, way, found)),
        (Value::Object(fields), []) => fields.values().for_each(|field| below(field, way, found)),
        (Value::Object(fields), [name, rest @ ..]) => {
            fields
                .get(*name)
                .into_iter()
                .for_each(|field| below(field, rest, found));
        }
        _ => {}
    }
}

fn way() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(select(&NAMES[..]), 1..4)
}

fn path(way: &[&str]) -> String {
    way.iter().map(|name| format!("[\"{name}\"]")).collect()
}

fn rule() -> impl Strategy<Value = Value> {
    let shown = way().prop_map(|way| path(&way));
    prop_oneof![
        shown.prop_map(|path| json!({"type": "extract", "value": format!("${path}")})),
        Just(json!({"type": "extract", "value": "$..*"})),
        Just(json!({"type": "format", "format": "{a} {b} {c}"})),
        Just(json!({"type": "extract", "value": "$.a[?@.b]"})),
    ]
}

proptest! {
    #[test]
    fn excluded_fields_never_appear_in_the_model_context(
        tree in tree(),
        excluded in prop::collection::vec(way(), 1..3),
        included in prop::option::of(way()),
        rules in prop::collection::vec(rule(), 0..3),
        merge in any::<bool>(),
        tokens in select(vec![300_usize, 100_000]),
    ) {
        let context = mark(tree, &mut 0);
        let exclude: Vec<String> = excluded.iter().map(|way| path(way)).collect();
        let mut hints = json!({"exclude": exclude, "mode": if merge { "merge" } else { "replace" }});
        if let Some(way) = &included {
            hints["include"] = json!([path(way)]);
        }
        if !rules.is_empty() {
            let rules = rules.into_iter().enumerate().map(|(n, rule)| (format!("r{n}"), rule));
            hints["transform"] = Value::Object(rules.collect());
        }
        let breadcrumb = || NewBreadcrumb::new("note.v1").context(context.clone());
        let whole = ExecutionContext::for_trigger(NewBreadcrumb::new("question.v1"))
            .with_schema_hints("note.v1", hints)
            .with_breadcrumbs("notes", [breadcrumb(), breadcrumb()]);

        let shown = whole.for_model().now_or_never().unwrap().unwrap();
        let missing = format!("{:?}", shown.missing());
        let mut seen = vec![missing, serde_json::to_string(&shown).unwrap()];
        for format in [Format::Markdown, Format::Xml] {
            let fitted = shown.clone().fit(&ContextBudget::default().tokens(tokens), format).unwrap();
            seen.push(fitted.render(format));
        }

        let mut secrets = Vec::new();
        excluded.iter().for_each(|way| below(&context, way, &mut secrets));
        for secret in secrets {
            for text in &seen {
                prop_assert!(!text.contains(&secret), "{} in {}", secret, text);
            }
        }
    }
}
