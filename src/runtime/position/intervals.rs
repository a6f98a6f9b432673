use super::Range;
use crate::model::Timestamp;

/// A set of integers as sorted intervals that do not touch. Each interval starts after its first number, and includes its second.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Intervals(Vec<(i64, i64)>);

impl Intervals {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn last(&self) -> Option<(i64, i64)> {
        self.0.last().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, i64)> {
        self.0.iter().copied()
    }

    pub(super) fn ranges(&self) -> Vec<Range> {
        let time = Timestamp::from_micros;
        self.iter()
            .map(|(after, to)| (time(after), time(to)))
            .collect()
    }

    pub(super) fn add(&mut self, (mut after, mut to): (i64, i64)) {
        if after >= to {
            return;
        }
        self.0.retain(|&(other_after, other_to)| {
            let touches = other_after <= to && after <= other_to;
            if touches {
                (after, to) = (after.min(other_after), to.max(other_to));
            }
            !touches
        });
        let index = self.0.partition_point(|&(other, _)| other < after);
        self.0.insert(index, (after, to));
    }

    pub(super) fn remove(&mut self, (after, to): (i64, i64)) {
        if after >= to {
            return;
        }
        let mut remaining = Vec::with_capacity(self.0.len() + 1);
        for (start, end) in self.iter() {
            remaining.extend([(start, end.min(after)), (start.max(to), end)]);
        }
        remaining.retain(|(start, end)| start < end);
        self.0 = remaining;
    }

    /// Returns the numbers that are in both sets of intervals.
    pub(super) fn common(&self, other: &Self) -> Self {
        let mut common = Self::default();
        for (after, to) in self.iter() {
            for (other_after, other_to) in other.iter() {
                common.add((after.max(other_after), to.min(other_to)));
            }
        }
        common
    }

    /// Returns the part of this set of intervals with the numbers up to and including `limit`.
    pub(super) fn up_to(&self, limit: i64) -> Self {
        let cut = self.iter().map(|(after, to)| (after, to.min(limit)));
        Self(cut.filter(|(after, to)| after < to).collect())
    }

    /// Joins neighbouring intervals, smallest gap first, until at most `limit` intervals remain in the set.
    pub(super) fn join_to(&mut self, limit: usize) {
        self.join(limit.max(1), 0);
    }

    /// Joins neighbouring intervals except the oldest, smallest gap first, until at most `limit` intervals remain in the set. The
    /// oldest interval is never joined: a sweep shortens it from its newest end, and a join would add the read part again.
    pub(super) fn join_newer_to(&mut self, limit: usize) {
        self.join(limit.max(2), 1);
    }

    fn join(&mut self, limit: usize, from: usize) {
        while self.0.len() > limit {
            let distance = |pair: &[(i64, i64)]| match pair {
                [(_, end), (start, _)] => start.abs_diff(*end),
                _ => u64::MAX,
            };
            let nearest = self.0.windows(2).enumerate().skip(from);
            let Some((first, _)) = nearest.min_by_key(|(_, pair)| distance(pair)) else {
                return;
            };
            let (_, end) = self.0.remove(first + 1);
            if let Some(joined) = self.0.get_mut(first) {
                joined.1 = end;
            }
        }
    }
}
