use super::*;
use crate::model::Event;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn a_clone_is_a_pointer() {
    let json = Json::from(json!({"a": [1, 2]}));

    assert!(Arc::ptr_eq(&json.0, &json.clone().0));
}

#[test]
fn text_is_parsed_once_at_its_first_access() {
    let json = Json::from_text(r#"{"a": 1}"#).unwrap();
    assert!(json.0.value.get().is_none());

    let first: *const Value = &raw const *json;

    assert!(std::ptr::eq(first, &raw const *json));
    assert_eq!(json["a"], 1);
}

#[test]
fn text_that_no_value_can_hold_is_refused_when_it_is_read() {
    for text in [
        "",
        "{",
        "nul",
        "1e400",
        r#""\ud800""#,
        r#"{"a": 1} x"#,
        "[1,]",
        "\u{1}",
    ] {
        assert!(
            matches!(Json::from_text(text), Err(JsonError::Syntax(_))),
            "{text}"
        );
        assert!(serde_json::from_str::<Json>(text).is_err(), "{text}");
    }
}

#[test]
fn depth_beyond_the_limit_is_a_typed_error_at_once() {
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);

    assert!(Json::from_text(nested(MAX)).is_ok());
    assert!(matches!(
        Json::from_text(nested(MAX + 1)),
        Err(JsonError::TooDeep)
    ));
    assert!(matches!(
        Json::from_text(nested(100_000)),
        Err(JsonError::TooDeep)
    ));
    assert!(serde_json::from_str::<Json>(&nested(MAX + 1)).is_err());
}

#[test]
fn sixty_four_levels_are_read_and_one_more_is_not() {
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);

    assert!(Json::from_text(nested(64)).is_ok());
    assert!(matches!(
        Json::from_text(nested(65)),
        Err(JsonError::TooDeep)
    ));
}

const MAX: usize = json_check::MAX_DEPTH;

#[test]
fn size_beyond_the_limit_is_a_typed_error() {
    let text = format!("\"{}\"", "x".repeat(Json::MAX_BYTES));

    assert!(matches!(
        Json::from_text(text),
        Err(JsonError::TooLarge { .. })
    ));
}

#[test]
fn a_value_of_any_depth_is_refused_by_canonical_and_dropped_safely() {
    let mut value = json!(0);
    for _ in 0..200_000 {
        value = Value::Array(vec![value]);
    }
    let json = Json::from(value);

    assert!(matches!(
        json.canonical(usize::MAX),
        Err(JsonError::TooDeep)
    ));
    assert_eq!(json.size(), usize::MAX);
}

#[test]
fn canonical_replaces_nul_and_removes_duplicate_keys_and_line_breaks() {
    let json = Json::from_text("{\"a\\u0000\": \"x\\u0000\",\n \"b\": 1, \"b\": 2}").unwrap();

    let canonical = json.canonical(100).unwrap();

    assert_eq!(canonical, json!({"a\u{FFFD}": "x\u{FFFD}", "b": 2}));
    assert!(!canonical.to_string().contains('\n'));
}

#[test]
fn canonical_returns_the_same_pointer_without_a_change() {
    let json = Json::from_text(r#"{"a":{"b":1},"c":{"b":1}}"#).unwrap();

    assert!(Arc::ptr_eq(&json.0, &json.canonical(100).unwrap().0));
}

#[test]
fn a_duplicate_key_is_found_among_many_distinct_keys() {
    let fields: Vec<String> = (0..100).map(|n| format!("\"k{n}\":{n}")).collect();
    let distinct = format!("{{{}}}", fields.join(","));
    let repeated = format!("{{{},\"k99\":0}}", fields.join(","));

    assert!(!json_check::check_text(&distinct).unwrap().repeated_key);
    assert!(json_check::check_text(&repeated).unwrap().repeated_key);
}

#[test]
fn a_string_at_a_path_is_read_unquoted() {
    let json = Json::from(json!({"url": "u", "a": {"b": ["x", 7]}, "n": 1}));

    for (path, expected) in [
        ("url", Some("u")),
        ("$.a.b[0]", Some("x")),
        ("a.b[1]", None),
        ("n", None),
        ("$[", None),
    ] {
        assert_eq!(json.text(path), expected, "{path}");
    }
}

#[test]
fn a_typed_view_is_equal_for_text_and_value() {
    let text = Json::from_text("[1, 2]").unwrap();
    let value = Json::from(json!([1, 2]));

    assert_eq!(text.parse::<Vec<u8>>().unwrap(), [1, 2]);
    assert_eq!(value.parse::<Vec<u8>>().unwrap(), [1, 2]);
    assert!(value.parse::<String>().is_err());
}

#[test]
fn text_inside_a_struct_stays_text_and_is_written_as_it_was() {
    #[derive(Deserialize, Serialize)]
    struct Envelope {
        context: Option<Json>,
    }
    let text = r#"{"context":{"b":1.50,"a":[]}}"#;

    let read: Envelope = serde_json::from_str(text).unwrap();

    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert_eq!(
        serde_json::from_value::<Envelope>(json!({"context": 5}))
            .unwrap()
            .context
            .unwrap(),
        json!(5)
    );
}

const RESERVED: &str = json_check::RESERVED_KEY;

/// Returns JSON text with the reserved key. Its string is JSON text of `levels` levels, which `serde_json` would parse too.
fn nested_in_a_string(levels: usize) -> String {
    let inner = "[".repeat(levels) + &"]".repeat(levels);
    json!({RESERVED: inner}).to_string()
}

#[test]
fn the_key_of_nested_json_text_is_refused_however_it_is_written() {
    let escaped = nested_in_a_string(100_000).replace('$', "\\u0024");
    let below = format!("[{{\"a\": {}}}]", nested_in_a_string(1));

    for text in [nested_in_a_string(100_000), escaped, below] {
        let error = Json::from_text(text.clone()).unwrap_err();
        assert!(matches!(error, JsonError::ReservedKey), "{error}");
        assert!(error.to_string().contains(RESERVED), "{error}");
        assert!(json_check::parse(&text).is_err());
        assert!(json_check::parse_strictly(&text).is_err());
        assert!(json_check::parse_as::<Vec<Value>>(text.as_bytes()).is_err());
        assert!(serde_json::from_str::<Json>(&text).is_err());
    }
}

#[test]
fn a_value_with_the_key_of_nested_json_text_has_no_canonical_form() {
    let value = Json::from(json!({"a": [{RESERVED: "no JSON"}]}));

    let error = value.canonical(100).unwrap_err();

    assert!(matches!(error, JsonError::ReservedKey), "{error}");
}

#[test]
fn an_event_whose_context_has_the_key_of_nested_json_text_is_read_without_parsing_the_string() {
    let mut event = json!({
        "type": "breadcrumb.created",
        "breadcrumb_id": "01970000-0000-7000-8000-000000000000",
        "version": 1,
        "updated_at": "2026-01-01T00:00:00Z",
    })
    .to_string();
    event.pop();
    let text = format!("{event}, \"context\": {}}}", nested_in_a_string(100_000));

    let event: Event = serde_json::from_str(&text).unwrap();

    let context = event.context.unwrap();
    assert_eq!(*context, Value::Null);
    assert!(context.parse::<Value>().is_err());
}

/// Generates JSON text with dangerous keys, escapes and depths, and a flag that is `true` if the text has the reserved key.
fn hostile_text() -> impl Strategy<Value = (String, bool)> {
    let leaf = prop_oneof![
        Just(("null".to_owned(), false)),
        Just(("1e308".to_owned(), false)),
        Just((r#""[[[[\"a\"]]]]""#.to_owned(), false)),
        Just((r#""{""#.to_owned(), false)),
    ];
    leaf.prop_recursive(6, 48, 4, |inner| {
        let keys = prop_oneof![
            8 => Just("a".to_owned()),
            1 => Just(RESERVED.to_owned()),
            1 => Just(RESERVED.replace('$', "\\u0024")),
            1 => Just("$serde_json::private::Number".to_owned()),
            1 => Just(r"\u0000".to_owned()),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| {
                let (texts, bad): (Vec<_>, Vec<_>) = items.into_iter().unzip();
                (format!("[{}]", texts.join(",")), bad.contains(&true))
            }),
            prop::collection::vec((keys, inner), 0..4).prop_map(|fields| {
                let is_bad =
                    |(key, (_, bad)): &(String, (String, bool))| *bad || key.ends_with("RawValue");
                let bad = fields.iter().any(is_bad);
                let texts = fields
                    .iter()
                    .map(|(key, (text, _))| format!("\"{key}\":{text}"));
                (format!("{{{}}}", texts.collect::<Vec<_>>().join(",")), bad)
            }),
        ]
    })
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(".{0,4}", inner, 0..6)
                .prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

proptest! {
    #![proptest_config(crate::fuzz::config())]

    #[test]
    fn the_check_accepts_exactly_the_texts_that_serde_json_accepts(text in r#"[\[\]{},:"\\a-f0-9eE+.\- ud]{0,24}"#) {
        prop_assert_eq!(Json::from_text(text.clone()).is_ok(), serde_json::from_str::<Value>(&text).is_ok());
        prop_assert_eq!(json_check::parse(&text).ok(), serde_json::from_str::<Value>(&text).ok());
    }

    #[test]
    fn hostile_text_is_refused_exactly_if_it_has_the_reserved_key((text, is_reserved) in hostile_text()) {
        let accepted = !is_reserved;
        prop_assert_eq!(Json::from_text(text.clone()).is_ok(), accepted);
        prop_assert_eq!(json_check::parse_as::<Value>(text.as_bytes()).is_ok(), accepted);
        let value = json_check::parse(&text);
        prop_assert_eq!(value.is_ok(), accepted);
        if let Ok(value) = value {
            prop_assert_eq!(value, serde_json::from_str::<Value>(&text).unwrap());
        }
    }

    #[test]
    fn any_value_survives_text_and_its_size_is_the_length_of_its_text(value in any_json()) {
        let json = Json::from(value.clone());
        let text = json.to_string();

        prop_assert_eq!(json.size(), text.len());
        prop_assert_eq!(&*Json::from_text(text).unwrap(), &value);
    }
}
