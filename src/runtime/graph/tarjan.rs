/// Returns the strongly connected components of a directed graph. `edges` lists the targets of each vertex.
///
/// Implements Tarjan's algorithm ("Depth-first search and linear graph algorithms", 1972), in time linear in vertices and
/// edges. The current path is a list instead of the call stack, which a long chain would overflow.
pub(super) fn components(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        visits: vec![Visit::default(); edges.len()],
        open: Vec::new(),
        found: Vec::new(),
        visited: 0,
    };
    for root in 0..edges.len() {
        if search.order(root) == UNVISITED {
            search.from(root, edges);
        }
    }
    search.found
}

const UNVISITED: usize = 0;

/// The search state of a vertex in Tarjan's algorithm for strongly connected components.
#[derive(Clone, Copy, Default)]
struct Visit {
    /// Position of the graph's vertex in the order of visits, from 1. 0 if the vertex is unvisited.
    order: usize,
    /// Low link of the vertex: the smallest visit order among the vertices that this vertex is known to reach. Only vertices of incomplete
    /// components count.
    low: usize,
    /// If `true`, the strongly connected component of the vertex is incomplete.
    open: bool,
}

struct Search {
    visits: Vec<Visit>,
    open: Vec<usize>,
    found: Vec<Vec<usize>>,
    visited: usize,
}

impl Search {
    fn from(&mut self, root: usize, edges: &[Vec<usize>]) {
        let edges_of = |vertex: usize| edges.get(vertex).map_or(&[][..], Vec::as_slice).iter();
        self.enter(root);
        let mut path = vec![(root, edges_of(root))];
        while let Some((vertex, next)) = path.last_mut() {
            let vertex = *vertex;
            let Some(&to) = next.next() else {
                path.pop();
                let low = self.leave(vertex);
                if let Some((before, _)) = path.last() {
                    self.reaches(*before, low);
                }
                continue;
            };
            if self.order(to) == UNVISITED {
                self.enter(to);
                path.push((to, edges_of(to)));
            } else if self.visits.get(to).is_some_and(|visit| visit.open) {
                self.reaches(vertex, self.order(to));
            }
        }
    }

    fn order(&self, vertex: usize) -> usize {
        self.visits
            .get(vertex)
            .map_or(UNVISITED, |visit| visit.order)
    }

    fn enter(&mut self, vertex: usize) {
        self.visited += 1;
        if let Some(visit) = self.visits.get_mut(vertex) {
            *visit = Visit {
                order: self.visited,
                low: self.visited,
                open: true,
            };
            self.open.push(vertex);
        }
    }

    fn reaches(&mut self, vertex: usize, order: usize) {
        if let Some(visit) = self.visits.get_mut(vertex) {
            visit.low = visit.low.min(order);
        }
    }

    /// Completes a strongly connected component if `vertex` was the first visited vertex of the component. Returns the `low` of the vertex.
    fn leave(&mut self, vertex: usize) -> usize {
        let Visit { order, low, .. } = self.visits.get(vertex).copied().unwrap_or_default();
        if order == low {
            let first = self.open.iter().rposition(|open| *open == vertex);
            let component = self.open.split_off(first.unwrap_or(self.open.len()));
            for member in &component {
                if let Some(visit) = self.visits.get_mut(*member) {
                    visit.open = false;
                }
            }
            self.found.push(component);
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn sets(found: Vec<Vec<usize>>) -> BTreeSet<BTreeSet<usize>> {
        found
            .into_iter()
            .map(|component| component.into_iter().collect())
            .collect()
    }

    #[test]
    fn a_vertex_alone_is_a_component() {
        assert_eq!(components(&[]), [[0; 0]; 0]);
        assert_eq!(components(&[vec![1], vec![]]), [[1], [0]]);
    }

    proptest! {
        #[test]
        fn two_vertices_share_a_component_exactly_if_each_reaches_the_other(
            edges in prop::collection::vec(prop::collection::vec(0_usize..9, 0..4), 9),
        ) {
            let mut reaches = [[false; 9]; 9];
            for (from, to) in edges.iter().enumerate() {
                reaches[from][from] = true;
                to.iter().for_each(|to| reaches[from][*to] = true);
            }
            for through in 0..9 {
                for from in 0..9 {
                    for to in 0..9 {
                        reaches[from][to] |= reaches[from][through] && reaches[through][to];
                    }
                }
            }
            let expected: BTreeSet<BTreeSet<usize>> = (0..9)
                .map(|one| (0..9).filter(|other| reaches[one][*other] && reaches[*other][one]).collect())
                .collect();

            prop_assert_eq!(sets(components(&edges)), expected);
        }
    }
}
