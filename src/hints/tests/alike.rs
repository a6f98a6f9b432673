//! Tests that the renderer produces the output of `handlebars` for templates that both support.

use super::{apply, templates::hints};
use handlebars::{Handlebars, no_escape};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

/// Parts of a template that render a part of a node, or nothing.
const PLAIN: [&str; 23] = [
    "{{s}}",
    "{{n}}",
    "{{b}}",
    "{{none}}",
    "{{missing}}",
    "{{o.s}}",
    "{{this.s}}",
    "{{./n}}",
    "{{{s}}}",
    "{{&s}}",
    "{{lookup list 0}}",
    "{{lookup o \"s\"}}",
    "{{list.[1]}}",
    "{{len list}}",
    "{{@root.context.s}}",
    "text ",
    " {{~n~}} ",
    "{{! remark }}",
    "{{!-- {{s}} --}}",
    "\\{{s}}",
    "\n",
    "{{lookup list 9}}",
    "{{len items}}",
];

/// Conditions on a node.
const TESTS: [&str; 16] = [
    "s",
    "n",
    "b",
    "none",
    "items",
    "empty",
    "missing",
    "(eq n 1)",
    "(ne s \"a\")",
    "(gt n 0)",
    "(lte n 1)",
    "(not b)",
    "(and s b)",
    "(or none n)",
    "(eq s o.s)",
    "n includeZero=true",
];

/// Generates nodes `{"s", "n", "b", "none", "list": [scalar..], "o": {"s": ..}, "items": [..], "empty": []}` of limited depth.
fn node(depth: u32) -> BoxedStrategy<Value> {
    let items = match depth {
        0 => Just(Vec::new()).boxed(),
        _ => prop::collection::vec(node(depth - 1), 0..3).boxed(),
    };
    let list = prop::collection::vec(scalar(), 0..4);
    (text(), -3..3_i64, any::<bool>(), list, text(), items)
        .prop_map(|(s, n, b, list, inner, items)| {
            json!({"s": s, "n": n, "b": b, "none": null, "list": list, "o": {"s": inner},
                   "items": items, "empty": []})
        })
        .boxed()
}

fn text() -> impl Strategy<Value = String> {
    select(&["", "a", "<b>&'\"", "zwei Wörter", "0"][..]).prop_map(str::to_owned)
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        text().prop_map(Value::from),
        (-2..9_i64).prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
    ]
}

/// Generates parts of a template for a scope whose value is a node, with at most `depth` nested blocks.
fn about_node(depth: u32) -> BoxedStrategy<String> {
    let plain = select(&PLAIN[..]).prop_map(str::to_owned);
    if depth == 0 {
        return plain.boxed();
    }
    let test = select(&TESTS[..]);
    let inside = || several(about_node(depth - 1));
    let items = ["{{../s}}", "{{@index}}", "{{@first}}", "{{@last}}"];
    let item = prop_oneof![
        about_node(depth - 1),
        select(items.to_vec()).prop_map(str::to_owned),
    ];
    prop_oneof![
        3 => plain,
        2 => (test.clone(), inside(), inside())
            .prop_map(|(test, yes, no)| format!("{{{{#if {test}}}}}{yes}{{{{else}}}}{no}{{{{/if}}}}")),
        1 => (test, inside())
            .prop_map(|(test, no)| format!("{{{{#unless {test}}}}}\n{no}\n{{{{/unless}}}}")),
        2 => (several(item.boxed()), inside())
            .prop_map(|(body, none)| format!("{{{{#each items}}}}{body}{{{{else}}}}{none}{{{{/each}}}}")),
        1 => several(about_scalar()).prop_map(|body| format!("{{{{#each list}}}}\n{body}\n{{{{/each}}}}")),
        1 => several(about_scalar()).prop_map(|body| format!("{{{{#each o}}}}{{{{@key}}}}{body}{{{{/each}}}}")),
        1 => Just("{{#each list as |value at|}}{{at}}{{value}}{{/each}}".to_owned()),
        1 => Just("{{#with o}}{{s}}{{../n}}{{/with}}".to_owned()),
        1 => Just("{{#with none}}{{s}}{{else}}{{n}}{{/with}}".to_owned()),
    ]
    .boxed()
}

fn about_scalar() -> BoxedStrategy<String> {
    let plain = [
        "{{this}}",
        "{{../s}}",
        "{{../o.s}}",
        "{{#if this}}+{{/if}}",
        "{{#if @first}}<{{/if}}",
        "{{#unless @last}},{{/unless}}",
        "-",
    ];
    select(plain.to_vec()).prop_map(str::to_owned).boxed()
}

fn several(one: BoxedStrategy<String>) -> BoxedStrategy<String> {
    prop::collection::vec(one, 0..4)
        .prop_map(|parts| parts.concat())
        .boxed()
}

proptest! {
    #![proptest_config(crate::fuzz::config())]

    #[test]
    fn templates_are_rendered_as_handlebars_renders_them(
        context in node(2),
        body in several(about_node(3)),
    ) {
        let template = format!("{{{{#with context}}}}{body}{{{{/with}}}}");
        let mut theirs = Handlebars::new();
        theirs.register_escape_fn(no_escape);

        let expected = theirs.render_template(&template, &json!({"context": context})).unwrap();

        prop_assert_eq!(&apply(&hints(&template), &context)["t"], &expected, "{}", template);
    }
}
