//! Tool names match exactly. A name that only looks similar does not match.

use crate::tools::{call, echo, error_of, registry};
use serde_json::json;
use universal_executor::tool::{ToolError, ToolRegistry};

/// Names that resemble `web-search` or try to evade a check.
const FORGED: [&str; 16] = [
    "Web-Search",
    "WEB-SEARCH",
    "web_search",
    "web search",
    " web-search",
    "web-search ",
    "web-search\n",
    "web-search\0",
    "web\u{2010}search",
    "we\u{0432}-search",
    "web-se\u{0430}rch",
    "web-search\u{200b}",
    "../web-search",
    "tools/web-search",
    "web-search;rm",
    "",
];

#[tokio::test]
async fn a_forged_name_reaches_no_tool() {
    let tools = registry([echo("web-search")]);

    for name in FORGED {
        let (code, _) = error_of(call(&tools, name, json!({})).await);
        assert_eq!(code, "unknown_tool", "{name:?}");
    }
}

#[test]
fn a_name_that_is_not_a_plain_id_is_refused() {
    for name in FORGED.into_iter().filter(|name| *name != "web_search") {
        let refused = ToolRegistry::default().with(echo(name)).unwrap_err();
        assert!(
            matches!(refused, ToolError::BadName { .. }),
            "{name:?}: {refused:?}"
        );
    }
}

#[test]
fn two_tools_of_one_name_are_refused_with_both_places() {
    let first = registry([]).with(echo("adder")).unwrap();

    let refused = first.with(echo("adder")).unwrap_err().to_string();

    assert_eq!(refused.matches("names.rs:").count(), 2, "{refused}");
    assert!(refused.contains("\"adder\""), "{refused}");
}

#[tokio::test]
async fn an_unknown_name_is_answered_with_the_nearest_name_or_the_available_names() {
    let tools = registry([echo("adder"), echo("web-search")]);

    let near = error_of(call(&tools, "web_search", json!({})).await).1;
    let far = error_of(call(&tools, "fly", json!({})).await).1;
    let long = error_of(call(&tools, &"x".repeat(5_000), json!({})).await).1;

    assert_eq!(
        near,
        "there is no tool \"web_search\"; did you mean \"web-search\"?"
    );
    assert_eq!(far, "there is no tool \"fly\"; there are adder, web-search");
    assert!(long.len() < 200, "{long}");
}

#[test]
fn tool_specs_have_a_deterministic_order() {
    let names = |tools: &ToolRegistry| -> Vec<String> {
        tools.specs().into_iter().map(|spec| spec.name).collect()
    };

    let one = registry([echo("b"), echo("a"), echo("c")]);
    let other = registry([echo("c"), echo("b"), echo("a")]);

    assert_eq!(names(&one), ["a", "b", "c"]);
    assert_eq!(one.specs(), other.specs());
}
