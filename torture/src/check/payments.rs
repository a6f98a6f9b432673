//! Check of payments. Each payment needs the approval of a person who saw the original question.

use super::Check;
use crate::executors::Role;
use crate::oracle::Job;
use std::collections::HashMap;
use universal_executor::store::RunState;

impl Check<'_> {
    /// Checks that no payment has a forged approval or is made twice, and that each run that is done has one response.
    pub(super) fn payments(&mut self) {
        let history = self.history;
        let mut receipts: HashMap<u64, usize> = HashMap::new();
        for n in &self.snapshot.receipts {
            *receipts.entry(*n).or_default() += 1;
        }
        for (n, times) in &history.paid {
            if *times > 1 {
                self.found(format!("payment {n} was made {times} times"));
            }
        }
        let mut approved = 0;
        for row in self.rows_of(Role::Payer).to_vec() {
            let Some(accepted) = history.accepted.get(&row.trigger) else {
                continue;
            };
            let is_paid = history.paid.contains_key(&accepted.n);
            match accepted.job {
                Job::Forged if is_paid => {
                    self.found(format!("paid with a forged approval: {accepted:?}"));
                }
                Job::Approved if is_paid => approved += 1,
                _ => {}
            }
            let expected = usize::from(row.state == RunState::Done);
            let found = receipts.get(&accepted.n).copied().unwrap_or_default();
            if found != expected {
                self.found(format!("{found} responses to payment {row:?}"));
            }
        }
        if self.rows_of(Role::Payer).len() >= FEW && approved == 0 {
            self.unshown("no payment was approved");
        }
    }
}

/// Number of payments from which at least one approval in time is expected.
const FEW: usize = 10;
