use super::*;
use crate::workflow::syntax::{UnknownFields, Written};
use serde_json::json;
use std::collections::BTreeMap;

impl Variables for BTreeMap<&str, Json> {
    fn get(&self, name: &str) -> Option<Json> {
        self.get(name).cloned()
    }

    fn search(&self, _: &Path, _: &Value) -> Result<(), Unresolved> {
        Ok(())
    }

    fn compile_pattern(&self) -> Result<(), Unresolved> {
        Ok(())
    }
}

fn variables() -> BTreeMap<&'static str, Json> {
    BTreeMap::from([
        (
            "draft",
            json!({"text": "hi", "score": 7, "tags": ["a", "b"]}).into(),
        ),
        ("limit", json!(5).into()),
        ("a-b", json!({"c": 1}).into()),
    ])
}

fn compile(value: &Value) -> Result<Expression, String> {
    Expression::compile(value, &DefinitionPath::default().field("x"))
        .map_err(|error| error.to_string())
}

fn resolve(value: &Value) -> Result<Value, String> {
    let resolved = compile(value)?.resolve(&variables(), 1_000);
    resolved
        .map(Json::into_value)
        .map_err(|error| error.to_string())
}

fn holds(test: &Value) -> Result<bool, String> {
    let (top, unknown) = (DefinitionPath::default(), UnknownFields::new(true));
    let test = Test::compile(&Written::new(test, top, &unknown));
    let test = test.map_err(|error| error.to_string())?;
    test.holds(&variables()).map_err(|error| error.to_string())
}

#[test]
fn an_expression_retains_its_type_alone_and_is_rendered_inside_a_string() {
    for (written, expected) in [
        (json!("${draft.score}"), json!(7)),
        (json!("${ draft.tags }"), json!(["a", "b"])),
        (json!("${$.draft.text}"), json!("hi")),
        (
            json!("score ${draft.score}: ${draft.text}!"),
            json!("score 7: hi!"),
        ),
        (json!("tags ${draft.tags}"), json!("tags [\"a\",\"b\"]")),
        (json!("${draft.tags[*]}"), json!(["a", "b"])),
        (json!("${draft.tags[1]}"), json!("b")),
        (json!("${draft['text']}"), json!("hi")),
        (json!("${a-b.c}"), json!(1)),
        (json!("${draft.nothing?}"), json!(null)),
        (json!("<${draft.nothing?}>"), json!("<>")),
        (json!("a $${draft} costs $5"), json!("a ${draft} costs $5")),
        (
            json!({"a": ["${limit}", 1], "b": true}),
            json!({"a": [5, 1], "b": true}),
        ),
    ] {
        assert_eq!(resolve(&written), Ok(expected), "{written}");
    }
}

#[test]
fn a_missing_value_is_an_error_that_names_the_expression_and_the_fix() {
    let error = resolve(&json!("${draft.nothing}")).unwrap_err();

    assert_eq!(
        error,
        "${draft.nothing} has no value; write ? before the closing brace if the value is optional"
    );
}

#[test]
fn a_parse_error_names_the_position_and_the_expression() {
    for (written, expected) in [
        (
            "${draft",
            "x: cannot parse expression \"draft\": the closing } is missing",
        ),
        (
            "${}",
            "x: cannot parse expression \"}\": an expression starts with a variable name",
        ),
        (
            "${a b}",
            "x: cannot parse expression \"a b}\": a variable name is followed by . or [",
        ),
        ("${draft..a..b..c}", "at most 1 are allowed"),
    ] {
        let error = compile(&json!(written)).unwrap_err();

        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_place_within_a_value_is_named() {
    let error = compile(&json!({"a": [1, "${"]})).unwrap_err();

    assert!(error.starts_with("x.a[1]: "), "{error}");
}

#[test]
fn a_brace_in_quotes_does_not_end_an_expression() {
    assert_eq!(resolve(&json!("${draft['}']?}")), Ok(json!(null)));
}

#[test]
fn a_value_over_its_limit_is_refused_before_it_is_built() {
    let many: Vec<Value> = (0..200).map(|_| json!("${draft.text} and more")).collect();

    let error = resolve(&json!(many)).unwrap_err();

    assert_eq!(
        error,
        "a value of the flow is larger than 1000 bytes or nests too deep; use a smaller value"
    );
}

#[test]
fn tests_combine_conditions() {
    let high = json!({"path": "draft.score", "op": "gte", "value": 7});
    let low = json!({"path": "$.draft.score", "op": "lt", "value": 3});
    for (test, expected) in [
        (high.clone(), true),
        (low.clone(), false),
        (json!({"all": [high, low]}), false),
        (json!({"any": [high, low]}), true),
        (json!({"not": low}), true),
        (json!({"all": []}), true),
        (
            json!({"path": "draft.score", "op": "gt", "value": "${limit}"}),
            true,
        ),
        (json!({"path": "draft", "op": "exists"}), true),
        (
            json!({"path": "gone", "op": "exists", "value": false}),
            true,
        ),
        (json!({"path": "gone", "op": "ne", "value": 1}), true),
        (json!({"path": "gone.x", "op": "eq", "value": 1}), false),
        (
            json!({"path": "draft.tags[*]", "op": "eq", "value": "b"}),
            true,
        ),
    ] {
        assert_eq!(holds(&test), Ok(expected), "{test}");
    }
}

#[test]
fn a_test_that_cannot_be_evaluated_is_refused_with_its_place() {
    for (test, expected) in [
        (
            json!({"path": "draft", "op": "equals", "value": 1}),
            "op: unknown op \"equals\"",
        ),
        (
            json!({"path": "draft", "op": "matches", "value": "("}),
            "value: ",
        ),
        (
            json!({"path": "draft", "op": "eq"}),
            "value: op \"eq\" needs a value",
        ),
        (
            json!({"pat": "draft", "op": "eq"}),
            "did you mean \"path\"?",
        ),
        (json!({"all": [], "any": []}), "are mutually exclusive"),
        (json!({"not": {"path": "a", "op": "eq"}}), "not.value: "),
        (json!([]), "must be an object"),
    ] {
        let error = holds(&test).unwrap_err();

        assert!(error.contains(expected), "{test}: {error}");
    }
}

#[test]
fn a_model_input_separates_text_from_values_and_has_a_size_limit() {
    let input = |written: &Value, most| {
        let input = compile(written).unwrap().model_input(&variables(), most);
        input.map_err(|error| error.to_string())
    };
    let text = |text: &str| TextPart::Text(text.to_owned());
    let value = |source: &str, value: Value| TextPart::Value {
        source: source.to_owned(),
        value: value.into(),
    };

    assert_eq!(
        input(&json!("Rate ${draft.tags}: $${limit}"), 100),
        Ok(ModelInput::Text(vec![
            text("Rate "),
            value("draft.tags", json!(["a", "b"])),
            text(": ${limit}"),
        ]))
    );
    assert_eq!(
        input(&json!("Hi"), 100),
        Ok(ModelInput::Text(vec![text("Hi")]))
    );
    assert_eq!(
        input(&json!("${limit}"), 100),
        Ok(ModelInput::Data(json!(5).into()))
    );
    assert_eq!(
        input(&json!({"a": "${limit}"}), 100),
        Ok(ModelInput::Data(json!({"a": 5}).into()))
    );
    for written in [
        "${draft}",
        "Rate ${draft} and ${draft}",
        "A long text of the definition",
    ] {
        let refused = input(&json!(written), 20).unwrap_err();
        assert!(refused.contains("larger than 20 bytes"), "{refused}");
    }
}
