//! Conformance tests for every [`BreadcrumbStore`] and its [`RunLedger`](super::RunLedger), in this crate or in yours.
//!
//! Use this module when you implement a store or a wrapper: add the macro to its tests. It needs
//! the feature `conformance`, as a dev-dependency.
//!
//! Each promise of the two traits is a function that checks the promise on a fresh store. The macro
//! [`store_conformance!`](crate::store_conformance) creates a module with a `#[test]` for each promise. A promise that needs a
//! capability which the store does not declare ([`Capabilities`](super::Capabilities)) is not checked. The test
//! `undeclared_capabilities_are_printed` of the module prints these capabilities with their promises, and [`unchecked`] returns
//! them. A promise that is called on a store without its capability fails.
//!
//! ```
//! use std::time::Duration;
//! use universal_executor::store::conformance::StoreUnderTest;
//! use universal_executor::{EventSource, MemoryStore};
//!
//! struct Memory;
//!
//! impl StoreUnderTest for Memory {
//!     type Store = MemoryStore;
//!
//!     async fn fresh(&self) -> MemoryStore {
//!         MemoryStore::default()
//!     }
//!
//!     async fn in_tenant(&self, store: &MemoryStore, tenant: &str) -> Option<MemoryStore> {
//!         Some(store.in_tenant(tenant))
//!     }
//!
//!     fn events(&self, store: &MemoryStore) -> Option<Box<dyn EventSource>> {
//!         Some(Box::new(store.events()))
//!     }
//!
//!     async fn advance_clock(&self, duration: Duration) {
//!         tokio::time::sleep(duration).await;
//!     }
//! }
//!
//! universal_executor::store_conformance!(memory, Memory);
//! # use universal_executor::store::conformance::{fenced, run};
//! # run(fenced(&Memory))?;
//! # Ok::<(), universal_executor::store::conformance::Broken>(())
//! ```
//!
//! # Types to start with
//! - [`StoreUnderTest`]: implement it for a test type that creates empty stores.
//! - [`store_conformance!`](crate::store_conformance): creates the tests.
//! - [`unchecked()`]: returns the promises that the suite cannot check, for a test that fails if
//!   there are more than you expect.
//! - [`run`]: runs one promise outside of the macro.
//! - [`WordCounts`]: an embedder for tests of vector search.
//! - [`Broken`]: the error of a promise that does not hold, with a description of the violation.
#![expect(
    clippy::missing_errors_doc,
    reason = "every promise fails with a description of the violation"
)]

mod announce;
mod atomic;
mod broken;
mod cancels;
mod canonical;
mod claimed;
mod claims;
mod ends;
mod fences;
mod given;
mod leases;
mod lineage;
mod listing;
mod needs;
mod ordered;
mod pages;
mod pauses;
mod positions;
mod queries;
mod requests;
mod run_pages;
mod tenants;
mod turns;
mod unchecked;
mod vector_search;
mod versions;
mod waits;
mod writes;

pub use announce::announce;
pub use atomic::{a_failing_write_leaves_nothing, atomic, cancel_safe, commits_are_announced};
pub use cancels::{
    a_cancelled_run_can_be_redone, a_cancelled_run_loses_its_lease,
    a_cancelled_run_stays_cancelled, a_run_that_is_not_enqueued_is_cancelled,
    a_run_that_is_over_is_not_cancelled, a_waiting_run_is_cancelled_at_once,
    of_a_commit_and_a_cancellation_one_happens, the_next_run_follows_a_cancelled_one,
};
pub use canonical::{
    canonical_depth, canonical_nul, canonical_runs, canonical_schema_name, canonical_size,
    canonical_tags,
};
pub use claimed::{
    a_claim_learns_who_wrote_the_trigger, a_claimed_lease_runs_out,
    a_claimed_run_is_running_for_every_handle, a_due_run_is_claimed_with_its_history,
    a_lease_that_ran_out_is_due, a_lease_that_ran_out_is_listed_until_its_next_claim,
    a_run_that_ended_is_not_of_its_claim, claimed_leases_are_kept_alive_by_heartbeats,
    executors_take_turns, leases_are_listed_by_their_claim, limits_hold_for_each_executor,
    new_runs_are_claimed_in_the_same_step, no_run_is_claimed_twice,
    the_oldest_run_is_claimed_first,
};
pub use claims::{
    a_claim_by_hand_adds_the_row, a_claim_by_hand_does_not_wait, a_run_is_due_at_its_time,
    a_version_announced_too_early_is_run_when_it_comes, an_unknown_run_is_an_error,
    of_many_claims_one_is_granted, one_run, other_names_are_other_runs,
};
pub use ends::{
    a_failed_run_leaves_one_dead_letter, a_later_version_supersedes,
    a_later_version_that_is_done_supersedes, a_lost_lease_leaves_no_dead_letter,
    a_run_has_the_cause_of_its_last_failure, a_run_that_is_done_answers_with_what_it_wrote,
    a_skipped_run_keeps_its_reason, redo_begins_a_new_epoch, writes_on_the_way_are_recorded,
};
pub use fences::{
    a_claim_knows_that_an_earlier_lease_expired, a_lease_that_ran_out_may_still_commit,
    a_retry_ends_the_row_of_abandoned_leases, a_suspension_parts_before_from_after,
    an_owner_that_reports_a_lost_lease_has_not_abandoned_it, counted_at_claim, fenced,
    the_stores_clock,
};
pub use leases::{
    a_heartbeat_extends_the_lease, a_heartbeat_tells_what_is_lost, a_release_refunds_the_attempt,
    a_retry_need_not_count, a_retry_waits_for_its_time, an_attempt_begins_with_its_first_claim,
    the_next_attempt_goes_on_with_what_was_saved,
};
pub use lineage::{
    a_deletion_has_a_lineage, everything_a_run_writes_comes_from_it, lineage_follows_the_ledger,
    lineage_is_not_read_from_payloads, lineage_is_noted_when_enqueued, own_breadcrumbs_are_known,
    own_is_a_version, the_store_tells_who_wrote_a_version,
};
pub use listing::{runs_are_listed_by_what_they_are, runs_are_listed_in_the_order_they_are_due};
pub use ordered::{
    a_lease_that_ran_out_keeps_its_line_waiting, a_retry_keeps_its_line_waiting,
    a_run_added_for_later_keeps_its_turn, a_suspended_run_keeps_its_line_waiting, ordered,
    other_lines_do_not_wait,
};
pub use pages::{
    exclude_comes_before_the_limit, newest_first, paging_sees_each_once,
    the_limit_keeps_the_newest, what_is_not_after_a_time_is_not_found,
};
pub use pauses::{
    a_later_version_waits_for_the_end_of_a_pause, a_pause_affects_only_claims,
    a_pause_holds_for_every_handle, a_paused_executor_is_not_claimed,
    a_running_run_of_a_paused_executor_continues, a_suspended_run_of_a_paused_executor_waits,
    paused_executors_are_listed, pauses_of_tenants_are_apart,
};
pub use positions::{
    a_position_is_read_back_as_it_was_saved, a_position_that_is_too_large_is_refused,
    positions_of_tenants_are_apart, the_latest_position_counts,
};
pub use queries::{
    a_condition_that_cannot_be_evaluated_is_an_error, any_tags_find_each_once, conditions,
    only_the_current_version_is_found, scope_tags, vector_search_is_as_declared,
    what_expires_is_gone, whole_selector,
};
pub use requests::{
    a_refused_request_records_no_key, a_repeated_request_returns_the_first_trigger,
    a_request_is_announced_once, a_request_with_another_breadcrumb_is_a_conflict,
    keys_belong_to_their_executor, keys_of_tenants_are_apart,
    of_many_requests_with_one_key_one_creates,
};
pub use run_pages::{
    a_page_of_runs_has_what_the_query_selects, a_page_of_runs_is_bounded,
    a_run_that_left_its_position_is_on_the_first_page, pages_of_runs_see_each_once,
};
pub use tenants::{an_identity_is_that_of_the_data, runs_of_tenants_are_apart, tenants_apart};
pub use turns::{
    a_claim_by_hand_keeps_the_order, a_later_version_behind_the_older_is_granted,
    a_later_version_keeps_the_order, a_row_keeps_its_ordering_key,
    a_run_that_is_redone_goes_to_the_end, a_run_without_an_ordering_key_is_redone_without_one,
    a_version_announced_too_early_goes_to_the_end, of_two_ordering_keys_the_first_counts,
    what_is_behind_another_waits_for_some_time,
};
pub use unchecked::{Unchecked, check, report, unchecked};
pub use vector_search::{
    WordCounts, as_near_is_newest_first, near_by_what_hints_leave, near_by_what_it_says_now,
    near_enough, near_is_within_the_whole_selector, tenants_apart_by_meaning,
    the_nearest_come_first, what_is_gone_is_not_near,
};
pub use versions::{
    a_lost_lease_transfers_nothing, a_run_that_is_transferred_can_be_skipped,
    a_run_that_is_transferred_keeps_its_line_waiting,
    a_run_that_is_transferred_waits_for_its_version, a_run_that_left_its_position_goes_to_the_end,
    a_run_that_left_its_position_is_accepted_at_its_time,
    a_run_that_left_its_position_is_claimed_by_hand_at_the_end,
    a_run_that_no_worker_accepts_is_due_at_its_time,
    a_run_that_was_skipped_as_unmatched_can_be_redone,
    runs_that_left_their_positions_retain_their_order, workers_are_recorded,
    workers_of_tenants_are_apart,
};
pub use waits::{
    a_run_can_wait_again, a_suspended_run_is_resumed_once, a_suspended_run_waits,
    a_wait_ends_at_its_time, a_wait_without_end_is_refused, racing_resumes_let_one_through,
    what_woke_a_run_stays_with_it,
};
pub use writes::{
    a_commit_takes_a_thousand_writes, a_commit_tells_what_it_wrote_in_order,
    a_created_breadcrumb_is_read_back_whole, a_deleted_breadcrumb_is_gone,
    a_patch_keeps_what_it_does_not_name, an_update_makes_the_next_version, optimistic,
    racing_updates_let_one_through, several_writes_to_one_breadcrumb_build_on_each_other, shared,
    what_was_never_there_is_not_found,
};

pub use crate::source::conformance::{Broken, run};

use super::BreadcrumbStore;
use crate::source::EventSource;
use std::time::Duration;

/// A store under test in the conformance suite, with the control of its clock.
///
/// The suite calls [`fresh`](Self::fresh) at least once for each promise. The [module](self) has an
/// example.
pub trait StoreUnderTest: Send + Sync {
    /// The type of the store under test. A clone is another handle on the same data.
    type Store: BreadcrumbStore + Clone;

    /// Creates an empty store for one conformance test. Other tests that run at the same time do not affect the store.
    fn fresh(&self) -> impl Future<Output = Self::Store> + Send;

    /// Returns a handle on the same store, bound to another tenant. `None` if the store has only one tenant. The name is a UUID
    /// unless the store declares [`Capabilities::named_tenants`](super::Capabilities::named_tenants).
    fn in_tenant(
        &self,
        store: &Self::Store,
        tenant: &str,
    ) -> impl Future<Output = Option<Self::Store>> + Send;

    /// Returns a source of the events of a store's commits. `None` if the store publishes no events.
    fn events(&self, store: &Self::Store) -> Option<Box<dyn EventSource>>;

    /// Advances the clock of the store by at least `duration`, for example by sleeping. The suite advances the clock by one second
    /// at a time.
    ///
    /// Leases and retry delays of the suite expire by this clock. A store with a clock that tests
    /// can move makes the suite much faster than one that sleeps.
    fn advance_clock(&self, duration: Duration) -> impl Future<Output = ()> + Send;
}

/// Creates a module with one `#[test]` for each promise of [`store::conformance`](crate::store::conformance), named after the
/// promise.
///
/// The arguments are the name of the module and an expression for the
/// [`StoreUnderTest`](crate::store::conformance::StoreUnderTest). The expression is evaluated for each test.
///
/// Promises that need a capability which the store does not declare are not checked. The test
/// `undeclared_capabilities_are_printed` prints them.
///
/// Each test is a normal `#[test]` function and starts its own async runtime. The
/// [module](crate::store::conformance) has an example.
#[macro_export]
macro_rules! store_conformance {
    ($name:ident, $subject:expr) => {
        $crate::store_conformance! { @promises $name, $subject,
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
            cancel_safe
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
            a_claim_knows_that_an_earlier_lease_expired
            a_retry_ends_the_row_of_abandoned_leases
            an_owner_that_reports_a_lost_lease_has_not_abandoned_it
            fenced
            a_lease_that_ran_out_may_still_commit
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
            a_run_without_an_ordering_key_is_redone_without_one
            a_version_announced_too_early_goes_to_the_end
            a_later_version_keeps_the_order
            a_later_version_behind_the_older_is_granted
            a_row_keeps_its_ordering_key
            of_two_ordering_keys_the_first_counts
            a_claimed_run_is_running_for_every_handle
            a_due_run_is_claimed_with_its_history
            new_runs_are_claimed_in_the_same_step
            leases_are_listed_by_their_claim
            a_lease_that_ran_out_is_listed_until_its_next_claim
            claimed_leases_are_kept_alive_by_heartbeats
            a_claimed_lease_runs_out
            a_run_that_ended_is_not_of_its_claim
            a_lease_that_ran_out_is_due
            limits_hold_for_each_executor
            executors_take_turns
            the_oldest_run_is_claimed_first
            no_run_is_claimed_twice
            a_heartbeat_extends_the_lease
            a_heartbeat_tells_what_is_lost
            a_retry_waits_for_its_time
            a_retry_need_not_count
            an_attempt_begins_with_its_first_claim
            a_release_refunds_the_attempt
            the_next_attempt_goes_on_with_what_was_saved
            a_run_that_is_done_answers_with_what_it_wrote
            a_skipped_run_keeps_its_reason
            a_later_version_supersedes
            a_later_version_that_is_done_supersedes
            a_failed_run_leaves_one_dead_letter
            a_lost_lease_leaves_no_dead_letter
            a_run_has_the_cause_of_its_last_failure
            redo_begins_a_new_epoch
            a_waiting_run_is_cancelled_at_once
            a_cancelled_run_loses_its_lease
            a_run_that_is_over_is_not_cancelled
            a_cancelled_run_stays_cancelled
            a_run_that_is_not_enqueued_is_cancelled
            a_cancelled_run_can_be_redone
            the_next_run_follows_a_cancelled_one
            of_a_commit_and_a_cancellation_one_happens
            a_paused_executor_is_not_claimed
            a_pause_holds_for_every_handle
            paused_executors_are_listed
            a_running_run_of_a_paused_executor_continues
            a_suspended_run_of_a_paused_executor_waits
            a_later_version_waits_for_the_end_of_a_pause
            a_pause_affects_only_claims
            pauses_of_tenants_are_apart
            a_repeated_request_returns_the_first_trigger
            a_request_is_announced_once
            of_many_requests_with_one_key_one_creates
            a_request_with_another_breadcrumb_is_a_conflict
            keys_belong_to_their_executor
            keys_of_tenants_are_apart
            a_refused_request_records_no_key
            writes_on_the_way_are_recorded
            a_suspended_run_waits
            a_suspended_run_is_resumed_once
            racing_resumes_let_one_through
            what_woke_a_run_stays_with_it
            a_wait_ends_at_its_time
            a_wait_without_end_is_refused
            a_run_can_wait_again
            own_breadcrumbs_are_known
            a_claim_learns_who_wrote_the_trigger
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
            a_run_that_no_worker_accepts_is_due_at_its_time
            a_run_that_was_skipped_as_unmatched_can_be_redone
            a_run_that_left_its_position_goes_to_the_end
            runs_that_left_their_positions_retain_their_order
            a_run_that_left_its_position_is_accepted_at_its_time
            a_run_that_left_its_position_is_claimed_by_hand_at_the_end
            a_run_that_is_transferred_can_be_skipped
            workers_are_recorded
            workers_of_tenants_are_apart
            a_position_is_read_back_as_it_was_saved
            the_latest_position_counts
            a_position_that_is_too_large_is_refused
            positions_of_tenants_are_apart
            runs_are_listed_by_what_they_are
            runs_are_listed_in_the_order_they_are_due
            a_page_of_runs_has_what_the_query_selects
            pages_of_runs_see_each_once
            a_page_of_runs_is_bounded
            a_run_that_left_its_position_is_on_the_first_page
        }
    };
    (@promises $name:ident, $subject:expr, $($promise:ident)+) => {
        mod $name {
            #[allow(unused_imports, reason = "the subject may name what is around the module")]
            use super::*;

            #[test]
            fn undeclared_capabilities_are_printed()
            -> ::core::result::Result<(), $crate::store::conformance::Broken> {
                $crate::store::conformance::report(&$subject, stringify!($name))
            }

            $(
                #[test]
                fn $promise() -> ::core::result::Result<(), $crate::store::conformance::Broken> {
                    let subject = $subject;
                    let promise = $crate::store::conformance::$promise(&subject);
                    $crate::store::conformance::check(&subject, stringify!($promise), promise)
                }
            )+
        }
    };
}
