//! Round-robin order in which a claim takes the due runs of several executors.

use crate::store::ExecutorLimits;
use std::sync::Arc;

/// Takes up to `n` due runs of several executors in turns. Each turn takes one run of each executor with free capacity. `next`
/// returns the next item of an executor. An executor that is named twice has the capacity of both entries.
pub(in crate::store) fn round_robin<T, E>(
    n: usize,
    of: &[ExecutorLimits],
    mut next: impl FnMut(&Arc<str>) -> Result<Option<T>, E>,
) -> Result<Vec<T>, E> {
    let mut free: Vec<(&Arc<str>, usize)> = of
        .iter()
        .map(|limits| (&limits.executor, limits.free))
        .collect();
    let mut items = Vec::new();
    loop {
        let before = items.len();
        for (executor, free) in free.iter_mut().filter(|(_, free)| *free > 0) {
            if items.len() == n {
                return Ok(items);
            }
            match next(executor)? {
                Some(item) => {
                    items.push(item);
                    *free -= 1;
                }
                None => *free = 0,
            }
        }
        if items.len() == before {
            return Ok(items);
        }
    }
}
