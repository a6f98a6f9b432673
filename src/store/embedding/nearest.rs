//! Selection of the breadcrumbs that are most similar to the text of a vector search.

use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use crate::store::{Scored, VectorQuery};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

/// The most similar breadcrumbs that a vector search has found so far. Contains at most as many as the query's limit, each with
/// at least the query's minimum score. For equal scores, the newer breadcrumb comes first.
pub(in crate::store) struct Nearest<'q> {
    query: &'q VectorQuery,
    found: BinaryHeap<Reverse<ScoredEntry>>,
}

struct ScoredEntry {
    score: f64,
    key: (Timestamp, u64, BreadcrumbId),
    breadcrumb: Arc<Breadcrumb>,
}

impl<'q> Nearest<'q> {
    pub(in crate::store) fn new(query: &'q VectorQuery) -> Self {
        Self {
            query,
            found: BinaryHeap::new(),
        }
    }

    /// Returns `true` if a breadcrumb with this score can still be in the result of the vector search. The caller must then read
    /// the breadcrumb.
    pub(in crate::store) fn accepts(&self, score: f64) -> bool {
        let is_near = self.query.min_score.is_none_or(|least| score >= least);
        let is_below_limit = self.found.len() < self.query.query.limit;
        is_near
            && (is_below_limit
                || self
                    .found
                    .peek()
                    .is_some_and(|Reverse(last)| score >= last.score))
    }

    /// Returns `true` if the result of the vector search already has the maximum number of breadcrumbs that the query permits.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn is_full(&self) -> bool {
        self.found.len() >= self.query.query.limit
    }

    /// Adds a breadcrumb, whose score must be [accepted](Self::accepts), to the result of the vector search.
    pub(in crate::store) fn add(&mut self, score: f64, breadcrumb: Arc<Breadcrumb>) {
        self.found.push(Reverse(ScoredEntry {
            score,
            key: breadcrumb.order_key(),
            breadcrumb,
        }));
        if self.found.len() > self.query.query.limit {
            self.found.pop();
        }
    }

    /// Returns the result of the vector search, highest score first.
    pub(in crate::store) fn into_scored(self) -> Vec<Scored> {
        let found = self.found.into_sorted_vec().into_iter();
        let scored = found.map(|Reverse(found)| Scored {
            breadcrumb: found.breadcrumb,
            score: Some(found.score),
        });
        scored.collect()
    }
}

impl Ord for ScoredEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_score = self.score.total_cmp(&other.score);
        by_score.then_with(|| self.key.cmp(&other.key))
    }
}

impl PartialOrd for ScoredEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ScoredEntry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ScoredEntry {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NewBreadcrumb, Selector};
    use crate::store::Query;
    use proptest::prelude::*;

    fn breadcrumb(n: usize) -> Arc<Breadcrumb> {
        let id = BreadcrumbId::from_bytes((n as u128).to_be_bytes());
        let at = Timestamp::from_micros((n / 2) as i64);
        Arc::new(NewBreadcrumb::new("note.v1").first_version(id, at))
    }

    proptest! {
        #[test]
        fn they_are_the_first_of_all_in_order(
            scores in prop::collection::vec(0..4_u8, 0..40),
            limit in 0..10_usize,
            least in prop::option::of(0..4_u8),
        ) {
            let mut query = VectorQuery::new(Query::new(Selector::any()).limit(limit), "");
            query.min_score = least.map(f64::from);
            let all = scores.iter().map(|score| f64::from(*score)).enumerate();
            let mut nearest = Nearest::new(&query);

            for (n, score) in all.clone() {
                if nearest.accepts(score) {
                    nearest.add(score, breadcrumb(n));
                }
            }

            let mut expected: Vec<_> = all.filter(|(_, score)| query.min_score.is_none_or(|least| *score >= least)).collect();
            expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
            expected.truncate(limit);
            let expected: Vec<_> = expected.into_iter().map(|(n, score)| (breadcrumb(n).id, Some(score))).collect();
            let found = nearest.into_scored();
            let found: Vec<_> = found.iter().map(|one| (one.breadcrumb.id, one.score)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
