//! Property tests of the loader with any JSON, and with definitions in which one value is replaced.

use super::*;
use crate::workflow::FlowRun;
use proptest::collection::{hash_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::Arc;

const WORDS: [&str; 34] = [
    "name",
    "models",
    "prompts",
    "schemas",
    "tools",
    "agents",
    "flows",
    "policies",
    "steps",
    "main",
    "id",
    "as",
    "agent",
    "tool",
    "flow",
    "parallel",
    "for_each",
    "loop",
    "max",
    "until",
    "if",
    "then",
    "else",
    "match",
    "cases",
    "is",
    "try",
    "on_failure",
    "set",
    "return",
    "fail",
    "escalate",
    "depends_on",
    "input",
];

/// Generates JSON whose objects often have the field names of a definition.
pub(super) fn any_json() -> impl Strategy<Value = Value> {
    const TEXTS: [&str; 8] = [
        "search",
        "main",
        "a",
        "${input}",
        "${a.b",
        "${last} x",
        "eq",
        "input",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (1_u8..4).prop_map(Value::from),
        select(&TEXTS[..]).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        let name = prop_oneof![
            6 => select(&WORDS[..]).prop_map(str::to_owned),
            1 => ".{0,4}",
        ];
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            hash_map(name, inner, 0..4)
                .prop_map(|fields| fields.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

/// Returns the JSON pointers of a value and of all values in it.
pub(super) fn pointers(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), value)];
    while let Some((pointer, value)) = open.pop() {
        match value {
            Value::Array(items) => {
                open.extend(
                    items
                        .iter()
                        .enumerate()
                        .map(|(at, item)| (format!("{pointer}/{at}"), item)),
                );
            }
            Value::Object(fields) => {
                open.extend(
                    fields
                        .iter()
                        .map(|(name, field)| (format!("{pointer}/{name}"), field)),
                );
            }
            _ => {}
        }
        found.push(pointer);
    }
    found
}

/// Loads a definition, and begins each of its flows.
fn load(definition: &Value) {
    let Ok(workflow) = Workflow::from_json(definition) else {
        return;
    };
    let workflow = Arc::new(workflow);
    for flow in workflow.flows() {
        drop(FlowRun::begin(
            Arc::clone(&workflow),
            flow.name,
            "run",
            Value::Null,
        ));
    }
}

proptest! {
    #![proptest_config(crate::fuzz::config())]

    #[test]
    fn no_json_makes_the_loader_panic(definition in any_json()) {
        load(&definition);
    }

    #[test]
    fn no_steps_make_the_loader_or_the_interpreter_panic(steps in vec(any_json(), 1..4)) {
        load(&with_steps(&Value::Array(steps)));
    }

    #[test]
    fn no_change_to_a_sound_definition_makes_the_loader_panic(
        at in any::<prop::sample::Index>(), value in any_json(),
    ) {
        let mut definition = sound();
        let pointers = pointers(&definition);
        *definition.pointer_mut(&pointers[at.index(pointers.len())]).unwrap() = value;

        load(&definition);
    }

    #[test]
    fn no_text_makes_the_loader_panic(text in ".{0,64}") {
        drop(Workflow::parse(&text));
    }

    #[test]
    fn the_place_of_an_error_leads_into_the_definition(
        at in any::<prop::sample::Index>(), value in any_json(),
    ) {
        let mut definition = sound();
        let pointers = pointers(&definition);
        *definition.pointer_mut(&pointers[at.index(pointers.len())]).unwrap() = value;
        let Err(error) = Workflow::from_json(&definition) else { return Ok(()) };

        // The last part of the path can be the missing field itself.
        let parts = error.path().parts();
        let mut found = Some(&definition);
        for part in parts.iter().take(parts.len().saturating_sub(1)) {
            found = found.and_then(|value| match part {
                crate::workflow::DefinitionPathPart::Field(name) => value.get(name),
                crate::workflow::DefinitionPathPart::Item(item) => value.get(item),
            });
        }
        prop_assert!(found.is_some(), "{}", error);
    }
}
