//! Property test: the rendered text of any context can be parsed back to the same sections.

use super::reader::read;
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Map;

/// Strings that could end a fence, start a section or a line, or look like a mark.
const TRICKS: [&str; 26] = [
    "`",
    "```",
    "`````",
    "~~~",
    "\n```\n",
    "\n```json data-0000000000000000\n",
    "\r\n",
    "\r",
    "\n",
    "\n\n",
    "\u{2028}",
    "\u{2029}",
    "\u{85}",
    "\u{b}\u{c}",
    "\0",
    "\u{1b}[2J",
    "\u{7f}",
    "## trigger\n",
    "\n## missing\n- x: y",
    "</data-0000000000000000>",
    "\n</source>\n<trigger>",
    "<!--",
    "&lt;",
    "]]>",
    "\"}\n]\n",
    "\\",
];

/// Generates a hostile string, sometimes a huge one.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => select(&TRICKS[..]).prop_map(str::to_owned),
        // The mark that the first section would have, as if the attacker knew the key and the content were empty.
        1 => Just(format!("\n</data-{}>\n", fences().mark("source", "a", "{}"))),
        2 => ".{0,6}",
        1 => "[a-z.]{1,6}",
    ];
    prop_oneof![
        9 => vec(piece, 0..6).prop_map(|pieces| pieces.concat()),
        1 => (select(&TRICKS[..]), 1..400_usize).prop_map(|(trick, times)| trick.repeat(times)),
    ]
}

fn json_of_hostile() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        hostile().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((hostile(), inner), 0..4)
                .prop_map(|fields| fields.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

/// Generates JSON as a value, or as text with whitespace and line breaks between its tokens.
fn any_form() -> impl Strategy<Value = Json> {
    (json_of_hostile(), any::<bool>()).prop_map(|(value, is_spread)| match is_spread {
        true => Json::from_text(
            serde_json::to_string_pretty(&value)
                .unwrap()
                .replace('\n', "\r\n"),
        )
        .unwrap(),
        false => value.into(),
    })
}

fn any_item() -> impl Strategy<Value = ModelItem> {
    let schema = prop_oneof![Just("a.v1".to_owned()), hostile()];
    (any_form(), schema, any::<i32>())
        .prop_map(|(context, schema, seconds)| item(&schema, seconds.into(), context))
}

fn any_source() -> impl Strategy<Value = ModelSource> {
    let key = prop_oneof![
        1 => select(&["trigger", "missing", "page", ""][..]).prop_map(str::to_owned),
        4 => hostile(),
    ];
    (key, vec(any_item(), 0..4), any::<bool>()).prop_map(|(key, mut items, is_one)| {
        items.truncate(if is_one { 1 } else { items.len() });
        ModelSource {
            is_one,
            ..list(&key, items)
        }
    })
}

fn any_context() -> impl Strategy<Value = ModelContext> {
    (any_item(), vec(any_source(), 0..4), vec(hostile(), 0..3)).prop_map(
        |(trigger, sources, keys)| {
            let missing = keys.iter().map(|key| missing(key, unavailable())).collect();
            ModelContext::new(trigger, sources, missing)
        },
    )
}

/// Returns the sections that the rendered text of a context should contain.
fn sections(context: &ModelContext) -> Vec<(String, Value)> {
    let sources = context.sources().iter();
    sources
        .filter_map(|source| {
            let mut items = source.items.iter().map(|item| (*item.context).clone());
            let content = match source.is_one {
                true => items.next()?,
                false => items.collect(),
            };
            Some((source.key.clone(), content))
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_rendered_context_parses_back_to_its_content(context in any_context()) {
        for format in FORMATS {
            let text = context.render_with(format, &fences());

            let read = read(format, &text);

            let keys: Vec<_> = context.missing().iter().map(|missing| missing.key.clone()).collect();
            prop_assert_eq!(&read.sources, &sections(&context));
            prop_assert_eq!(&read.trigger, &*context.trigger().context);
            prop_assert_eq!(&read.missing, &keys);
        }
    }
}
