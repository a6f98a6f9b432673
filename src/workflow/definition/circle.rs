/// Returns the nodes of a cycle in a directed graph in order, each once, or `None` if the graph has no cycle. `edges[n]` has the successors
/// of node `n`.
///
/// The search does not recurse, so a long chain cannot overflow the stack.
pub(super) fn find(edges: &[Vec<usize>]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Never,
        OnTheWay,
        Done,
    }
    let mut seen = vec![Seen::Never; edges.len()];
    for start in 0..edges.len() {
        // The path from `start`: each node with the number of its edges that were followed.
        let mut way: Vec<(usize, usize)> = vec![(start, 0)];
        while let Some((at, followed)) = way.last_mut() {
            let (at, edge) = (*at, *followed);
            *followed += 1;
            if edge == 0 && seen.get(at) != Some(&Seen::Never) {
                way.pop();
                continue;
            }
            let mark = match edges.get(at).and_then(|edges| edges.get(edge)) {
                None => Seen::Done,
                Some(_) => Seen::OnTheWay,
            };
            if let Some(seen) = seen.get_mut(at) {
                *seen = mark;
            }
            match edges.get(at).and_then(|edges| edges.get(edge)) {
                None => {
                    way.pop();
                }
                Some(next) if seen.get(*next) == Some(&Seen::OnTheWay) => {
                    let circle = way.iter().map(|(at, _)| *at);
                    return Some(circle.skip_while(|at| at != next).collect());
                }
                Some(next) => way.push((*next, 0)),
            }
        }
    }
    None
}

/// Returns the names of the nodes on a cycle of a directed graph, for an error message. The first name is repeated at the end.
pub(super) fn names<'n>(circle: &[usize], name: impl Fn(usize) -> Option<&'n str>) -> Vec<String> {
    let round = circle.iter().chain(circle.first());
    round
        .filter_map(|at| name(*at))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_found_and_a_diamond_is_not_a_cycle() {
        assert_eq!(find(&[vec![1, 2], vec![3], vec![3], vec![]]), None);
        assert_eq!(find(&[vec![1], vec![2], vec![1]]), Some(vec![1, 2]));
        assert_eq!(find(&[vec![], vec![1]]), Some(vec![1]));
    }

    #[test]
    fn a_chain_of_a_million_is_walked_without_recursion() {
        let mut edges: Vec<Vec<usize>> = (1..1_000_000).map(|next| vec![next]).collect();
        edges.push(vec![]);

        assert_eq!(find(&edges), None);
    }
}
