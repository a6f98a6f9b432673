//! Property test: for any schema and value, a check ends with a result and a short message.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c]{0,3}|\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            vec(("[a-c]", inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Generates a schema without subschemas.
fn plain_schema() -> impl Strategy<Value = Value> {
    let reference = prop_oneof![
        Just("#"),
        Just("#/$defs/a"),
        Just("#/$defs/b"),
        Just("#/properties/a"),
        Just("#/allOf/0"),
    ];
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        prop_oneof![
            Just("string"),
            Just("object"),
            Just("array"),
            Just("integer"),
            Just("null")
        ]
        .prop_map(|name| json!({"type": name})),
        reference.prop_map(|to| json!({"$ref": to})),
        value().prop_map(|value| json!({"const": value})),
        vec(value(), 0..4).prop_map(|values| json!({"enum": values})),
        any::<i16>().prop_map(|least| json!({"minimum": least, "maxLength": least.unsigned_abs()})),
        any::<f32>().prop_map(|step| json!({"multipleOf": step})),
        "[a-c.*+()|\\[\\]{}]{0,6}".prop_map(|pattern| json!({"pattern": pattern})),
        Just(json!({"uniqueItems": true, "minItems": 1, "required": ["a"]})),
        value(),
    ]
}

/// Generates a schema of known keywords, mostly with valid arguments, and with references that often have a target.
fn schema() -> impl Strategy<Value = Value> {
    plain_schema().prop_recursive(4, 30, 4, |inner| {
        let word = prop_oneof![
            Just("not"),
            Just("if"),
            Just("then"),
            Just("else"),
            Just("items"),
            Just("contains"),
            Just("additionalProperties"),
            Just("propertyNames"),
            Just("additionalItems"),
        ];
        let list = prop_oneof![
            Just("allOf"),
            Just("anyOf"),
            Just("oneOf"),
            Just("prefixItems"),
            Just("items")
        ];
        let named = prop_oneof![
            Just("$defs"),
            Just("properties"),
            Just("patternProperties"),
            Just("dependentSchemas"),
            Just("dependencies"),
            Just("definitions"),
        ];
        let part = prop_oneof![
            (word.prop_map(str::to_owned), inner.clone()),
            (
                list.prop_map(str::to_owned),
                vec(inner.clone(), 0..4).prop_map(Value::from)
            ),
            (
                named.prop_map(str::to_owned),
                vec(("[a-c]", inner), 0..3)
                    .prop_map(|parts| Value::Object(parts.into_iter().collect()))
            ),
        ];
        vec(part, 1..4).prop_map(|parts| Value::Object(parts.into_iter().collect()))
    })
}

proptest! {
    #![proptest_config(crate::fuzz::config())]

    #[test]
    fn no_value_and_no_schema_make_a_check_panic(schema in schema(), values in vec(value(), 1..4)) {
        if let Ok(checker) = Checker::compile(&schema) {
            for value in values {
                if let Err(message) = checker.check(&value) {
                    prop_assert!(message.len() < 4_096, "{}", message);
                }
            }
        }
    }
}
