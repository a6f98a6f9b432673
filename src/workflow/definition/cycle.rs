/// Returns the nodes of a cycle in a directed graph in order, each once, or `None` if the graph has no cycle. `edges[n]` has the successors
/// of node `n`.
///
/// The search does not recurse, so a long chain cannot overflow the stack.
pub(super) fn find(edges: &[Vec<usize>]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        Unvisited,
        OnPath,
        Done,
    }
    let mut visits = vec![Visit::Unvisited; edges.len()];
    for start in 0..edges.len() {
        // The path from `start`: each node with the number of its edges that were followed.
        let mut path: Vec<(usize, usize)> = vec![(start, 0)];
        while let Some((at, followed)) = path.last_mut() {
            let (at, edge) = (*at, *followed);
            *followed += 1;
            if edge == 0 && visits.get(at) != Some(&Visit::Unvisited) {
                path.pop();
                continue;
            }
            let visit = match edges.get(at).and_then(|edges| edges.get(edge)) {
                None => Visit::Done,
                Some(_) => Visit::OnPath,
            };
            if let Some(state) = visits.get_mut(at) {
                *state = visit;
            }
            match edges.get(at).and_then(|edges| edges.get(edge)) {
                None => {
                    path.pop();
                }
                Some(next) if visits.get(*next) == Some(&Visit::OnPath) => {
                    let cycle = path.iter().map(|(at, _)| *at);
                    return Some(cycle.skip_while(|at| at != next).collect());
                }
                Some(next) => path.push((*next, 0)),
            }
        }
    }
    None
}

/// Returns the names of the nodes on a cycle of a directed graph, for an error message. The first name is repeated at the end.
pub(super) fn names<'n>(cycle: &[usize], name: impl Fn(usize) -> Option<&'n str>) -> Vec<String> {
    let names = cycle.iter().chain(cycle.first());
    names
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
