use super::{apply, refusal};
use serde_json::{Value, json};

pub(super) fn hints(template: &str) -> Value {
    json!({"transform": {"t": {"type": "template", "template": template}}})
}

#[track_caller]
fn renders(template: &str, context: &Value, expected: &str) {
    assert_eq!(
        apply(&hints(template), context)["t"],
        expected,
        "{template}"
    );
}

#[track_caller]
fn refused(template: &str, reason: &str) {
    let text = refusal(&hints(template));
    assert!(text.contains(reason), "{template}: {text}");
}

#[test]
fn each_walks_lists_and_objects() {
    let context =
        json!({"items": [{"name": "a"}, {"name": "b"}], "map": {"k": 1, "l": [2]}, "none": []});

    renders("{{#each context.items}}{{name}}{{/each}}", &context, "ab");
    renders(
        "{{#each context.items}}{{@index}}{{#if @first}}<{{/if}}{{#unless @last}},{{/unless}}{{/each}}",
        &context,
        "0<,1",
    );
    renders(
        "{{#each context.map}}{{@key}}={{this}};{{/each}}",
        &context,
        "k=1;l=[2];",
    );
    renders(
        "{{#each context.none}}x{{else}}none{{/each}}",
        &context,
        "none",
    );
    renders(
        "{{#each context.absent}}x{{else}}none{{/each}}",
        &context,
        "none",
    );
    renders(
        "{{#each context.items as |item n|}}{{n}}{{item.name}}{{/each}}",
        &context,
        "0a1b",
    );
    renders(
        "{{#each context.map as |value key|}}{{key}}{{value}}{{/each}}",
        &context,
        "k1l[2]",
    );
    renders(
        "{{#each context.items}}{{#each ../context.map}}{{../name}}{{@../index}}{{@key}} {{/each}}{{/each}}",
        &context,
        "a0k a0l b1k b1l ",
    );
    renders(
        "{{#each context.items}}{{#each @root.context.map}}{{../name}}{{@../index}}{{@key}} {{/each}}{{/each}}",
        &context,
        "a0k a0l b1k b1l ",
    );
}

#[test]
fn scopes_are_entered_with_each_and_with_only() {
    let context = json!({"a": {"b": {"c": 1}, "d": 2}, "e": 3});

    renders(
        "{{#with context.a}}{{d}}{{#if d}}{{b.c}}{{/if}}{{../context.e}}{{@root.context.e}}{{/with}}",
        &context,
        "2133",
    );
    renders("{{#with context.x}}y{{else}}n{{/with}}", &context, "n");
    renders(
        "{{#with context.a as |x|}}{{#with x.b}}{{x.d}}{{c}}{{../d}}{{/with}}{{/with}}",
        &context,
        "212",
    );
    renders("{{e}}{{../../context.e}}", &context, "");
}

#[test]
fn length_is_available_at_every_position_of_a_value() {
    let context = json!({"items": [1, 2], "none": [], "text": "añb", "own": {"length": "mine"}, "obj": {"a": 1}, "keys": ["length"],
        "all": [["a"], [], "añb", {"length": "mine"}, {"a": 1}]});

    renders(
        "{{context.items.length}}{{context.text.length}}{{context.own.length}}[{{context.obj.length}}]",
        &context,
        "23mine[]",
    );
    renders(
        "{{#if context.items.length}}some{{/if}}{{#unless context.none.length}}none{{/unless}}",
        &context,
        "somenone",
    );
    renders(
        "{{#if (gt context.items.length 1)}}many{{/if}}",
        &context,
        "many",
    );
    renders(
        "{{#with context}}{{items.length}}{{#each keys}}{{lookup ../items this}}{{/each}}{{/with}}",
        &context,
        "22",
    );
    renders(
        "{{lookup context.items \"length\"}}{{#each context.all}}{{length}},{{/each}}",
        &context,
        "21,0,3,mine,,",
    );
    renders(
        "{{len context.items}}{{len context.text}}{{len context.obj}}",
        &context,
        "231",
    );
}

#[test]
fn a_missing_value_renders_as_an_empty_string() {
    let context = json!({"a": null, "list": [1], "n": 5});

    renders(
        "<{{context.a}}{{context.x.y.z}}{{context.list.name}}{{context.list.7}}{{context.n.x}}{{x}}>",
        &context,
        "<>",
    );
    renders(
        "{{#if context.list.name}}y{{else}}n{{/if}}{{lookup context.list 9}}{{lookup context.x \"a\"}}",
        &context,
        "n",
    );
}

#[test]
fn values_are_written_as_they_are_and_structures_as_json() {
    let context =
        json!({"n": 1.5, "b": false, "s": "<a href=\"x\">", "l": [1, "a"], "o": {"k": [null]}});

    renders(
        "{{context.n}} {{context.b}} {{context.s}} {{context.l}} {{context.o}}",
        &context,
        "1.5 false <a href=\"x\"> [1,\"a\"] {\"k\":[null]}",
    );
    renders(
        "{{context.l.0}}{{context.l.[1]}}{{context.[o].k}}",
        &context,
        "1a[null]",
    );
}

#[test]
fn questions_stand_in_parentheses_alone_and_as_blocks() {
    let context = json!({"n": 2, "s": "b", "t": true});

    renders(
        "{{#if (and (eq context.n 2) (ne context.s \"a\") (not context.x))}}y{{/if}}",
        &context,
        "y",
    );
    renders(
        "{{eq context.n 2.0}} {{gt context.n 3}} {{lte context.s 'b'}} {{or context.x context.t}} {{lt context.n context.s}}",
        &context,
        "true false true true false",
    );
    renders(
        "{{#eq context.s \"b\"}}y{{else}}n{{/eq}}{{#gte context.n 5}}y{{else}}n{{/gte}}",
        &context,
        "yn",
    );
    renders(
        "{{#if context.x}}1{{else if context.t}}2{{else}}3{{/if}}",
        &context,
        "2",
    );
    renders(
        "{{#if 0}}y{{else}}n{{/if}}{{#if 0 includeZero=true}}y{{else}}n{{/if}}",
        &context,
        "ny",
    );
}

#[test]
fn white_space_and_comments_go_as_in_handlebars() {
    let context = json!({"items": ["a", "b"]});

    renders(
        "{{#each context.items}}\n- {{this}}\n{{/each}}\nend",
        &context,
        "- a\n- b\nend",
    );
    renders(
        "x  {{~#each context.items~}}  {{this}}  {{~/each~}}  y",
        &context,
        "xaby",
    );
    renders("{{! a }}b{{!-- {{c}} --}}", &context, "b");
    renders(
        "\\{{context.items}} { } }}",
        &context,
        "{{context.items}} { } }}",
    );
}

#[test]
fn a_template_sees_the_filtered_context_only() {
    let hints = json!({"exclude": ["..secret"], "transform": {
        "t": {"type": "template", "template": "{{context}}{{this}}{{@root}}{{#each context}}{{@key}}{{this}}{{/each}}{{lookup context 'secret'}}"},
    }});

    let shaped = apply(
        &hints,
        &json!({"secret": "hunter2", "a": {"secret": ["hunter3"]}}),
    );

    assert_eq!(
        shaped["t"],
        "{\"a\":{}}{\"context\":{\"a\":{}}}{\"context\":{\"a\":{}}}a{}"
    );
}

#[test]
fn an_unknown_helper_is_refused_with_the_nearest() {
    refused(
        "{{lokup context 1}}",
        "unknown helper \"lokup\"; did you mean \"lookup\"?",
    );
    refused(
        "{{#eech context}}{{/eech}}",
        "unknown block \"eech\"; did you mean \"each\"?",
    );
    refused("{{log context}}", "unknown helper \"log\"");
    refused("{{#if (upper context)}}{{/if}}", "unknown helper \"upper\"");
    refused(
        "{{@idx}}",
        "unknown variable \"idx\"; expected one of index, key, first, last, root",
    );
    refused("{{#if a zero=true}}{{/if}}", "unknown option \"zero\"");
}

#[test]
fn a_variable_has_no_members() {
    refused(
        "{{#each context}}{{@key.length}}{{/each}}",
        "\"@key.length\" is not a path",
    );
}

#[test]
fn partials_and_decorators_and_raw_blocks_are_refused() {
    for template in [
        "{{> a}}",
        "{{~> a}}",
        "{{#> a}}{{/a}}",
        "{{* inline}}",
        "{{#*inline \"a\"}}{{/inline}}",
        "{{#~* inline \"a\"}}{{/inline}}",
    ] {
        refused(template, "partials and decorators are not supported");
    }
    refused(
        "{{{{raw}}}} {{x}} {{{{/raw}}}}",
        "raw blocks are not supported",
    );
}

#[test]
fn helpers_used_the_wrong_way_are_refused() {
    refused("{{if context.a}}", "\"if\" is a block");
    refused("{{#lookup a b}}{{/lookup}}", "\"lookup\" is not a block");
    refused("{{#if a b}}{{/if}}", "\"if\" takes 1 value");
    refused("{{#each}}{{/each}}", "\"each\" takes 1 value");
    refused("{{eq 1}}", "\"eq\" takes 2 values");
    refused("{{eq 1 2 a=3}}", "\"eq\" takes no name=value");
    refused("{{#each a b=1}}{{/each}}", "\"each\" takes no name=value");
    refused("{{#if a as |b|}}{{/if}}", "\"if\" takes no |names|");
    refused("{{((lookup a b) c)}}", "invalid template");
}

#[test]
fn invalid_handlebars_syntax_is_refused_with_its_position() {
    refused("a\n{{#if x}}", "line 2, column ");
    refused("{{#if a}}{{/each}}", "line 1, column ");
    refused("{{a", "is not closed");
    refused("{{/if}}", "line 1");
    refused("{{a \"x}}", "is not closed");
}
