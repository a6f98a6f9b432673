use super::{apply, refusal, try_apply};
use crate::hints::MAX_STEPS;
use crate::hints::budget::Budget;
use crate::hints::{
    Hints, HintsReason, MAX_HINTS_BYTES, MAX_OUTPUT_BYTES, MAX_PATHS, MAX_TRANSFORMS,
};
use crate::model::Json;
use serde_json::{Map, Value, json};

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}

fn rule(kind: &str, field: &str, text: &str) -> Value {
    json!({"transform": {"x": {"type": kind, field: text}}})
}

#[test]
fn hints_that_are_too_large_or_too_deep_are_refused() {
    let large =
        json!({"transform": {"x": {"type": "literal", "literal": "x".repeat(MAX_HINTS_BYTES)}}});
    let deep = json!({"transform": {"x": {"type": "literal", "literal": nested(62)}}});

    assert_eq!(
        refusal(&large),
        "cannot read llm_hints: llm_hints: the value is larger than 65536 bytes; shorten it"
    );
    assert_eq!(
        refusal(&deep),
        "cannot read llm_hints: llm_hints: the hints nest deeper than 64 levels; flatten them"
    );
}

#[test]
fn too_many_paths_or_rules_are_refused() {
    let rules = |count| {
        let rule = json!({"type": "literal", "literal": 1});
        let rules = (0..count).map(|n| (format!("r{n}"), rule.clone()));
        json!({"transform": rules.collect::<Map<_, _>>()})
    };

    assert!(Hints::from_json(&json!({"exclude": vec!["a"; MAX_PATHS]})).is_ok());
    assert_eq!(
        refusal(&json!({"exclude": vec!["a"; MAX_PATHS + 1]})),
        "cannot read llm_hints: exclude: 65 entries where at most 64 are allowed; remove some"
    );
    assert!(Hints::from_json(&rules(MAX_TRANSFORMS)).is_ok());
    assert_eq!(
        refusal(&rules(MAX_TRANSFORMS + 1)),
        "cannot read llm_hints: transform: 65 entries where at most 64 are allowed; remove some"
    );
    let format = rule("format", "format", &"{a}".repeat(MAX_PATHS + 1));
    assert!(refusal(&format).contains("65 entries"));
}

#[test]
fn output_over_the_bound_fails_before_it_is_made() {
    let rules =
        (0..MAX_TRANSFORMS).map(|n| (format!("r{n}"), json!({"type": "extract", "value": "$"})));
    let hints = json!({"transform": rules.collect::<Map<_, _>>()});

    let failure = try_apply(&hints, &json!("x".repeat(MAX_OUTPUT_BYTES / 2))).unwrap_err();

    assert_eq!(failure.reason, HintsReason::TooLarge);
    assert_eq!(failure.rule, "transform.r1");
}

#[test]
fn output_that_is_too_large_only_when_written_fails() {
    let hints = rule("extract", "value", "$");

    let failure = try_apply(&hints, &json!("\u{1}".repeat(MAX_OUTPUT_BYTES / 2))).unwrap_err();

    assert_eq!(failure.reason, HintsReason::TooLarge);
}

#[test]
fn output_that_nests_too_deep_fails() {
    let hints = rule("extract", "value", "$");

    assert_eq!(
        try_apply(&hints, &nested(64)).unwrap_err().reason,
        HintsReason::TooDeep
    );
    assert_eq!(apply(&hints, &nested(63))["x"], nested(63));
}

#[test]
fn searching_a_large_context_again_and_again_runs_out_of_steps() {
    let rules =
        (0..MAX_TRANSFORMS).map(|n| (format!("r{n}"), json!({"type": "extract", "value": "$..x"})));
    let hints = json!({"transform": rules.collect::<Map<_, _>>()});

    let failure = try_apply(&hints, &json!(vec![0; 10_000])).unwrap_err();

    assert_eq!(failure.reason, HintsReason::TooManySteps);
}

#[test]
fn long_names_and_texts_make_a_search_dearer() {
    let rules =
        (0..MAX_TRANSFORMS).map(|n| (format!("r{n}"), json!({"type": "extract", "value": "$..x"})));
    let hints = json!({"transform": rules.collect::<Map<_, _>>()});
    let name = "k".repeat(50_000);

    for context in [json!({"k": vec![0; 50]}), json!({"k": vec!["t"; 50]})] {
        apply(&hints, &context);
    }
    for context in [
        json!({name: vec![0; 50]}),
        json!({"k": vec!["t".repeat(20_000); 50]}),
    ] {
        assert_eq!(
            try_apply(&hints, &context).unwrap_err().reason,
            HintsReason::TooManySteps
        );
    }
}

#[test]
fn many_paths_over_many_nodes_run_out_of_steps() {
    let names = (0..MAX_PATHS).map(|n| format!("..n{n}"));
    let hints = json!({"exclude": names.collect::<Vec<_>>()});

    let failure = try_apply(&hints, &json!(vec![0; 300_000])).unwrap_err();

    assert_eq!(
        (failure.rule.as_str(), failure.reason),
        ("exclude", HintsReason::TooManySteps)
    );
}

#[cfg(feature = "templates")]
mod templates {
    use super::*;
    use crate::hints::MAX_TEMPLATE_BYTES;

    fn template(text: &str) -> Value {
        rule("template", "template", text)
    }

    #[test]
    fn a_template_that_is_too_large_is_refused() {
        let hints = |bytes| template(&"x".repeat(bytes));

        assert!(Hints::from_json(&hints(MAX_TEMPLATE_BYTES)).is_ok());
        assert!(refusal(&hints(MAX_TEMPLATE_BYTES + 1)).contains("larger than 16384 bytes"));
    }

    #[test]
    fn loops_in_loops_run_out_of_steps_though_they_write_nothing() {
        let each = "{{#each @root.context}}";
        let hints = template(&format!("{}{}", each.repeat(8), "{{/each}}".repeat(8)));

        let failure = try_apply(&hints, &json!(vec![0; 100])).unwrap_err();

        assert_eq!(
            (failure.rule.as_str(), failure.reason),
            ("transform.x", HintsReason::TooManySteps)
        );
    }

    #[test]
    fn comparing_and_counting_large_values_takes_steps() {
        for inside in [
            "{{#if (eq @root.context @root.context)}}{{/if}}",
            "{{#if @root.context.text.length}}{{/if}}",
        ] {
            let hints = template(&format!("{{{{#each context.list}}}}{inside}{{{{/each}}}}"));

            let text = "x".repeat(200_000);
            let context = json!({"list": vec![0; 5_000], "text": text, "keys": {text.clone(): 1}});
            let failure = try_apply(&hints, &context).unwrap_err();

            assert_eq!(failure.reason, HintsReason::TooManySteps, "{inside}");
        }
    }

    #[test]
    fn a_loop_that_writes_much_ends_at_the_bound() {
        let hints =
            template("{{#each context}}{{#each @root.context}}{{@root.context}}{{/each}}{{/each}}");

        let failure = try_apply(&hints, &json!(vec!["0123456789"; 100])).unwrap_err();

        assert_eq!(failure.reason, HintsReason::TooLarge);
    }

    #[test]
    fn blocks_branches_parentheses_and_brackets_nest_only_so_deep() {
        let blocks = |n: usize| format!("{}{}", "{{#if a}}".repeat(n), "{{/if}}".repeat(n));
        let branches = |n: usize| format!("{{{{#if a}}}}{}{{{{/if}}}}", "{{else if a}}".repeat(n));
        let calls = |n: usize| format!("{{{{not {}a{}}}}}", "(not ".repeat(n), ")".repeat(n));

        for (fits, too_deep) in [
            (blocks(32), blocks(33)),
            (branches(31), branches(32)),
            (calls(8), calls(9)),
        ] {
            assert!(Hints::from_json(&template(&fits)).is_ok(), "{fits}");
            assert!(refusal(&template(&too_deep)).contains("deep"), "{too_deep}");
        }
        assert!(Hints::from_json(&template(&blocks(1).repeat(500))).is_ok());
    }

    #[test]
    fn backslashes_that_the_parser_would_read_again_and_again_are_refused() {
        let hints = |count: usize| template(&format!("{}a", "\\".repeat(count)));

        assert!(Hints::from_json(&hints(32)).is_ok());
        assert!(refusal(&hints(33)).contains("backslashes"));
    }

    #[test]
    fn no_trick_hides_depth_from_the_parser() {
        for open in [
            "{{#if a}}{{!-- {{/if}} --}}",
            "{{#if a}}{{! -- }} {{/if}} --}}",
            "{{#if a}}\\{{/if}}",
            "{{#if \"}}{{/if}}\"}}",
            "{{#if '\\'}}{{/if}}'}}",
            "{{#if [\"]}}{{/if}}\"",
            "{{#if (a \")\")}}",
            "{{ ~ # if a}}",
            "{{~#if a}}",
            "{{#if a}}{{{ \"}}}{{/if}}\" }}}",
            "{{else}}",
            "{{^}}",
        ] {
            let text = refusal(&template(&format!(
                "{{{{#if a}}}}{}",
                open.repeat(16_000 / open.len())
            )));
            assert!(
                text.contains("deep") || text.contains("brackets"),
                "{open}: {text}"
            );
        }
        for inside in ["(", "[", "(a [", "(a \")\" ", "{\"a\":", "[[", "a=(b "] {
            for before in ["{{", "{{a ", "{{#if ", "{{{", "{{&", "{{else if "] {
                let text = format!("{before}{}", inside.repeat(2_000));
                assert!(
                    Hints::from_json(&template(&text)).is_err(),
                    "{before}{inside}"
                );
                assert!(
                    Hints::from_json(&template(&format!("{text}}}}}"))).is_err(),
                    "{before}{inside}"
                );
            }
        }
    }
}

/// Returns the number of steps that hints take for a context.
fn steps(hints: &Value, context: &Value) -> usize {
    let hints = Hints::from_json(hints).unwrap();
    let mut budget = Budget::new(MAX_STEPS, MAX_OUTPUT_BYTES);
    hints
        .apply_within(&Json::from(context.clone()), &mut budget)
        .unwrap();
    MAX_STEPS - budget.remaining().0
}

#[test]
fn a_pattern_with_many_possible_matches_costs_more_steps() {
    let context = (0..40).fold(json!(1), |inner, _| json!({"a": inner}));
    let paths = |ways: usize| json!({"exclude": [format!("{}..b", "..a".repeat(ways))]});

    let (few, many) = (steps(&paths(1), &context), steps(&paths(31), &context));

    assert!(many > 2 * few, "{few} {many}");
}

#[test]
fn a_longer_path_searches_at_a_higher_price() {
    let context = json!((0..1_000).collect::<Vec<_>>());
    let path = |tests: usize| {
        let tests = vec!["@.a==0"; tests].join("||");
        rule("extract", "value", &format!("$..[?{tests}]"))
    };

    let (short, long) = (steps(&path(1), &context), steps(&path(30), &context));

    assert!(long > 5 * short, "{short} {long}");
}

#[test]
#[cfg(feature = "templates")]
fn a_comparison_ends_at_the_first_difference_and_takes_a_step_for_each_field() {
    let fields = |first: usize| {
        let fields = (0..1_000).map(|n| (format!("f{n:04}"), json!(first * usize::from(n == 0))));
        Value::Object(fields.collect())
    };
    let hints = rule(
        "template",
        "template",
        "{{#if (eq context.a context.b)}}x{{/if}}",
    );
    let compare = |a, b| steps(&hints, &json!({"a": fields(a), "b": fields(b)}));

    assert!(compare(1, 2) < 100, "{}", compare(1, 2));
    assert!(compare(1, 1) > 1_000, "{}", compare(1, 1));
}

#[test]
#[cfg(feature = "templates")]
fn an_unclosed_template_comment_is_refused() {
    let template = rule("template", "template", &"{{!--x}}".repeat(2_000));

    let refusal = refusal(&template);

    assert!(refusal.contains("is not closed"), "{refusal}");
}
