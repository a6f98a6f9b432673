//! Cost of each hint rule that shapes a catalog of tools for a model, compared with serializing the same catalog once with
//! `serde_json`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot be set up has nothing to measure, and reports on standard output"
)]

mod support;

use serde_json::{Value, json};
use std::hint::black_box;
use universal_executor::{Json, hints::Hints};

const ROUNDS: usize = 30;
const ITERATIONS: u32 = 300;
const TOOLS: usize = 40;
const TEMPLATE: &str = "Tools:\n{{#each context.tools}}\n- {{name}}: {{description}} ({{#each tags}}{{this}}{{#unless @last}}, {{/unless}}{{/each}})\n{{/each}}\n{{context.tools.length}} in all";

/// The name of a side, and its work.
type Run<'r> = (&'r str, Box<dyn FnMut() + 'r>);

fn main() {
    let catalog = catalog();
    let text = serde_json::to_string(&catalog).unwrap();
    println!("a catalog of {TOOLS} tools, {} bytes", text.len());
    let context = Json::from(catalog.clone());
    let rules = rules();
    let mut runs: Vec<Run<'_>> = vec![(
        "serde_json::to_string",
        Box::new(|| {
            drop(black_box(
                serde_json::to_string(black_box(&catalog)).unwrap(),
            ))
        }),
    )];
    for (name, hints) in &rules {
        let context = &context;
        runs.push((
            name,
            Box::new(move || drop(black_box(hints.apply(black_box(context)).unwrap()))),
        ));
    }
    // The minimum cost of a rule that creates a new value: the copy, and its drop.
    runs.push((
        "Value::clone",
        Box::new(|| drop(black_box(catalog.clone()))),
    ));
    let mut sides: Vec<(&str, &mut dyn FnMut())> = runs
        .iter_mut()
        .map(|(name, run)| (*name, &mut **run as &mut dyn FnMut()))
        .collect();
    support::compare("a context shaped", ROUNDS, ITERATIONS, &mut sides);
}

fn rules() -> Vec<(&'static str, Hints)> {
    let one = |rule: Value| json!({"transform": {"made": rule}});
    let hints = [
        ("no hints", json!({})),
        (
            "exclude what is not there",
            json!({"exclude": ["tools.token", "meta.token"]}),
        ),
        ("exclude a member", json!({"exclude": ["meta.secret"]})),
        (
            "exclude a field of each tool",
            json!({"exclude": ["tools.example"]}),
        ),
        (
            "exclude a name anywhere",
            json!({"exclude": ["..example", "..secret"]}),
        ),
        (
            "include two fields of each tool",
            json!({"include": ["tools.name", "tools.description"]}),
        ),
        (
            "template",
            one(json!({"type": "template", "template": TEMPLATE})),
        ),
        (
            "extract, plain",
            one(json!({"type": "extract", "value": "$.tools[7]"})),
        ),
        (
            "extract, a name of each tool",
            one(json!({"type": "extract", "value": "$.tools[*].name"})),
        ),
        (
            "format",
            one(json!({"type": "format", "format": "{meta.title}: {tools[0].name}"})),
        ),
        (
            "format, all tools",
            one(json!({"type": "format", "format": "{tools}"})),
        ),
        (
            "literal",
            one(json!({"type": "literal", "literal": "a note"})),
        ),
        (
            "merge",
            json!({"mode": "merge", "transform": {"made": {"type": "literal", "literal": "a note"}}}),
        ),
        (
            "filter, template and merge",
            json!({"exclude": ["tools.example"], "mode": "merge",
            "transform": {"made": {"type": "template", "template": TEMPLATE}}}),
        ),
    ];
    hints
        .into_iter()
        .map(|(name, hints)| (name, Hints::from_json(&hints).unwrap()))
        .collect()
}

fn catalog() -> Value {
    let tools: Vec<Value> = (0..TOOLS)
        .map(|n| {
            json!({
                "name": format!("tool-{n}"),
                "description": "Reads a page of the web and gives what is on it, in the words of the page",
                "tags": ["web", "read", "page"],
                "version": n,
                "inputSchema": {
                    "type": "object", "required": ["url"],
                    "properties": {
                        "url": {"type": "string", "description": "where the page is"},
                        "depth": {"type": "integer", "minimum": 0, "maximum": 3, "default": 1},
                        "format": {"type": "string", "enum": ["text", "html"]},
                    },
                },
                "example": {"input": {"url": "https://example.com"}, "output": {"text": "an example"}},
            })
        })
        .collect();
    json!({"tools": tools, "meta": {"title": "What there is", "secret": "s-1"}})
}
