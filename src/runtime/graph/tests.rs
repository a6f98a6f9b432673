use super::*;
use crate::error::BoxError;
use crate::executor::{ExecutionContext, Profile, Response};
use crate::model::{Breadcrumb, Subscription, Subscriptions};
use crate::store::{BreadcrumbStore, MemoryStore};
use async_trait::async_trait;
use proptest::prelude::*;
use serde_json::Value;

struct Node {
    id: String,
    subscriptions: Subscriptions,
    profile: Profile,
    store: MemoryStore,
}

#[async_trait]
impl UniversalExecutor for Node {
    fn id(&self) -> &str {
        &self.id
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn execute(&self, _: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(Value::Null)
    }

    async fn respond(&self, _: &Breadcrumb, _: Value) -> Result<Response, BoxError> {
        Ok(Response::none())
    }
}

fn node(id: impl Into<String>, triggers: &[&str], profile: Profile) -> Node {
    let triggers = triggers.iter().map(|schema| Subscription::trigger(*schema));
    Node {
        id: id.into(),
        subscriptions: Subscriptions::new(triggers).unwrap(),
        profile,
        store: MemoryStore::default(),
    }
}

fn agent(id: impl Into<String>, triggers: &[&str], writes: &[&str]) -> Node {
    let profile = Profile::new("agent").responds_with(writes.iter().copied());
    node(id, triggers, profile)
}

fn graph(nodes: &[Node]) -> Graph {
    Graph::of(nodes.iter().map(|node| node as &dyn UniversalExecutor))
}

fn cycles(nodes: &[Node]) -> Vec<String> {
    graph(nodes).cycles().iter().map(Cycle::to_string).collect()
}

#[test]
fn two_executors_that_trigger_each_other_are_a_cycle() {
    let nodes = [
        agent("B", &["x.v1"], &["y.v1"]),
        agent("A", &["y.v1"], &["x.v1"]),
    ];

    let expected = "A writes x.v1, which triggers B, which writes y.v1, which triggers A";
    assert_eq!(cycles(&nodes), [expected]);
    let graph = graph(&nodes);
    let steps = graph.cycles()[0].steps();
    assert_eq!((&*steps[1].executor, &*steps[1].schema), ("B", "y.v1"));
}

#[test]
fn three_executors_in_a_ring_are_a_cycle_despite_other_edges() {
    let nodes = [
        agent("a", &["z", "in"], &["x", "log"]),
        agent("b", &["x"], &["y", "log"]),
        agent("c", &["y"], &["z"]),
        agent("logger", &["log"], &[]),
    ];

    let expected = "a writes x, which triggers b, which writes y, which triggers c, which writes z, which triggers a";
    assert_eq!(cycles(&nodes), [expected]);
}

#[test]
fn an_executor_that_writes_its_own_trigger_is_not_a_cycle() {
    let nodes = [
        agent("a", &["x"], &["x"]),
        agent("b", &["*"], &["y"]),
        agent("c", &["x"], &[]),
    ];

    assert_eq!(cycles(&nodes), [""; 0]);
}

#[test]
fn a_cycle_is_found_through_an_executor_that_triggers_itself() {
    let nodes = [agent("a", &["x"], &["x"]), agent("b", &["x"], &["x"])];

    let expected = "a writes x, which triggers b, which writes x, which triggers a";
    assert_eq!(cycles(&nodes), [expected]);
}

#[test]
fn a_trigger_that_names_no_schema_closes_a_cycle() {
    let nodes = [
        agent("auditor", &["*"], &["audit"]),
        agent("other", &["*"], &[]),
        agent("reader", &["audit"], &["report"]),
    ];

    let expected =
        "auditor writes audit, which triggers reader, which writes report, which triggers auditor";
    assert_eq!(cycles(&nodes), [expected]);
}

#[test]
fn an_executor_without_declared_writes_is_not_part_of_a_cycle() {
    let nodes = [
        node("a", &["x"], Profile::new("agent")),
        agent("b", &["*"], &["x"]),
    ];

    assert_eq!(cycles(&nodes), [""; 0]);
}

#[test]
fn cycles_that_have_nothing_in_common_are_all_found() {
    let nodes = [
        agent("d", &["4"], &["3"]),
        agent("c", &["3"], &["4"]),
        agent("b", &["1"], &["2"]),
        agent("a", &["2"], &["1", "3"]),
    ];

    let expected = [
        "a writes 1, which triggers b, which writes 2, which triggers a",
        "c writes 4, which triggers d, which writes 3, which triggers c",
    ];
    assert_eq!(cycles(&nodes), expected);
}

#[test]
fn the_shortest_cycle_of_a_group_is_reported() {
    let nodes = [
        agent("a", &["5"], &["1"]),
        agent("b", &["1"], &["2"]),
        agent("c", &["2", "4"], &["3"]),
        agent("d", &["3"], &["4", "5"]),
    ];

    let expected = "c writes 3, which triggers d, which writes 4, which triggers c";
    assert_eq!(cycles(&nodes), [expected]);
}

#[test]
fn a_chain_and_a_circle_of_thousands_do_not_overflow_the_stack() {
    const MANY: usize = 5_000;
    let link = |at: usize| {
        let (trigger, writes) = (format!("{at}"), format!("{}", at + 1));
        agent(format!("{at:04}"), &[&trigger], &[&writes])
    };
    let mut nodes: Vec<Node> = (0..MANY).map(link).collect();
    assert!(graph(&nodes).cycles().is_empty());

    let last = format!("{MANY}");
    nodes.push(agent("last", &[&last], &["0"]));

    let graph = graph(&nodes);
    assert_eq!(graph.cycles().len(), 1);
    assert_eq!(graph.cycles()[0].steps().len(), MANY + 1);
}

#[test]
fn thousands_of_executors_on_one_schema_are_reported_as_one_cycle() {
    let nodes: Vec<Node> = (0..5_000)
        .map(|at| agent(format!("{at:04}"), &["*", "x"], &["x", "y"]))
        .collect();

    let expected = "0000 writes x, which triggers 0001, which writes x, which triggers 0000";
    assert_eq!(cycles(&nodes), [expected]);
}

#[test]
fn the_flowchart_shows_executors_kinds_schemas_and_any() {
    let nodes = [
        node("scribe", &["greeting.v1"], Profile::new("tool")),
        agent("greeter", &["visitor.v1"], &["greeting.v1"]),
        agent("auditor", &["*"], &[]),
    ];

    let expected = r#"flowchart LR
    e0["auditor (agent)"]
    e1["greeter (agent)"]
    e2["scribe (tool)"]
    s0(["greeting.v1"])
    s1(["visitor.v1"])
    any{{"any schema"}}
    any -.-> e0
    s1 --> e1
    e1 --> s0
    s0 --> e2
    e2 -.-> any
"#;
    assert_eq!(graph(&nodes).to_mermaid(), expected);
    let [one, two, three] = nodes;
    assert_eq!(graph(&[three, one, two]).to_mermaid(), expected);
}

#[test]
fn hostile_ids_are_shown_as_text() {
    let nodes = [agent("a\"];\nend --> b[\"%%#", &["style:#<b>"], &[])];

    let expected = "flowchart LR
    e0[\"a#34;#93;#59;#10;end --#62; b#91;#34;#37;#37;#35; (agent)\"]
    s0([\"style#58;#35;#60;b#62;\"])
    s0 --> e0
";
    assert_eq!(graph(&nodes).to_mermaid(), expected);
}

proptest! {
    #[test]
    fn no_id_adds_a_line_or_leaves_its_quotes(id in any::<String>(), schema in any::<String>()) {
        let drawn = graph(&[agent(id, &[&schema], &["out"])]).to_mermaid();

        let fewer = usize::from(schema == "out");
        prop_assert_eq!(drawn.lines().count(), 6 - fewer);
        let quotes = drawn.matches('"').count();
        prop_assert_eq!(quotes, 6 - 2 * fewer, "{}", drawn);
    }

    #[test]
    fn each_group_of_mutually_reachable_executors_has_one_cycle_of_real_steps(
        drawn in prop::collection::vec(
            (prop::collection::btree_set(0_usize..5, 0..3), prop::collection::btree_set(0_usize..5, 0..3), 0_u8..10),
            1..7,
        ),
    ) {
        const NAMES: [&str; 5] = ["0", "1", "2", "3", "4"];
        let nodes: Vec<Node> = drawn.iter().enumerate().map(|(at, (triggers, writes, any))| {
            let mut triggers: Vec<&str> = triggers.iter().map(|at| NAMES[*at]).collect();
            triggers.extend((*any == 0).then_some("*"));
            let writes: Vec<&str> = writes.iter().map(|at| NAMES[*at]).collect();
            agent(at.to_string(), &triggers, &writes)
        }).collect();
        let can_trigger = |from: usize, to: usize| {
            from != to && (!drawn[from].1.is_disjoint(&drawn[to].0) || drawn[to].2 == 0 && !drawn[from].1.is_empty())
        };
        let mut reaches = [[false; 7]; 7];
        for through in 0..=nodes.len() {
            for from in 0..nodes.len() {
                for to in 0..nodes.len() {
                    let through_node = through < nodes.len() && reaches[from][through] && reaches[through][to];
                    reaches[from][to] |= can_trigger(from, to) || through_node;
                }
            }
        }
        let together = |one: usize, other: usize| reaches[one][other] && reaches[other][one];
        let groups: BTreeSet<BTreeSet<usize>> = (0..nodes.len())
            .map(|one| (0..nodes.len()).filter(|other| together(one, *other)).collect())
            .filter(|group: &BTreeSet<usize>| group.len() > 1)
            .collect();

        let graph = graph(&nodes);

        prop_assert_eq!(graph.cycles().len(), groups.len());
        for cycle in graph.cycles() {
            let ids: Vec<usize> = cycle.steps().iter().map(|step| step.executor.parse().unwrap()).collect();
            prop_assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
            for (at, from) in ids.iter().enumerate() {
                let to = ids[(at + 1) % ids.len()];
                prop_assert!(can_trigger(*from, to));
                let schema = NAMES.iter().position(|name| *name == cycle.steps()[at].schema).unwrap();
                prop_assert!(drawn[*from].1.contains(&schema));
                prop_assert!(drawn[to].2 == 0 || drawn[to].0.contains(&schema));
            }
        }
    }
}
