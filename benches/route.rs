//! What it costs to know what an event is to an executor.
//!
//! Prints the time of `Subscriptions::route` for a schema that does not match, a trigger on a condition, and an event
//! whose context is still text, each against parsing that event's context once.
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot be set up has nothing to measure"
)]

mod support;

use serde_json::{Value, json};
use std::hint::black_box;
use universal_executor::{Event, Subscription, Subscriptions};

const ROUNDS: usize = 12;
const ITERATIONS: u32 = 20_000;

fn main() {
    let subscriptions = Subscriptions::new([
        Subscription::trigger("tool.request.v1").matching("$.tool", "eq", "web-analyzer"),
        Subscription::trigger("browser.navigation.v1").any_tags(["browser:active-tab"]),
        Subscription::context("browser.page.context.v1").key("page"),
    ])
    .unwrap();
    let text = frame("tool.request.v1");
    let parsed: Event = serde_json::from_str(&text).unwrap();
    let matched = subscriptions.route(&parsed);
    let other: Event = serde_json::from_str(&frame("user.message.v1")).unwrap();
    let context = parsed.context.as_ref().unwrap().to_string();

    support::compare(
        "route",
        ROUNDS,
        ITERATIONS,
        &mut [
            ("parse the context as a Value", &mut || {
                black_box(serde_json::from_str::<Value>(&context).unwrap());
            }),
            ("route, another schema", &mut || {
                black_box(subscriptions.route(black_box(&other)));
            }),
            ("route, a condition holds", &mut || {
                assert_eq!(subscriptions.route(black_box(&parsed)), matched);
            }),
            ("read the event from text, route", &mut || {
                let event: Event = serde_json::from_str(&text).unwrap();
                assert_eq!(subscriptions.route(&event), matched);
            }),
        ],
    );
}

/// A frame of the wire of about 0.9 KB.
fn frame(schema: &str) -> String {
    let lines: Vec<Value> = (0..8)
        .map(|line| json!({"line": line, "text": "a line of text that a page might have", "seen": true}))
        .collect();
    json!({
        "type": "breadcrumb.updated", "breadcrumb_id": "01890a5d-ac96-774b-bcce-b302099a8057", "version": 1,
        "tags": ["tool:request", "workspace:tools", "session:1"], "schema_name": schema,
        "updated_at": "2026-11-21T20:33:40.535554Z",
        "context": {"tool": "web-analyzer", "requestId": "r-1", "input": {"lines": lines}},
    })
    .to_string()
}
