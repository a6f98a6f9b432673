//! Cost of finding the executors that an event triggers, with the index and with a scan of all subscriptions, at 10, 1,000 and
//! 100,000 subscriptions. The bench also measures the build time and the memory of the index, and compares the time from the bytes
//! of an event to its matches with the time to parse them.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot be set up has nothing to measure, and reports on standard output"
)]

mod support;

use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;
use universal_executor::{Event, Route, Subscription, SubscriptionIndex, Subscriptions};

const ROUNDS: usize = 10;
/// Number of events that stay in the CPU cache. [`EVENTS`] is the number of events that do not.
const FEW: usize = 8;
const EVENTS: usize = 1_024;
const SIZES: [usize; 3] = [10, 1_000, 100_000];
const TOOLS: usize = 1_000;

fn main() {
    let of = |name, subscription: fn(usize) -> Subscription| {
        println!("{name}");
        (name, SIZES.map(|size| Side::new(size, subscription)))
    };
    // Both are built before either is dropped, because the second one would reuse the memory of the first.
    let built = [of("a mix", mixed), of("a value each", one_of_many_values)];
    for (name, sides) in &built {
        for events in [FEW, EVENTS] {
            let name = format!("{name}: {events} parsed events in turn");
            sizes_compared(&name, sides, events);
        }
        for side in sides {
            against_the_scan(name, side);
            from_bytes(name, side, EVENTS);
            from_bytes(name, side, FEW);
        }
    }
}

/// A number of subscriptions, one for each executor, in a list and in an index.
struct Side {
    size: usize,
    executors: Vec<(String, Subscriptions)>,
    index: SubscriptionIndex,
    /// Events that match one executor each.
    events: Vec<Event>,
    texts: Vec<Vec<u8>>,
}

impl Side {
    fn new(size: usize, subscription: fn(usize) -> Subscription) -> Self {
        let size = if support::is_quick() {
            size.min(1_000)
        } else {
            size
        };
        let executors: Vec<(String, Subscriptions)> = (0..size)
            .map(|n| {
                let subscriptions = Subscriptions::new([subscription(n)]).unwrap();
                (format!("executor-{n}"), subscriptions)
            })
            .collect();
        let (before, start) = (resident(), Instant::now());
        let mut index = SubscriptionIndex::new();
        for (id, subscriptions) in &executors {
            index.insert(id, subscriptions);
        }
        let (built, held) = (start.elapsed(), resident().saturating_sub(before));
        println!(
            "  {size} subscriptions: built in {:.3} s, {:.1} MB resident",
            built.as_secs_f64(),
            held as f64 / 1e6
        );
        let texts: Vec<Vec<u8>> = (0..EVENTS)
            .map(|n| frame(&subscription((n * 7_919) % size)).into_bytes())
            .collect();
        let events: Vec<Event> = texts.iter().map(|text| parsed(text)).collect();
        for event in &events {
            assert_eq!(index.matching(event).len(), 1);
        }
        Self {
            size,
            executors,
            index,
            events,
            texts,
        }
    }

    fn scan(&self, event: &Event) -> usize {
        let routes = self
            .executors
            .iter()
            .map(|(_, executor)| executor.route(event));
        routes.filter(|route| *route != Route::Unmatched).count()
    }
}

/// Returns a subscription of one of four kinds: with a schema only, with a tag, with one condition, or with two conditions.
fn mixed(n: usize) -> Subscription {
    let family = n / 4;
    match n % 4 {
        0 => Subscription::trigger(format!("plain.{family}.v1")),
        1 => Subscription::trigger(format!("tagged.{}.v1", family / 100)).any_tags([
            format!("workspace:{}", family % 100),
            format!("team:{family}"),
        ]),
        2 => Subscription::trigger(format!("tool.request.{}.v1", family / TOOLS)).matching(
            "$.tool",
            "eq",
            format!("tool-{}", family % TOOLS),
        ),
        _ => Subscription::trigger(format!("order.{}.v1", family / 1_000))
            .matching("$.tool", "eq", format!("tool-{}", family % TOOLS))
            .matching(
                "$.state",
                "eq",
                if family.is_multiple_of(2) {
                    "open"
                } else {
                    "closed"
                },
            ),
    }
}

fn one_of_many_values(n: usize) -> Subscription {
    Subscription::trigger("tool.request.v1").matching("$.tool", "eq", format!("tool-{n}"))
}

/// Compares the index at each size, with a number of different events.
fn sizes_compared(name: &str, sides: &[Side], events: usize) {
    let mut runs: Vec<(String, Box<dyn FnMut() + '_>)> = Vec::new();
    for side in sides {
        let mut events = side.events.iter().take(events).cycle();
        let run = move || {
            black_box(side.index.matching(black_box(events.next().unwrap())));
        };
        runs.push((format!("index, {} subscriptions", side.size), Box::new(run)));
    }
    let mut runs: Vec<(&str, &mut dyn FnMut())> = runs
        .iter_mut()
        .map(|(name, run)| (name.as_str(), &mut **run as &mut dyn FnMut()))
        .collect();
    support::compare(name, ROUNDS, 20_000, &mut runs);
}

fn against_the_scan(name: &str, side: &Side) {
    let event = side.events.last().unwrap();
    let iterations = u32::try_from(200_000 / side.size).unwrap_or(1).max(2);
    support::compare(
        &format!("{name}: {} subscriptions", side.size),
        ROUNDS / 2,
        iterations,
        &mut [
            ("index", &mut || {
                black_box(side.index.matching(black_box(event)));
            }),
            ("scan", &mut || {
                black_box(side.scan(black_box(event)));
            }),
        ],
    );
}

fn from_bytes(name: &str, side: &Side, events: usize) {
    let size = side.size;
    let bytes = side.texts.first().map_or(0, Vec::len);
    let mut parsed = side.texts.iter().take(events).cycle();
    let mut matched = parsed.clone();
    support::compare(
        &format!("{name}: {size} subscriptions, from the {bytes} bytes of each of {events} events"),
        ROUNDS,
        5_000,
        &mut [
            ("serde_json::from_slice::<Value>", &mut || {
                let text = parsed.next().unwrap();
                black_box(serde_json::from_slice::<Value>(text).unwrap());
            }),
            ("to the matches", &mut || {
                let event: Event = serde_json::from_slice(matched.next().unwrap()).unwrap();
                assert_eq!(side.index.matching(&event).len(), 1);
            }),
        ],
    );
}

/// Returns an event in its wire form, of about 0.9 KB, that a subscription matches.
fn frame(subscription: &Subscription) -> String {
    let lines: Vec<Value> = (0..8)
        .map(|line| json!({"line": line, "text": "a line of text that a page on the web might have", "seen": true}))
        .collect();
    let mut context = json!({"requestId": "r-1", "input": {"lines": lines}});
    for condition in subscription.selector.conditions() {
        let wanted = json!(condition);
        let name = condition.path().trim_start_matches("$.").to_owned();
        if let (Some(fields), Some(value)) = (context.as_object_mut(), wanted.get("value")) {
            fields.insert(name, value.clone());
        }
    }
    let mut tags = vec!["session:1".to_owned(), "tool:request".to_owned()];
    tags.extend(
        subscription
            .selector
            .any_of_tags()
            .and_then(<[String]>::first)
            .cloned(),
    );
    json!({
        "type": "breadcrumb.updated", "breadcrumb_id": "01890a5d-ac96-774b-bcce-b302099a8057", "version": 1,
        "tags": tags, "schema_name": subscription.selector.schema_name(),
        "updated_at": "2026-11-21T20:33:40.535554Z", "context": context,
    })
    .to_string()
}

/// Parses an event, including its lazy context.
fn parsed(text: &[u8]) -> Event {
    let event: Event = serde_json::from_slice(text).unwrap();
    black_box(event.context.as_ref().unwrap().get("tool"));
    event
}

/// Returns the resident memory of this process in bytes, or 0 if the system does not report it.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| {
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()
    });
    kilobytes.unwrap_or_default() * 1_024
}
