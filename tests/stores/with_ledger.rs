//! A store beside the ledger of another: what is left of the promises of a store.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use universal_executor::store::MemoryLimits;
use universal_executor::store::conformance::{Subject, WordCounts};
use universal_executor::store::meaning::Meaning;
use universal_executor::{EventSource, MemoryStore, WithLedger};

/// Two stores in memory, one for the breadcrumbs and what they mean, one for the runs.
struct Two;

impl Subject for Two {
    type Store = WithLedger<MemoryStore, MemoryStore>;

    async fn fresh(&self) -> Self::Store {
        let service = MemoryStore::with_meaning(MemoryLimits::default(), Meaning::by(WordCounts));
        WithLedger::new(service, MemoryStore::default())
    }

    async fn in_tenant(&self, _: &Self::Store, _: &str) -> Option<Self::Store> {
        None
    }

    fn events(&self, _: &Self::Store) -> Option<Box<dyn EventSource>> {
        None
    }

    async fn pass(&self, duration: Duration) {
        tokio::time::pause();
        tokio::time::advance(duration).await;
        tokio::time::resume();
    }
}

/// Two stores in memory, with the events of the store of breadcrumbs.
#[derive(Default)]
struct WithEvents(Mutex<MemoryStore>);

impl Subject for WithEvents {
    type Store = WithLedger<MemoryStore, MemoryStore>;

    async fn fresh(&self) -> Self::Store {
        let service = MemoryStore::default();
        *self.0.lock().unwrap() = service.clone();
        WithLedger::new(service, MemoryStore::default())
    }

    async fn in_tenant(&self, _: &Self::Store, _: &str) -> Option<Self::Store> {
        None
    }

    fn events(&self, _: &Self::Store) -> Option<Box<dyn EventSource>> {
        Some(Box::new(self.0.lock().unwrap().events()))
    }

    async fn pass(&self, duration: Duration) {
        Two.pass(duration).await;
    }
}

crate::versions::versions!(versions_of_executors, WithEvents::default());

/// Promises that are tried on what a row tells of its run's writes, which a ledger beside the store does not know; and
/// the one that a commit is a single step. What else they say of runs is tried in tests/core/executor/with_ledger.rs.
const LEFT_OUT: [&str; 9] = [
    "a_failed_run_leaves_one_dead_letter",
    "a_later_version_that_is_done_supersedes",
    "a_lease_that_ran_out_may_still_commit",
    "a_run_that_is_done_answers_with_what_it_wrote",
    "a_suspended_run_is_resumed_once",
    "a_suspended_run_waits",
    "cancel_safe",
    "redo_begins_a_new_epoch",
    "writes_on_the_way_are_recorded",
];

universal_executor::store_conformance! { @promises two, Two,
    a_created_breadcrumb_is_read_back_whole
    an_update_makes_the_next_version
    a_patch_keeps_what_it_does_not_name
    optimistic
    racing_updates_let_one_through
    several_writes_to_one_breadcrumb_build_on_each_other
    a_commit_tells_what_it_wrote_in_order
    a_commit_takes_a_thousand_writes
    a_deleted_breadcrumb_is_gone
    what_was_never_there_is_not_found
    shared
    canonical_nul
    canonical_depth
    canonical_size
    canonical_tags
    canonical_schema_name
    canonical_runs
    whole_selector
    conditions
    a_condition_that_cannot_be_evaluated_is_an_error
    any_tags_find_each_once
    scope_tags
    only_the_current_version_is_found
    what_expires_is_gone
    vector_search_is_as_declared
    the_nearest_come_first
    near_is_within_the_whole_selector
    near_enough
    as_near_is_newest_first
    near_by_what_it_says_now
    what_is_gone_is_not_near
    near_by_what_hints_leave
    tenants_apart_by_meaning
    newest_first
    the_limit_keeps_the_newest
    exclude_comes_before_the_limit
    paging_sees_each_once
    what_is_not_after_a_time_is_not_found
    atomic
    a_failing_write_leaves_nothing
    commits_are_announced
    an_identity_is_that_of_the_data
    tenants_apart
    runs_of_tenants_are_apart
    one_run
    a_version_announced_too_early_is_run_when_it_comes
    other_names_are_other_runs
    a_claim_by_hand_adds_the_row
    a_claim_by_hand_does_not_wait
    a_run_is_due_at_its_time
    of_many_claims_one_is_granted
    an_unknown_run_is_an_error
    counted_at_claim
    a_retry_ends_the_row_of_abandoned_leases
    an_owner_that_reports_a_lost_lease_has_not_abandoned_it
    fenced
    the_stores_clock
    a_suspension_parts_before_from_after
    ordered
    a_run_added_for_later_keeps_its_turn
    a_retry_keeps_its_line_waiting
    a_suspended_run_keeps_its_line_waiting
    a_lease_that_ran_out_keeps_its_line_waiting
    other_lines_do_not_wait
    a_claim_by_hand_keeps_the_order
    what_is_behind_another_waits_for_some_time
    a_run_that_is_redone_goes_to_the_end
    a_version_announced_too_early_goes_to_the_end
    a_later_version_keeps_the_order
    a_row_keeps_its_ordering_key
    a_run_without_an_ordering_key_is_redone_without_one
    of_two_ordering_keys_the_first_counts
    a_parked_lease_is_taken_by_its_handle
    a_parked_lease_belongs_to_its_owner
    parked_leases_are_kept_alive_by_heartbeats
    a_parked_lease_runs_out_too
    a_parked_lease_that_ran_out_is_told_by_its_next_handle
    a_run_that_ended_is_not_parked
    a_lease_that_ran_out_is_due
    limits_hold_for_each_executor
    executors_take_turns
    the_oldest_run_is_claimed_first
    no_run_is_claimed_twice
    an_attempt_begins_with_its_first_claim
    a_heartbeat_extends_the_lease
    a_heartbeat_tells_what_is_lost
    a_retry_waits_for_its_time
    a_retry_need_not_count
    a_release_refunds_the_attempt
    the_next_attempt_goes_on_with_what_was_saved
    a_skipped_run_keeps_its_reason
    a_later_version_supersedes
    a_later_version_behind_the_older_is_granted
    a_lost_lease_leaves_no_dead_letter
    a_run_has_the_cause_of_its_last_failure
    racing_resumes_let_one_through
    what_woke_a_run_stays_with_it
    a_wait_ends_at_its_time
    a_wait_without_end_is_refused
    a_run_can_wait_again
    own_breadcrumbs_are_known
    own_is_a_version
    lineage_follows_the_ledger
    lineage_is_not_read_from_payloads
    the_store_tells_who_wrote_a_version
    everything_a_run_writes_comes_from_it
    lineage_is_noted_when_enqueued
    a_deletion_has_a_lineage
    a_lost_lease_transfers_nothing
    a_run_that_is_transferred_keeps_its_line_waiting
    a_run_that_is_transferred_waits_for_its_version
    a_run_that_left_its_position_goes_to_the_end
    runs_that_left_their_positions_retain_their_order
    a_run_that_left_its_position_is_accepted_at_its_time
    a_run_that_left_its_position_is_claimed_by_hand_at_the_end
    a_run_that_is_transferred_can_be_skipped
    a_run_that_no_worker_accepts_is_due_at_its_time
    a_run_that_was_skipped_as_unmatched_can_be_redone
    workers_are_recorded
    workers_of_tenants_are_apart
    a_position_is_read_back_as_it_was_saved
    the_latest_position_counts
    a_position_that_is_too_large_is_refused
    positions_of_tenants_are_apart
    runs_are_listed_by_what_they_are
    runs_are_listed_in_the_order_they_are_due
}

#[test]
fn every_promise_is_kept_or_left_out_on_purpose() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let suite = fs::read_to_string(root.join("src/store/conformance/mod.rs"))?;
    let kept = fs::read_to_string(root.join("tests/stores/with_ledger.rs"))?;
    let is_listed = |list: &str, name: &str| list.lines().any(|line| line.trim() == name);

    let names = suite
        .lines()
        .map(str::trim)
        .skip_while(|line| !line.contains("@promises"));
    let names = names.skip(1).take_while(|line| *line != "}");
    for name in names {
        assert!(
            is_listed(&kept, name) != LEFT_OUT.contains(&name),
            "{name} is neither kept nor left out, or both"
        );
    }
    assert!(LEFT_OUT.iter().all(|name| is_listed(&suite, name)));
    Ok(())
}
