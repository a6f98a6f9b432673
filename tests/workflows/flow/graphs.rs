//! Random step graphs, executed by the workflow driver.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// The recorded starts and ends of a run's steps.
type Noted = Arc<Mutex<Vec<(usize, &'static str)>>>;

/// A step of a graph.
#[derive(Clone, Debug)]
struct Node {
    /// The steps on which this step depends. `true` means a `depends_on` entry, `false` a use of the result.
    depends_on: Vec<(usize, bool)>,
    /// Number of times that the step yields before it ends.
    yields: u8,
}

/// Generates graphs of up to 14 steps, and the order in which a definition lists the steps.
fn graphs() -> impl Strategy<Value = (Vec<Node>, Vec<usize>)> {
    (1_usize..15).prop_flat_map(|count| {
        let on = vec((any::<prop::sample::Index>(), any::<bool>()), 0..4);
        let nodes = vec((on, 0_u8..4), count).prop_map(|nodes| {
            let node = |(at, (on, yields)): (usize, (Vec<(prop::sample::Index, bool)>, u8))| {
                let depends_on = match at {
                    0 => Vec::new(),
                    _ => on.iter().map(|(on, says)| (on.index(at), *says)).collect(),
                };
                Node { depends_on, yields }
            };
            nodes.into_iter().enumerate().map(node).collect()
        });
        (nodes, Just((0..count).collect::<Vec<_>>()).prop_shuffle())
    })
}

fn definition(nodes: &[Node], order: &[usize]) -> Value {
    let id = |at: &usize| format!("s{at}");
    let step = |at: &usize| {
        let (said, used): (Vec<_>, Vec<_>) =
            nodes[*at].depends_on.iter().partition(|(_, says)| *says);
        let said: Vec<String> = said.iter().map(|(on, _)| id(on)).collect();
        let used: Vec<String> = used
            .iter()
            .map(|(on, _)| format!("${{{}}}", id(on)))
            .collect();
        json!({"id": id(at), "tool": "work", "input": {"at": at, "used": used}, "depends_on": said})
    };
    let steps: Vec<Value> = order.iter().map(step).collect();
    flow(&json!({"tools": {"work": {}}}), json!(steps))
}

/// Runs a graph. Returns the recorded starts and ends.
async fn run(nodes: Arc<Vec<Node>>, order: Vec<usize>) -> Vec<(usize, &'static str)> {
    let definition = definition(&nodes, &order);
    let noted: Noted = Arc::default();
    let notes = Arc::clone(&noted);
    let work = json_tool("work", "", json!({}), move |input, _| {
        let at = usize::try_from(input["at"].as_u64().unwrap()).unwrap();
        let (notes, yields) = (Arc::clone(&notes), nodes[at].yields);
        async move {
            notes.lock().unwrap().push((at, "begins"));
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            notes.lock().unwrap().push((at, "ends"));
            Ok(json!(at))
        }
    });
    let world = World::new(&definition, registry([work]), no_model());
    let result = world.result_of(json!({})).await;
    assert_eq!(result["status"], "success", "{result}");
    noted.lock().unwrap().clone()
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn each_step_of_a_graph_is_done_once_after_all_it_depends_on((nodes, order) in graphs()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let nodes = Arc::new(nodes);

        let noted = runtime.block_on(run(Arc::clone(&nodes), order));

        let place = |at: usize, what: &str| noted.iter().position(|note| *note == (at, what)).unwrap();
        prop_assert_eq!(noted.len(), 2 * nodes.len());
        for (at, node) in nodes.iter().enumerate() {
            for (on, _) in &node.depends_on {
                prop_assert!(place(*on, "ends") < place(at, "begins"), "{} is early: {:?}", at, noted);
            }
        }
    }
}
