use super::super::budget::Budget;
use crate::hints::{Hints, HintsFailure, HintsReason, MAX_OUTPUT_BYTES, MAX_STEPS};
use crate::model::Json;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::error::Error;

/// A step of a generated filter path.
#[derive(Clone, Debug)]
enum Step {
    Name(&'static str),
    Anywhere(&'static str),
    Index(i64),
    Each,
}

/// The step from a node to a child.
#[derive(Clone, Copy, Debug)]
enum ChildPosition<'c> {
    Field(&'c str),
    Item(usize, usize),
}

fn format_path(steps: &[Step]) -> String {
    let step = |step: &Step| match step {
        Step::Name("it's") => "[\"it's\"]".to_owned(),
        Step::Anywhere("it's") => "..['it\\'s']".to_owned(),
        Step::Name(name) => format!(".{name}"),
        Step::Anywhere(name) => format!("..{name}"),
        Step::Index(index) => format!("[{index}]"),
        Step::Each => "[*]".to_owned(),
    };
    format!("${}", steps.iter().map(step).collect::<String>())
}

/// Returns `true` if the node at `node_path` is at or below the path `steps`.
fn reaches(steps: &[Step], node_path: &[ChildPosition<'_>]) -> bool {
    let Some((step, later)) = steps.split_first() else {
        return true;
    };
    let Some((first, rest)) = node_path.split_first() else {
        return false;
    };
    match (step, first) {
        (Step::Name(name), ChildPosition::Field(field)) => name == field && reaches(later, rest),
        (Step::Name(_) | Step::Anywhere(_), ChildPosition::Item(..)) => reaches(steps, rest),
        (Step::Anywhere(name), ChildPosition::Field(field)) => {
            (name == field && reaches(later, rest)) || reaches(steps, rest)
        }
        (Step::Index(expected_index), ChildPosition::Item(index, of)) => {
            let from_end = i64::try_from(*index).unwrap() - i64::try_from(*of).unwrap();
            let is =
                *expected_index == i64::try_from(*index).unwrap() || *expected_index == from_end;
            is && reaches(later, rest)
        }
        (Step::Index(_), ChildPosition::Field(_)) => false,
        (Step::Each, _) => reaches(later, rest),
    }
}

#[derive(Clone, Debug)]
struct Paths {
    include: Vec<Vec<Step>>,
    exclude: Vec<Vec<Step>>,
}

impl Paths {
    fn hints(&self, transform: &Value, mode: &str) -> Value {
        let texts = |all: &[Vec<Step>]| {
            all.iter()
                .map(|steps| format_path(steps))
                .collect::<Vec<_>>()
        };
        let mut hints =
            json!({"mode": mode, "transform": transform, "exclude": texts(&self.exclude)});
        if !self.include.is_empty() {
            hints["include"] = json!(texts(&self.include));
        }
        hints
    }

    fn filter<'c>(
        &self,
        value: &'c Value,
        node_path: &mut Vec<ChildPosition<'c>>,
    ) -> Option<Value> {
        let under = |all: &[Vec<Step>]| all.iter().any(|steps| reaches(steps, node_path));
        if under(&self.exclude) {
            return None;
        }
        let included = self.include.is_empty() || under(&self.include);
        let mut inside = |step, value: &'c Value| {
            node_path.push(step);
            let filtered = self.filter(value, node_path);
            node_path.pop();
            filtered
        };
        let (filtered, is_empty) = match value {
            Value::Array(items) => {
                let of = items.len();
                let items = items.iter().enumerate();
                let filtered: Vec<_> = items
                    .filter_map(|(at, item)| inside(ChildPosition::Item(at, of), item))
                    .collect();
                (json!(filtered), filtered.is_empty())
            }
            Value::Object(fields) => {
                let filtered: Map<_, _> = fields
                    .iter()
                    .filter_map(|(name, field)| {
                        Some((name.clone(), inside(ChildPosition::Field(name), field)?))
                    })
                    .collect();
                (json!(filtered), filtered.is_empty())
            }
            scalar => (scalar.clone(), true),
        };
        (included || !is_empty).then_some(filtered)
    }

    fn expected(&self, context: &Value) -> Value {
        let empty = match context {
            Value::Array(_) => json!([]),
            Value::Object(_) => json!({}),
            _ => Value::Null,
        };
        self.filter(context, &mut Vec::new()).unwrap_or(empty)
    }

    /// Adds the leaves at or below an excluded path to `found`.
    fn excluded<'c>(
        &self,
        value: &'c Value,
        node_path: &mut Vec<ChildPosition<'c>>,
        found: &mut Vec<String>,
    ) {
        match value {
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    node_path.push(ChildPosition::Item(at, items.len()));
                    self.excluded(item, node_path, found);
                    node_path.pop();
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    node_path.push(ChildPosition::Field(name));
                    self.excluded(field, node_path, found);
                    node_path.pop();
                }
            }
            leaf => {
                if self.exclude.iter().any(|steps| reaches(steps, node_path)) {
                    found.push(leaf.to_string().trim_matches('"').to_owned());
                }
            }
        }
    }
}

const NAMES: [&str; 5] = ["a", "b", "items", "secret", "it's"];

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(NAMES.to_vec())
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => name().prop_map(Step::Name),
        1 => name().prop_map(Step::Anywhere),
        1 => (-2_i64..3).prop_map(Step::Index),
        1 => Just(Step::Each),
    ];
    prop::collection::vec(step, 1..4)
}

fn paths() -> impl Strategy<Value = Paths> {
    let some = || prop::collection::vec(steps(), 0..4);
    (some(), some()).prop_map(|(include, exclude)| Paths { include, exclude })
}

/// Generates a context in which each leaf is a unique string.
fn context() -> impl Strategy<Value = Value> {
    let shape = Just(Value::Null).prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            2 => prop::collection::vec((name(), inner), 0..4).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect())
            }),
        ]
    });
    shape.prop_map(|mut shape| {
        mark(&mut shape, &mut 0);
        shape
    })
}

fn mark(value: &mut Value, next: &mut usize) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| mark(item, next)),
        Value::Object(fields) => fields.values_mut().for_each(|field| mark(field, next)),
        leaf => {
            *next += 1;
            *leaf = json!(format!("<leaf {next}>"));
        }
    }
}

fn path_text() -> impl Strategy<Value = String> {
    prop_oneof![
        steps().prop_map(|steps| format_path(&steps)),
        prop::sample::select(vec![
            "$",
            "$.*",
            "$..*",
            "$..secret",
            "$..[?@.a]",
            "$.items[0:2]",
            "$['a','b']"
        ])
        .prop_map(str::to_owned),
    ]
}

fn template() -> impl Strategy<Value = String> {
    let tag = prop::sample::select(vec![
        "{{context}}",
        "{{this}}",
        "{{a}}",
        "{{context.items.length}}",
        "{{lookup context 'secret'}}",
        "{{@root.context.b}}",
        "{{#each context}}{{@key}}{{this}}{{#each this}}{{this}}{{../a}}{{/each}}{{/each}}",
        "{{len context}}",
        "{{#with context.secret}}{{this}}{{else}}{{context.a}}{{/with}}",
        "{{#if (eq context.a context.b)}}{{context.a}}{{/if}}",
        "{{#each context.items as |x|}}{{x}}{{x.secret}}{{/each}}",
        "text",
    ]);
    prop::collection::vec(tag, 0..5).prop_map(|tags| tags.concat())
}

fn rule() -> impl Strategy<Value = Value> {
    let format = prop::collection::vec(path_text(), 0..3);
    prop_oneof![
        path_text().prop_map(|path| json!({"type": "extract", "value": path})),
        format.prop_map(|paths| {
            let text: String = paths.iter().map(|path| format!("x{{{path}}}")).collect();
            json!({"type": "format", "format": text})
        }),
        Just(json!({"type": "literal", "literal": ["a"]})),
        template().prop_map(|template| match cfg!(feature = "templates") {
            true => json!({"type": "template", "template": template}),
            false => json!({"type": "literal", "literal": template}),
        }),
    ]
}

fn transform() -> impl Strategy<Value = Value> {
    prop::collection::vec((name(), rule()), 0..4).prop_map(|rules| {
        let rules = rules
            .into_iter()
            .map(|(name, rule)| (name.to_owned(), rule));
        Value::Object(rules.collect())
    })
}

/// Returns all printed forms of a failure and its causes.
fn shown(failure: &HintsFailure) -> String {
    let mut text = format!("{failure} {failure:?} {failure:#?}");
    let mut cause = failure.source();
    while let Some(error) = cause {
        text.push_str(&format!("{error} {error:?}"));
        cause = error.source();
    }
    text
}

/// Generates JSON of any shape that resembles hints.
fn anything() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "include",
        "exclude",
        "mode",
        "transform",
        "type",
        "template",
        "extract",
        "format",
        "literal",
        "value",
        "merge",
        "replace",
        "jq",
        "$.a",
        "a.b",
        "..a",
        "{a}",
        "{{#each context}}{{this}}{{/each}}",
        "{{a",
        "",
        "*",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..5).prop_map(|fields| {
                Value::Object(
                    fields
                        .into_iter()
                        .map(|(name, field)| (name.to_owned(), field))
                        .collect(),
                )
            }),
        ]
    })
}

fn hostile_text() -> impl Strategy<Value = String> {
    const PIECES: &str = "{{ }} {{{ }}} { } # / ^ ~ & ! -- > * ( ) [ ] | \" ' \\ if each with else as lookup eq a \
        context . .. @root @index this = 1 - null true , : é {{#if␣a}} {{/if}} {{else}} {{else␣if␣b}} \
        {{#each␣a␣as␣|x␣y|}} {{/each}} {{~ ~}} {{!-- --}} $ ? @ ␣ \u{2028}";
    let pieces = PIECES.split(' ').map(|piece| piece.replace('␣', " "));
    let piece = prop::sample::select(pieces.collect::<Vec<_>>());
    prop_oneof![
        prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat()),
        any::<String>(),
    ]
}

proptest! {
    #![proptest_config(crate::fuzz::config())]

    #[test]
    fn the_filter_retains_exactly_the_values_that_the_paths_select(paths in paths(), context in context()) {
        let hints = Hints::from_json(&paths.hints(&json!({}), "replace")).unwrap();

        let shaped = hints.apply(&Json::from(context.clone())).unwrap();

        prop_assert_eq!(&*shaped, &paths.expected(&context));
    }

    #[test]
    fn nothing_that_is_excluded_is_ever_seen(
        paths in paths(),
        transform in transform(),
        mode in prop::sample::select(vec!["replace", "merge"]),
        context in context(),
    ) {
        let hints = Hints::from_json(&paths.hints(&transform, mode));
        // A generated path of a rule can exceed the limits of JSONPath.
        let Ok(hints) = hints else { return Ok(()) };
        let mut secrets = Vec::new();
        paths.excluded(&context, &mut Vec::new(), &mut secrets);

        let output = match hints.apply(&Json::from(context.clone())) {
            Ok(shaped) => format!("{shaped} {hints:?}"),
            Err(failure) => shown(&failure) + &format!("{hints:?}"),
        };

        for secret in secrets {
            prop_assert!(!output.contains(&secret), "{secret} of {context} in {output}");
        }
    }

    #[test]
    fn no_hints_and_no_context_make_it_panic_or_take_more_steps_than_stated(
        hints in anything(),
        context in anything(),
    ) {
        let context = Json::from(context);
        let Ok(hints) = Hints::from_json(&hints) else { return Ok(()) };
        let mut budget = Budget::new(MAX_STEPS, MAX_OUTPUT_BYTES);

        let shaped = hints.apply_within(&context, &mut budget);

        let used_steps = MAX_STEPS - budget.remaining().0;
        if used_steps > 0 && shaped.is_ok() {
            let second_result = hints.apply_within(&context, &mut Budget::new(used_steps - 1, MAX_OUTPUT_BYTES));
            prop_assert_eq!(second_result.unwrap_err().reason, HintsReason::TooManySteps);
        }
        if let Ok(shaped) = shaped {
            prop_assert!(shaped.size() <= Json::MAX_BYTES);
        }
    }

    #[test]
    fn no_text_of_a_rule_or_path_makes_it_panic(
        text in hostile_text(),
        kind in prop::sample::select(vec![("template", "template"), ("format", "format"), ("extract", "value")]),
        context in context(),
    ) {
        let rule = json!({"transform": {"x": {"type": kind.0, kind.1: text}}});
        let context = Json::from(context);

        for hints in [rule, json!({"exclude": [text]})] {
            let shaped = Hints::from_json(&hints).map(|hints| hints.apply(&context));

            prop_assert!(shaped.is_err() || shaped.is_ok_and(|shaped| shaped.is_ok()));
        }
    }
}
