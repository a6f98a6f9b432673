use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::document::{MAX_DEPTH, MAX_LOCATION_BYTES};
use super::{Path, PathError};

fn nodes(path: &str, value: &Value) -> Vec<Value> {
    Path::parse(path)
        .unwrap()
        .nodes(value)
        .unwrap()
        .into_iter()
        .cloned()
        .collect()
}

fn refusal(path: &str) -> PathError {
    Path::parse(path).expect_err(path)
}

fn assert_nodes(value: &Value, cases: &[(&str, Value)]) {
    for (path, expected) in cases {
        assert_eq!(&Value::Array(nodes(path, value)), expected, "{path}");
    }
}

#[test]
fn a_bare_path_is_read_from_the_root() {
    let cases = [
        ("a", "$.a"),
        ("a.b[0]", "$.a.b[0]"),
        ("[0].a", "$[0].a"),
        ("['a']", "$['a']"),
        (".a", "$.a"),
        ("..a", "$..a"),
        ("*", "$.*"),
        ("$", "$"),
        (" \t$.a \r\n", "$.a"),
        (" a ", "$.a"),
    ];
    for (text, source) in cases {
        assert_eq!(Path::parse(text).unwrap().source(), source, "{text}");
    }
}

#[test]
fn paths_are_equal_by_source_and_shown_by_it() {
    let path = Path::parse("a").unwrap();
    assert_eq!(path, Path::parse(" $.a").unwrap());
    assert_eq!(path.clone(), path);
    assert_ne!(path, Path::parse("$['a']").unwrap());
    assert_eq!(format!("{path:?}"), r#"Path("$.a")"#);
}

#[test]
fn a_path_may_cross_threads() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Path>();
    check::<PathError>();
}

#[test]
fn a_path_is_plain_when_it_has_only_names_and_indexes() {
    for path in [
        "$",
        "a",
        "$.user-name",
        "$['a'][\"b\"]",
        "$[0][-1]",
        "$ .a [ 0 ] [ 'b' ]",
        "_é1",
    ] {
        assert!(Path::parse(path).unwrap().is_plain(), "{path}");
    }
    for path in ["$.*", "$..a", "$['a','b']", "$[1:3]", "$[?@.a]", "$[*].a"] {
        assert!(!Path::parse(path).unwrap().is_plain(), "{path}");
    }
}

#[test]
fn a_plain_path_selects_at_most_one_node() {
    let value = json!({
        "a": {"b": [10, 20, 30]}, "user-name": "x", "a b": 1, "": 2, "naïve": 3, "日本": 4,
        "'": 5, "\"": 6, "\\": 7, "😀": 8, "\t\n": 9, "0": 10, "b\u{8}f\u{c}r\r/": 11,
    });
    assert_nodes(
        &value,
        &[
            ("$", json!([value])),
            ("$.a.b[0]", json!([10])),
            ("$.a.b[-1]", json!([30])),
            ("$.a.b[-3]", json!([10])),
            ("$.a.b[-4]", json!([])),
            ("$.a.b[3]", json!([])),
            ("$.a.b[9007199254740991]", json!([])),
            ("$.a.b[-9007199254740991]", json!([])),
            ("$.a.b.c", json!([])),
            ("$.a[0]", json!([])),
            ("$[0]", json!([])),
            ("$['0']", json!([10])),
            ("$.user-name", json!(["x"])),
            ("$['a b']", json!([1])),
            ("$['']", json!([2])),
            ("$.naïve", json!([3])),
            ("$.日本", json!([4])),
            (r"$['\'']", json!([5])),
            (r#"$["'"]"#, json!([5])),
            (r#"$["\""]"#, json!([6])),
            (r"$['\\']", json!([7])),
            (r"$['\ud83d\uDE00']", json!([8])),
            (r"$['\t\n']", json!([9])),
            (r"$['\u0030']", json!([10])),
            (r#"$["b\bf\fr\r\/"]"#, json!([11])),
        ],
    );
}

#[test]
fn other_paths_follow_rfc_9535() {
    let value = json!({
        "a": [{"b": 1, "price": 5}, {"b": 2, "price": 15, "tag": "x,]')"}, {"c": [1, 2, 3, 4]}],
        "": {"é": "accent"},
        "n": [0, 1, 2, 3, 4, 5],
    });
    assert_nodes(
        &value,
        &[
            ("$.a[*].b", json!([1, 2])),
            ("$..b", json!([1, 2])),
            ("$..['b','price']", json!([1, 2, 5, 15])),
            ("$.a[?@.price < 10].b", json!([1])),
            ("$.a[?@.price < 10 || @.tag == \"x,]')\"].b", json!([1, 2])),
            ("$.a[?(@.b && !(@.price > 10))].b", json!([1])),
            ("$.a[?!@.b].c[0]", json!([1])),
            ("$.a[?@.c[*]].c[0]", json!([1])),
            ("$.a[?@['b','c']].b", json!([1, 2])),
            ("$.a[?length(@.c) == 4].c[-1]", json!([4])),
            ("$.a[?value(@.b) == 2].b", json!([2])),
            ("$.a[?@.b == 1.0e0].b", json!([1])),
            ("$[''].*", json!(["accent"])),
            ("$.*['é']", json!(["accent"])),
            ("$.n[1:3]", json!([1, 2])),
            ("$.n[::-2]", json!([5, 3, 1])),
            ("$.n[-2:]", json!([4, 5])),
            ("$.n[::0]", json!([])),
            ("$.n[9007199254740991::9007199254740991]", json!([])),
            ("$.n[0, -1, '0']", json!([0, 5])),
            ("$.n[?@ == 3]", json!([3])),
            ("$..[?@.é == 'accent'].é", json!(["accent"])),
            ("$.nothing[*]", json!([])),
        ],
    );
}

fn assert_syntax_errors(paths: &[&str]) {
    for path in paths {
        let error = refusal(path);
        assert!(
            matches!(error, PathError::Syntax { .. }),
            "{path}: {error:?}"
        );
    }
}

#[test]
fn text_that_is_not_a_jsonpath_is_a_syntax_error() {
    assert_syntax_errors(&[
        "", "  ", "$$", "$a", "@.a", "$.", "$..", "$.a.", "$a.b", "$.0a", "$.a b", "$. a", "$.-a",
        "$\u{0}",
    ]);
    assert_syntax_errors(&["$[*].a-b", "$.a b[*]", "$.\u{a0}a[*]", "$.a[*]x"]);
    assert_syntax_errors(&[
        "$[", "$[]", "$[0", "$]", "$.a]", "$[a]", "$[,'a']", "$['a',]", "$[(0)]",
    ]);
}

#[test]
fn an_index_that_is_not_an_rfc_9535_integer_is_a_syntax_error() {
    assert_syntax_errors(&[
        "$[00]",
        "$[01]",
        "$[-0]",
        "$[-]",
        "$[--1]",
        "$[1 2]",
        "$[1:2:3:4]",
    ]);
    assert_syntax_errors(&["$[99999999999999999999]", "$[9007199254740992]"]);
    assert_syntax_errors(&["$[99999999999999999999:]", "$[::99999999999999999999]"]);
}

#[test]
fn a_quoted_name_with_a_wrong_escape_or_end_is_a_syntax_error() {
    assert_syntax_errors(&[
        "$['a]",
        "$['a'",
        "$['a' 'b']",
        "$['\u{1}']",
        "$[\"\n\"]",
        "$['a\n',*]",
    ]);
    assert_syntax_errors(&[
        r"$['\x']",
        r#"$['\"']"#,
        r#"$["\'"]"#,
        r"$['\u12']",
        r"$['\u+123']",
    ]);
    assert_syntax_errors(&[r"$['\ud800']", r"$['\ud800\u0041']", r"$['\udc00']"]);
}

#[test]
fn a_filter_that_is_not_of_rfc_9535_is_a_syntax_error() {
    assert_syntax_errors(&[
        "$[?]", "$[?()]", "$[?(@.a]", "$[?@.a)]", "$[?@.a", "$[?'a]", "$[?1]",
    ]);
    assert_syntax_errors(&["$[?@.a ==]", "$[?@.a = 1]", "$[?@.a & @.b]", "$[?@.* == 1]"]);
    assert_syntax_errors(&["$[?@.a b == 1]", "$[?@. a == 1]", "$[?@.a == 1e]"]);
    assert_syntax_errors(&["$[?length (@.a) == 1]", "$[?length() == 1]"]);
    assert_syntax_errors(&["$[?@.a == 99999999999999999999]"]);
}

/// Asserts that a path is rejected with a variant of the error.
macro_rules! refused {
    ($path:expr, $variant:ident) => {{
        let path = String::from($path);
        // The path must be rejected before it is parsed, because a parser with backtracking would not terminate in time.
        let error = refusal(&path);
        assert!(matches!(error, PathError::$variant { .. }), "{path}: {error:?}");
    }};
}

/// Name of the counted parts that multiply the result of a path.
const SPREADS: &str = "wildcards, unions, slices and filters";

/// Asserts that a path is rejected because it has more of the counted parts than the limit.
fn assert_over_limit(path: &str, count: usize, counted: &str) {
    let error = refusal(path);
    let PathError::OverLimit { what, found, .. } = error else {
        panic!("{path}: {error:?}")
    };
    assert_eq!((found, what), (count, counted), "{path}");
}

fn filter(left: &str, core: &str, right: &str, times: usize) -> String {
    format!("$[?{}{core}{}]", left.repeat(times), right.repeat(times))
}

#[test]
fn known_attacks_are_refused_at_once() {
    assert_over_limit(&filter("(", "@.a", ")", 1000), 2007, "bytes");
    assert_over_limit(&"a".repeat(600), 600, "bytes");
    assert_over_limit(&filter("(", "", "", 400), 9, "levels of parentheses");
    assert_over_limit(&filter("(", "@.a", ")", 9), 9, "levels of parentheses");
    refused!(filter("@[?", "@", "]", 20), NestedFilter);
    refused!("$[?@[?@[?@.a]]]", NestedFilter);
    refused!(filter("length(", "@", "", 70), NestedCall);
    refused!("$[?length(length(@.a)) > 1]", NestedCall);
    refused!("$[?match(@.a,'x')]", Function);
    refused!("$[?search(@.a,'x')]", Function);
    refused!("$[?@.b && (match(@.a,'x'))]", Function);
    refused!("$[?subset_of(@.a,@.b)]", Function);
    refused!("$[?@.a == $.b]", RootInFilter);
    refused!("$[?@..a]", DescentInFilter);
}

#[test]
fn a_path_that_would_multiply_its_result_is_refused() {
    assert_over_limit("$..*..*..*..*", 2, "descents `..`");
    refused!("$..['a','a','a']['a','a']", RepeatedMember);
    refused!("$..['a',\"a\"]", RepeatedMember);
    refused!(r"$..['a','\u0061']", RepeatedMember);
    refused!("$[0, 0 ]", RepeatedMember);
    refused!("$[?@['a','a']]", RepeatedMember);
    assert_over_limit("$[0,1,2,3,4,5,6,7,8]", 9, "members of a union");
    assert_over_limit(&".a".repeat(33), 33, "segments");
    assert_over_limit(&"[0]".repeat(33), 33, "segments");
    assert_over_limit(&filter("@", &".a".repeat(32), "", 1), 33, "segments");
    assert_over_limit("$.*.*.*", 3, SPREADS);
    assert_over_limit("$[*,0:1]", 3, SPREADS);
    assert_over_limit("$[?@.*][*]", 3, SPREADS);
    assert_over_limit("$[?@[0:1][1:2]]", 3, SPREADS);
}

#[test]
fn comparing_paths_with_paths_is_limited() {
    assert!(Path::parse("$[?@.a == @.b && @.c < value(@.*)]").is_ok());
    assert_over_limit(
        "$[?@.a == 1 && (@ == @ || @ == @)][?@ == @]",
        3,
        "comparisons of paths",
    );
}

#[test]
fn an_expression_that_the_evaluator_cannot_evaluate_correctly_is_refused() {
    refused!("$[?@.a == 1e999]", NumberOutOfRange);
    refused!("$[?-1e999 < @.a]", NumberOutOfRange);
    refused!("$[?length(1e999) < 1]", NumberOutOfRange);
    refused!("$[?count(@.a) == 0]", Function);
    refused!("$[?length(@.a)]", FunctionUse);
    refused!("$[?!value(@.a)]", FunctionUse);
    refused!("$[?length(@.*) == 1]", FunctionUse);
    refused!("$[?length(!@.a) == 1]", FunctionUse);
    refused!("$[?value('a') == 'a']", FunctionUse);
}

#[test]
fn marks_inside_quotes_are_only_text() {
    let value = json!({"$..*": 1, "?(": 2, "a": [{"b": "$..*?((((((((((match("}]});
    assert_nodes(
        &value,
        &[
            ("$['$..*']", json!([1])),
            ("$['?(', '$..*']", json!([2, 1])),
            (
                "$.a[?@.b == '$..*?((((((((((match(']",
                json!([{"b": "$..*?((((((((((match("}]),
            ),
        ],
    );
}

#[test]
fn the_limits_themselves_are_allowed() {
    let cases = [
        "a".repeat(510),
        "[0]".repeat(32),
        format!("$[?{}@.a{}]", "(".repeat(8), ")".repeat(8)),
        "$[0,1,2,3,4,5,6,7]['a','b','c','d','e','f','g','h']".to_owned(),
        "$..[*]['a','b']".to_owned(),
    ];
    for path in cases {
        Path::parse(&path).unwrap();
    }
}

#[test]
fn an_error_names_the_thing_the_value_and_the_way_out() {
    let long = refusal(&"é".repeat(400)).to_string();
    let shown = "é".repeat(80);
    assert_eq!(
        long,
        format!("path `{shown}…` has 800 bytes where at most 512 are allowed: shorten it")
    );
    for path in [
        "",
        "$..*..*",
        "$[?@[?@]]",
        "$.a[*",
        "$[?@.a = 1]",
        "$[?match(@,'a')]",
    ] {
        let text = refusal(path).to_string();
        assert!(
            text.starts_with("path `") && !text.ends_with('.') && !text.contains('\n'),
            "{text}"
        );
    }
}

#[test]
fn any_stops_at_the_first_node_for_which_the_test_holds() {
    let value = json!([1, 2, 3, 4]);
    let mut seen = Vec::new();
    let path = Path::parse("$[*]").unwrap();
    let found = path.any(&value, |node| {
        seen.push(node.clone());
        node == 2
    });
    assert_eq!(found, Ok(true));
    assert_eq!(seen, [json!(1), json!(2)]);
    assert_eq!(Path::parse("[9]").unwrap().any(&value, |_| true), Ok(false));
}

/// Returns a deep and wide document of about 50,000 nodes, whose objects have all members that the tested paths name.
fn large() -> Value {
    let mut value = json!([1]);
    for _ in 0..100 {
        value = json!({"a": value, "b": [1, 2, 3], "c": {"a": 1, "b": 2}});
    }
    let wide = vec![json!({"a": {"a": 1, "b": 2}, "b": {"a": [1], "b": [2]}}); 5_000];
    json!({"a": wide, "b": value})
}

fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(members) => members.values().map(size).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[test]
fn the_worst_admitted_paths_visit_a_bounded_number_of_nodes() {
    let value = large();
    let total = size(&value);
    assert!((45_000..60_000).contains(&total), "{total}");
    let cases = [
        "$..[*]['a','b']",
        "$..['a','b'][*]",
        "$..[*][*]",
        "$..[*,'a']",
        "$..['a','b','c','d']['a','b','c','d']",
        "$..[0,-1,1,-2,2,-3]['a','b',0,-1]",
        "$..[::1][?@.a]",
        "$..[?@ == @][*]",
        "$..[?@.* || @.a == @.b && length(@) > 0]",
    ];
    for path in cases {
        let hits = Path::parse(path).unwrap().nodes(&value).unwrap().len();
        assert!(hits <= 2 * total, "{path}: {hits} hits in {total} nodes");
    }
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}

#[test]
fn a_document_nested_too_deep_is_refused_unless_the_path_is_plain() {
    let path = Path::parse("$..[*]").unwrap();
    assert_eq!(path.nodes(&nested(MAX_DEPTH)).unwrap().len(), MAX_DEPTH);
    let deeper = nested(MAX_DEPTH + 1);
    assert!(matches!(
        path.first(&deeper),
        Err(PathError::DocumentOverLimit {
            what: "nested levels",
            limit: 128,
            ..
        })
    ));
    assert!(matches!(
        path.any(&deeper, |_| true),
        Err(PathError::DocumentOverLimit {
            what: "nested levels",
            ..
        })
    ));
    assert!(
        Path::parse("[0][0]")
            .unwrap()
            .first(&deeper)
            .unwrap()
            .is_some()
    );
}

#[test]
fn a_document_whose_long_name_would_be_copied_for_each_node_is_refused() {
    let mut object = Map::new();
    object.insert("k".repeat(1 << 20), json!(vec![0; 1000]));
    let value = Value::Object(object);
    let refused = Path::parse("$.*[*]").unwrap().nodes(&value);
    let Err(PathError::DocumentOverLimit { what, limit, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(
        (what, limit),
        ("bytes of node locations", MAX_LOCATION_BYTES)
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        4 => "[a-c]".prop_map(|name| name),
        1 => Just(String::new()),
        1 => Just("é".to_owned()),
        1 => any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..3_i64).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Generates paths from valid parts, so most of them are accepted.
fn any_query() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec![
        ".a",
        ".b",
        ".*",
        "..a",
        "..*",
        "..[0,1]",
        "[0]",
        "[-1]",
        "[*]",
        "['a','b']",
        "[1:]",
        "[::-1]",
        "[::0]",
        "[?@.a]",
        "[?@ > 1]",
        "[?@.a == @.b]",
        "[?!@.a || @.b != null]",
        "[?length(@) >= 1]",
        "[?@.*]",
        "[?value(@.*) == 1]",
        "[?(@[0] <= 'b')]",
        "['é']",
        "['']",
    ]);
    prop::collection::vec(segment, 0..4).prop_map(|segments| format!("${}", segments.concat()))
}

fn any_plain() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        "\\.[a-c_é]",
        "\\[(-?[1-9]|0)\\]",
        "\\['[a-cé ]{0,2}'\\]",
        "\\[ ?\"[a-c]\" ?\\]",
        r#"\['\\(u00e9|u0061|'|\\|n|ud83d\\ude00)'\]"#,
    ];
    prop::collection::vec(segment, 0..4).prop_map(|segments| format!("${}", segments.concat()))
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        r#"[$.\[\]*?@'"(),:0-9a-c_ &|=<!]{0,40}"#,
        r#"\$(\.[a-c*]|\[[\*?@'"(),:0-9a-c_ &|=<!.]{0,20}\])"#,
        any_query(),
        any_plain(),
    ]
}

proptest! {
    #![proptest_config(crate::fuzz::config())]

    #[test]
    fn no_text_makes_parse_or_evaluation_panic(text in any_text(), value in any_json()) {
        if let Ok(path) = Path::parse(&text) {
            prop_assert!(path.source().starts_with('$'));
            prop_assert!(path.nodes(&value).is_ok());
            prop_assert_eq!(Path::parse(path.source()), Ok(path));
        }
    }

    #[test]
    fn our_walk_of_a_plain_path_equals_that_of_jsonpath_rust(
        text in any_plain(),
        value in any_json(),
    ) {
        let path = Path::parse(&text).unwrap();
        prop_assert!(path.is_plain());
        let query = parse_json_path(&text).unwrap();
        let theirs = js_path_process(&query, &value).unwrap();
        let theirs: Vec<&Value> = theirs.into_iter().map(|hit| hit.val).collect();
        prop_assert_eq!(path.nodes(&value).unwrap(), theirs);
    }

    #[test]
    fn any_first_and_nodes_agree(
        text in prop_oneof![any_plain(), any_query()],
        value in any_json(),
    ) {
        let Ok(path) = Path::parse(&text) else { return Ok(()) };
        let nodes = path.nodes(&value).unwrap();
        prop_assert_eq!(path.first(&value).unwrap(), nodes.first().copied());
        prop_assert_eq!(path.any(&value, |_| true).unwrap(), !nodes.is_empty());
        let mut seen = Vec::new();
        let found = path.any(&value, |node| {
            seen.push(node.clone());
            false
        });
        prop_assert_eq!(found, Ok(false));
        prop_assert!(seen.iter().eq(nodes.iter().copied()));
    }
}
