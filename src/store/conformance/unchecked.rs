//! The capabilities that promises need, and the promises that a store is not checked for.

use super::{Broken, Subject, run};
use crate::store::conformance::given::other_name;
use crate::store::{BreadcrumbStore, Capabilities};
use std::fmt;
use std::io::{self, Write as _};

/// A capability that a store does not declare, with the promises that need it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Unchecked {
    /// The field of [`Capabilities`], or `ledger`, `tenants` or `events` for a part of the subject that is missing.
    pub capability: &'static str,
    /// The promises that are not checked at all.
    pub promises: Vec<&'static str>,
    /// The promises that are checked in part.
    pub in_part: Vec<&'static str>,
}

impl fmt::Display for Unchecked {
    /// Writes one line: the capability, then the promises that need it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.capability)?;
        if self.promises.is_empty() && self.in_part.is_empty() {
            return f.write_str("needed by no promise");
        }
        if !self.promises.is_empty() {
            write!(f, "not checked: {}", self.promises.join(", "))?;
        }
        if !self.in_part.is_empty() {
            let comma = if self.promises.is_empty() { "" } else { "; " };
            write!(f, "{comma}checked in part: {}", self.in_part.join(", "))?;
        }
        Ok(())
    }
}

/// Lists the capabilities that the store of a subject does not declare, with the promises that the suite does not check for that
/// reason. Every other promise is checked as a whole.
///
/// ```
/// use std::time::Duration;
/// use universal_executor::store::conformance::{Subject, unchecked};
/// use universal_executor::{EventSource, MemoryStore};
///
/// struct Memory;
///
/// impl Subject for Memory {
///     type Store = MemoryStore;
///
///     async fn fresh(&self) -> MemoryStore {
///         MemoryStore::default()
///     }
///
///     async fn in_tenant(&self, store: &MemoryStore, tenant: &str) -> Option<MemoryStore> {
///         Some(store.in_tenant(tenant))
///     }
///
///     fn events(&self, store: &MemoryStore) -> Option<Box<dyn EventSource>> {
///         Some(Box::new(store.events()))
///     }
///
///     async fn pass(&self, duration: Duration) {
///         tokio::time::sleep(duration).await;
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let missing = unchecked(&Memory).await;
///
/// // A store without an embedder has no vector search.
/// assert!(missing.iter().any(|one| one.capability == "vector_search"));
/// assert!(missing.iter().all(|one| one.capability != "ledger"));
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn unchecked<S: Subject>(subject: &S) -> Vec<Unchecked> {
    let store = subject.fresh().await;
    let mut found = Vec::new();
    for (capability, is_declared) in declared(subject, &store).await {
        if is_declared {
            continue;
        }
        let needs = NEEDS.iter().find(|needs| needs.capability == capability);
        found.push(Unchecked {
            capability,
            promises: needs.map_or_else(Vec::new, |needs| needs.promises.to_vec()),
            in_part: needs.map_or_else(Vec::new, |needs| needs.in_part.to_vec()),
        });
    }
    found
}

/// Checks one promise, unless the store does not declare a capability that the promise needs. Prints the capability then.
#[doc(hidden)]
pub fn check<S: Subject>(
    subject: &S,
    name: &str,
    promise: impl Future<Output = Result<(), Broken>>,
) -> Result<(), Broken> {
    run(async {
        if NEEDS.iter().any(|needs| needs.promises.contains(&name)) {
            for missing in unchecked(subject).await {
                if missing.promises.contains(&name) {
                    print(&format!(
                        "{name} is not checked: the store does not declare {}\n",
                        missing.capability
                    ));
                    return Ok(());
                }
            }
        }
        promise.await
    })
}

/// Prints the capabilities that a store does not declare, whether or not the test harness captures the output of tests.
#[doc(hidden)]
pub fn report<S: Subject>(subject: &S, suite: &str) -> Result<(), Broken> {
    run(async {
        let missing = unchecked(subject).await;
        let mut text = format!("store conformance {suite}: ");
        match missing.is_empty() {
            true => text.push_str("all capabilities are declared, all promises are checked\n"),
            false => text.push_str("the store does not declare\n"),
        }
        for one in missing {
            text.push_str(&format!("    {one}\n"));
        }
        io::stderr()
            .lock()
            .write_all(text.as_bytes())
            .map_err(Broken::failed)
    })
}

#[expect(
    clippy::print_stderr,
    reason = "the harness shows what a test prints, and a promise that is not checked must show"
)]
fn print(text: &str) {
    eprint!("{text}");
}

/// Each capability, and whether it is declared. A new field of [`Capabilities`] does not compile until it is listed here.
async fn declared<S: Subject>(subject: &S, store: &S::Store) -> Vec<(&'static str, bool)> {
    let Capabilities {
        reads_own_writes,
        tombstones,
        vector_search,
        chosen_author,
        lineage,
        atomic,
        atomic_ends,
        exclusive_updates,
        scores,
        embeds_updates,
        embeds_hinted,
        named_tenants,
        run_keys,
        oldest_first,
    } = store.capabilities();
    let has_ledger = store.ledger().is_some();
    let second = subject.in_tenant(store, other_name(store)).await;
    vec![
        ("ledger", has_ledger),
        ("tenants", second.is_some()),
        ("events", subject.events(store).is_some()),
        ("reads_own_writes", reads_own_writes),
        ("tombstones", tombstones),
        ("chosen_author", chosen_author),
        ("atomic", atomic),
        ("exclusive_updates", exclusive_updates),
        ("named_tenants", named_tenants),
        ("vector_search", vector_search),
        ("scores", scores),
        ("embeds_updates", embeds_updates),
        ("embeds_hinted", embeds_hinted),
        ("oldest_first", oldest_first),
        // These describe a ledger.
        ("lineage", lineage || !has_ledger),
        ("atomic_ends", atomic_ends || !has_ledger),
        // A store with a ledger has no use for it.
        ("run_keys", run_keys || has_ledger),
    ]
}

/// The promises that need a capability.
struct Needs {
    capability: &'static str,
    promises: &'static [&'static str],
    in_part: &'static [&'static str],
}

/// A promise that is listed for no capability needs none.
const NEEDS: &[Needs] = &[
    Needs {
        capability: "ledger",
        promises: &[
            "canonical_runs",
            "runs_of_tenants_are_apart",
            "one_run",
            "a_version_announced_too_early_is_run_when_it_comes",
            "other_names_are_other_runs",
            "a_claim_by_hand_adds_the_row",
            "a_claim_by_hand_does_not_wait",
            "a_run_is_due_at_its_time",
            "of_many_claims_one_is_granted",
            "an_unknown_run_is_an_error",
            "counted_at_claim",
            "a_retry_ends_the_row_of_abandoned_leases",
            "an_owner_that_reports_a_lost_lease_has_not_abandoned_it",
            "fenced",
            "a_lease_that_ran_out_may_still_commit",
            "the_stores_clock",
            "a_suspension_parts_before_from_after",
            "ordered",
            "a_run_added_for_later_keeps_its_turn",
            "a_retry_keeps_its_line_waiting",
            "a_suspended_run_keeps_its_line_waiting",
            "a_lease_that_ran_out_keeps_its_line_waiting",
            "other_lines_do_not_wait",
            "a_claim_by_hand_keeps_the_order",
            "what_is_behind_another_waits_for_some_time",
            "a_run_that_is_redone_goes_to_the_end",
            "a_run_without_an_ordering_key_is_redone_without_one",
            "a_version_announced_too_early_goes_to_the_end",
            "a_later_version_keeps_the_order",
            "a_later_version_behind_the_older_is_granted",
            "a_row_keeps_its_ordering_key",
            "of_two_ordering_keys_the_first_counts",
            "a_claimed_run_is_running_for_every_handle",
            "a_due_run_is_claimed_with_its_history",
            "new_runs_are_claimed_in_the_same_step",
            "leases_are_listed_by_their_claim",
            "a_lease_that_ran_out_is_listed_until_its_next_claim",
            "claimed_leases_are_kept_alive_by_heartbeats",
            "a_claimed_lease_runs_out",
            "a_run_that_ended_is_not_of_its_claim",
            "a_lease_that_ran_out_is_due",
            "limits_hold_for_each_executor",
            "executors_take_turns",
            "the_oldest_run_is_claimed_first",
            "no_run_is_claimed_twice",
            "a_heartbeat_extends_the_lease",
            "a_heartbeat_tells_what_is_lost",
            "a_retry_waits_for_its_time",
            "a_retry_need_not_count",
            "an_attempt_begins_with_its_first_claim",
            "a_release_refunds_the_attempt",
            "the_next_attempt_goes_on_with_what_was_saved",
            "a_run_that_is_done_answers_with_what_it_wrote",
            "a_skipped_run_keeps_its_reason",
            "a_later_version_supersedes",
            "a_later_version_that_is_done_supersedes",
            "a_failed_run_leaves_one_dead_letter",
            "a_lost_lease_leaves_no_dead_letter",
            "a_run_has_the_cause_of_its_last_failure",
            "redo_begins_a_new_epoch",
            "a_waiting_run_is_cancelled_at_once",
            "a_cancelled_run_loses_its_lease",
            "a_run_that_is_over_is_not_cancelled",
            "a_cancelled_run_stays_cancelled",
            "a_cancelled_run_can_be_redone",
            "the_next_run_follows_a_cancelled_one",
            "of_a_commit_and_a_cancellation_one_happens",
            "writes_on_the_way_are_recorded",
            "a_suspended_run_waits",
            "a_suspended_run_is_resumed_once",
            "racing_resumes_let_one_through",
            "what_woke_a_run_stays_with_it",
            "a_wait_ends_at_its_time",
            "a_wait_without_end_is_refused",
            "a_run_can_wait_again",
            "own_breadcrumbs_are_known",
            "a_claim_learns_who_wrote_the_trigger",
            "own_is_a_version",
            "lineage_follows_the_ledger",
            "lineage_is_not_read_from_payloads",
            "the_store_tells_who_wrote_a_version",
            "everything_a_run_writes_comes_from_it",
            "lineage_is_noted_when_enqueued",
            "a_deletion_has_a_lineage",
            "a_lost_lease_transfers_nothing",
            "a_run_that_is_transferred_keeps_its_line_waiting",
            "a_run_that_is_transferred_waits_for_its_version",
            "a_run_that_no_worker_accepts_is_due_at_its_time",
            "a_run_that_was_skipped_as_unmatched_can_be_redone",
            "a_run_that_left_its_position_goes_to_the_end",
            "runs_that_left_their_positions_retain_their_order",
            "a_run_that_left_its_position_is_accepted_at_its_time",
            "a_run_that_left_its_position_is_claimed_by_hand_at_the_end",
            "a_run_that_is_transferred_can_be_skipped",
            "workers_are_recorded",
            "workers_of_tenants_are_apart",
            "a_position_is_read_back_as_it_was_saved",
            "the_latest_position_counts",
            "a_position_that_is_too_large_is_refused",
            "positions_of_tenants_are_apart",
            "runs_are_listed_by_what_they_are",
            "runs_are_listed_in_the_order_they_are_due",
            "a_page_of_runs_has_what_the_query_selects",
            "pages_of_runs_see_each_once",
            "a_page_of_runs_is_bounded",
            "a_run_that_left_its_position_is_on_the_first_page",
        ],
        in_part: &["a_failing_write_leaves_nothing", "cancel_safe"],
    },
    Needs {
        capability: "tenants",
        promises: &[
            "tenants_apart_by_meaning",
            "tenants_apart",
            "runs_of_tenants_are_apart",
            "workers_of_tenants_are_apart",
            "positions_of_tenants_are_apart",
        ],
        in_part: &[],
    },
    Needs {
        capability: "events",
        promises: &["commits_are_announced"],
        in_part: &[],
    },
    Needs {
        capability: "tombstones",
        promises: &["a_deletion_has_a_lineage"],
        in_part: &["a_deleted_breadcrumb_is_gone"],
    },
    Needs {
        capability: "chosen_author",
        promises: &[],
        in_part: &[
            "a_created_breadcrumb_is_read_back_whole",
            "an_update_makes_the_next_version",
            "a_deleted_breadcrumb_is_gone",
        ],
    },
    Needs {
        capability: "atomic",
        promises: &["atomic", "cancel_safe"],
        in_part: &[],
    },
    Needs {
        capability: "exclusive_updates",
        promises: &[],
        in_part: &["racing_updates_let_one_through"],
    },
    Needs {
        capability: "named_tenants",
        promises: &[],
        in_part: &[
            "tenants_apart_by_meaning",
            "tenants_apart",
            "runs_of_tenants_are_apart",
            "workers_of_tenants_are_apart",
            "positions_of_tenants_are_apart",
        ],
    },
    Needs {
        capability: "vector_search",
        promises: &[
            "the_nearest_come_first",
            "near_is_within_the_whole_selector",
            "near_enough",
            "as_near_is_newest_first",
            "near_by_what_it_says_now",
            "what_is_gone_is_not_near",
            "near_by_what_hints_leave",
            "tenants_apart_by_meaning",
        ],
        in_part: &[],
    },
    Needs {
        capability: "scores",
        promises: &["near_enough", "as_near_is_newest_first"],
        in_part: &[
            "the_nearest_come_first",
            "near_by_what_it_says_now",
            "near_by_what_hints_leave",
        ],
    },
    Needs {
        capability: "embeds_updates",
        promises: &["near_by_what_it_says_now"],
        in_part: &[],
    },
    Needs {
        capability: "embeds_hinted",
        promises: &["near_by_what_hints_leave"],
        in_part: &[],
    },
    Needs {
        capability: "lineage",
        promises: &[
            "a_version_announced_too_early_is_run_when_it_comes",
            "a_version_announced_too_early_goes_to_the_end",
            "own_breadcrumbs_are_known",
            "a_claim_learns_who_wrote_the_trigger",
            "own_is_a_version",
            "lineage_follows_the_ledger",
            "lineage_is_not_read_from_payloads",
            "the_store_tells_who_wrote_a_version",
            "everything_a_run_writes_comes_from_it",
            "lineage_is_noted_when_enqueued",
            "a_deletion_has_a_lineage",
        ],
        in_part: &[
            "a_lease_that_ran_out_may_still_commit",
            "a_run_that_is_done_answers_with_what_it_wrote",
            "a_later_version_that_is_done_supersedes",
            "a_failed_run_leaves_one_dead_letter",
            "redo_begins_a_new_epoch",
            "writes_on_the_way_are_recorded",
            "a_suspended_run_waits",
            "a_suspended_run_is_resumed_once",
        ],
    },
    Needs {
        capability: "atomic_ends",
        promises: &[],
        in_part: &["cancel_safe"],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::EventSource;
    use crate::store::MemoryStore;
    use std::time::Duration;

    struct Memory;

    impl Subject for Memory {
        type Store = MemoryStore;

        async fn fresh(&self) -> MemoryStore {
            MemoryStore::default()
        }

        async fn in_tenant(&self, store: &MemoryStore, tenant: &str) -> Option<MemoryStore> {
            Some(store.in_tenant(tenant))
        }

        fn events(&self, store: &MemoryStore) -> Option<Box<dyn EventSource>> {
            Some(Box::new(store.events()))
        }

        async fn pass(&self, _: Duration) {}
    }

    #[test]
    fn a_promise_is_checked_unless_the_store_does_not_declare_its_capability() {
        let broken = async { Err(Broken::new("never")) };
        assert!(check(&Memory, "the_nearest_come_first", broken).is_ok());

        let broken = async { Err(Broken::new("never")) };
        assert!(check(&Memory, "fenced", broken).is_err());
    }

    #[test]
    fn every_listed_promise_is_in_the_suite() {
        let suite: Vec<_> = include_str!("mod.rs").lines().map(str::trim).collect();

        for needs in NEEDS {
            for name in needs.promises.iter().chain(needs.in_part) {
                assert!(suite.contains(name), "{name} is not in the suite");
            }
        }
    }

    #[tokio::test]
    async fn every_listed_capability_is_asked_for() {
        let declared = declared(&Memory, &MemoryStore::default()).await;

        for needs in NEEDS {
            let is_known = declared.iter().any(|(name, _)| *name == needs.capability);
            assert!(is_known, "{} is not declared", needs.capability);
        }
    }

    #[test]
    fn a_line_names_the_capability_and_its_promises() {
        let one = Unchecked {
            capability: "scores",
            promises: vec!["near_enough"],
            in_part: vec!["the_nearest_come_first"],
        };
        let none = Unchecked {
            capability: "oldest_first",
            promises: Vec::new(),
            in_part: Vec::new(),
        };
        let line = "scores: not checked: near_enough; checked in part: the_nearest_come_first";
        assert_eq!(one.to_string(), line);
        assert_eq!(none.to_string(), "oldest_first: needed by no promise");
    }
}
