//! Conformance tests for every [`BreadcrumbStore`] and its [`RunLedger`](super::RunLedger), in this crate or in yours.
//!
//! Use this module when you implement a store or a wrapper: add the macro to its tests. It needs
//! the feature `conformance`, as a dev-dependency.
//!
//! Each promise of the two traits is a function that checks the promise on a fresh store. The macro
//! [`store_conformance!`](crate::store_conformance) creates a module with a `#[test]` for each promise. A promise that needs a
//! capability which the store does not declare ([`Capabilities`](super::Capabilities)) is not checked. The test
//! `undeclared_capabilities_are_printed` of the module prints these capabilities with their promises, and [`unchecked`](fn@unchecked) returns
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
mod cancels;
mod canonical;
mod claims;
mod due_claims;
mod ends;
mod expectations;
mod fences;
mod fixtures;
mod key_order;
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
mod subject;
mod tenants;
mod unchecked;
mod vector_search;
mod versions;
mod waits;
mod writes;

pub use announce::announce;
pub use atomic::{
    a_commit_publishes_its_events, a_commit_with_a_failing_write_changes_nothing, atomic,
    cancel_safe,
};
pub use cancels::{
    a_cancelled_run_can_be_redone, a_cancelled_run_loses_its_lease,
    a_cancelled_run_stays_cancelled, a_run_that_is_not_enqueued_is_cancelled,
    a_run_that_is_over_is_not_cancelled, a_waiting_run_is_cancelled_at_once,
    either_a_commit_or_a_cancellation_succeeds, the_next_run_follows_a_cancelled_one,
};
pub use canonical::{
    canonical_depth, canonical_nul, canonical_runs, canonical_schema_name, canonical_size,
    canonical_tags,
};
pub use claims::{
    a_claim_of_one_run_adds_its_row, a_claim_of_one_run_does_not_wait_for_its_time,
    a_run_has_one_row, a_run_is_due_at_its_time, a_version_announced_too_early_is_executed_later,
    an_unknown_run_is_an_error, one_of_concurrent_claims_is_granted,
    runs_with_different_names_are_different_runs,
};
pub use due_claims::{
    a_claim_respects_the_limit_of_each_executor, a_claim_returns_the_history_of_a_due_run,
    a_claim_returns_the_lineage_of_the_trigger, a_claimed_lease_expires,
    a_claimed_run_is_running_for_every_handle, a_run_with_an_expired_lease_is_due,
    an_ended_run_is_not_listed_for_its_claim, an_expired_lease_is_listed_until_the_next_claim,
    executors_take_turns, heartbeats_extend_claimed_leases, leases_are_listed_by_their_claim,
    new_runs_are_claimed_in_the_same_step, no_run_is_claimed_twice,
    the_oldest_run_is_claimed_first,
};
pub use ends::{
    a_claim_of_a_done_run_returns_its_breadcrumbs, a_done_later_version_supersedes_an_older_one,
    a_failed_run_writes_one_dead_letter, a_later_version_supersedes_an_older_one,
    a_lost_lease_writes_no_dead_letter, a_run_has_the_cause_of_its_last_failure,
    a_skipped_run_retains_its_reason, redo_begins_a_new_epoch, writes_before_the_end_are_recorded,
};
pub use fences::{
    a_claim_reports_an_expired_lease, a_retry_resets_the_count_of_abandoned_leases,
    an_attempt_counts_when_it_is_claimed, an_expired_lease_may_still_commit,
    an_owner_that_reports_a_lost_lease_has_not_abandoned_it,
    commits_after_a_suspension_have_a_later_time, fenced, leases_use_the_clock_of_the_store,
};
pub use key_order::{
    a_claim_of_a_blocked_run_returns_a_future_time, a_claim_of_one_run_respects_the_order,
    a_later_version_does_not_wait_for_an_older_one, a_later_version_goes_to_the_end_of_its_order,
    a_redone_run_gets_no_new_ordering_key, a_redone_run_goes_to_the_end_of_its_order,
    a_row_retains_its_ordering_key, a_version_announced_too_early_goes_to_the_end_of_its_order,
    the_first_of_two_ordering_keys_counts,
};
pub use leases::{
    a_heartbeat_extends_the_lease, a_heartbeat_returns_lost_leases,
    a_release_does_not_count_as_an_attempt, a_retry_can_leave_the_attempts_unchanged,
    a_retry_waits_for_its_time, an_attempt_begins_with_its_first_claim,
    the_next_attempt_continues_from_the_saved_state,
};
pub use lineage::{
    a_deletion_has_a_lineage, all_writes_of_a_run_have_one_lineage,
    an_executor_does_not_run_on_its_own_breadcrumbs, lineage_follows_the_ledger,
    lineage_is_not_read_from_payloads, lineage_is_recorded_when_enqueued,
    only_the_written_version_is_an_executors_own, the_store_returns_the_writer_of_a_version,
};
pub use listing::{runs_are_listed_by_filter, runs_are_listed_in_due_order};
pub use ordered::{
    a_delayed_run_blocks_later_runs_of_its_key, a_retry_blocks_later_runs_of_its_key,
    a_suspended_run_blocks_later_runs_of_its_key, an_expired_lease_blocks_later_runs_of_its_key,
    ordered, runs_of_other_keys_do_not_wait,
};
pub use pages::{
    a_query_after_a_time_omits_older_breadcrumbs,
    excluded_breadcrumbs_do_not_count_towards_the_limit, newest_first,
    paging_returns_each_breadcrumb_once, the_limit_selects_the_newest,
};
pub use pauses::{
    a_later_version_waits_for_the_end_of_a_pause, a_pause_affects_every_handle,
    a_pause_affects_only_claims, a_paused_executor_is_not_claimed,
    a_running_run_of_a_paused_executor_continues, a_suspended_run_of_a_paused_executor_waits,
    paused_executors_are_listed, pauses_of_tenants_are_isolated,
};
pub use positions::{
    a_position_that_is_too_large_is_rejected, a_saved_position_is_read_back_unchanged,
    positions_of_tenants_are_isolated, the_latest_position_counts,
};
pub use queries::{
    a_condition_that_cannot_be_evaluated_is_an_error, an_expired_breadcrumb_is_not_found,
    any_tags_return_each_breadcrumb_once, conditions, only_the_current_version_is_found,
    scope_tags, vector_search_matches_its_capability, whole_selector,
};
pub use requests::{
    a_refused_request_records_no_key, a_repeated_request_returns_the_first_trigger,
    a_request_publishes_one_event, a_request_with_another_breadcrumb_is_a_conflict,
    keys_belong_to_their_executor, keys_of_tenants_are_isolated,
    one_of_concurrent_requests_with_a_key_creates,
};
pub use run_pages::{
    a_page_has_the_runs_that_the_query_selects, a_page_of_runs_is_bounded,
    a_run_that_left_its_position_is_on_the_first_page, pages_return_each_run_once,
};
pub use subject::{AnyStore, AnyStoreUnderTest};
pub use tenants::{
    clones_have_the_same_identity, runs_of_tenants_are_isolated, tenants_are_isolated,
};
pub use unchecked::{Unchecked, check, report, unchecked};
pub use vector_search::{
    WordCounts, equal_scores_are_newest_first, the_most_similar_breadcrumbs_come_first,
    vector_search_applies_the_minimum_score, vector_search_applies_the_whole_selector,
    vector_search_ignores_text_that_hints_exclude, vector_search_is_limited_to_the_tenant,
    vector_search_omits_deleted_and_expired_breadcrumbs, vector_search_uses_the_current_text,
};
pub use versions::{
    a_claim_of_a_run_that_left_its_position_goes_to_the_end,
    a_run_that_left_its_position_goes_to_the_end_of_its_order,
    a_run_that_left_its_position_is_accepted_at_its_time_limit, a_transfer_with_a_lost_lease_fails,
    a_transferred_run_blocks_later_runs_of_its_key, a_transferred_run_can_be_skipped,
    a_transferred_run_is_due_at_its_time_limit, a_transferred_run_waits_for_its_version,
    an_unmatched_run_can_be_redone, runs_that_left_their_positions_retain_their_order,
    workers_are_recorded, workers_of_tenants_are_isolated,
};
pub use waits::{
    a_retry_retains_the_breadcrumb_that_woke_the_run, a_suspended_run_is_resumed_once,
    a_suspended_run_waits, a_wait_ends_at_its_time_limit, a_woken_run_can_be_suspended_again,
    an_empty_or_invalid_wait_is_rejected, one_of_concurrent_resumes_succeeds,
};
pub use writes::{
    a_commit_accepts_a_thousand_writes, a_commit_returns_its_versions_in_order,
    a_created_breadcrumb_is_read_back_unchanged, a_deleted_breadcrumb_is_not_found,
    a_patch_retains_the_fields_that_it_does_not_set, a_write_sees_the_earlier_writes_of_its_commit,
    an_unknown_breadcrumb_is_not_found, an_update_creates_the_next_version,
    clones_share_their_data, one_of_concurrent_updates_succeeds, optimistic,
};

pub use crate::source::conformance::{Broken, run};

use super::BreadcrumbStore;
use crate::source::EventSource;
use futures::future::BoxFuture;
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
        $crate::store_conformance! { @names @tests $name, $subject, }
    };
    (@tests $name:ident, $subject:expr, $($promise:ident)+) => {
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
                    $crate::store::conformance::check(&$subject, stringify!($promise))
                }
            )+
        }
    };
    // The functions of all promises by their names. The pointers have the effect that the suite is compiled in this crate.
    (@table $($promise:ident)+) => {
        &[$((stringify!($promise), |subject| Box::pin($promise(subject))),)+]
    };
    // Adds the names of all promises to the arguments.
    (@names $($args:tt)+) => {
        $crate::store_conformance! { $($args)+
            a_created_breadcrumb_is_read_back_unchanged
            an_update_creates_the_next_version
            a_patch_retains_the_fields_that_it_does_not_set
            optimistic
            one_of_concurrent_updates_succeeds
            a_write_sees_the_earlier_writes_of_its_commit
            a_commit_returns_its_versions_in_order
            a_commit_accepts_a_thousand_writes
            a_deleted_breadcrumb_is_not_found
            an_unknown_breadcrumb_is_not_found
            clones_share_their_data
            canonical_nul
            canonical_depth
            canonical_size
            canonical_tags
            canonical_schema_name
            canonical_runs
            whole_selector
            conditions
            a_condition_that_cannot_be_evaluated_is_an_error
            any_tags_return_each_breadcrumb_once
            scope_tags
            only_the_current_version_is_found
            an_expired_breadcrumb_is_not_found
            vector_search_matches_its_capability
            the_most_similar_breadcrumbs_come_first
            vector_search_applies_the_whole_selector
            vector_search_applies_the_minimum_score
            equal_scores_are_newest_first
            vector_search_uses_the_current_text
            vector_search_omits_deleted_and_expired_breadcrumbs
            vector_search_ignores_text_that_hints_exclude
            vector_search_is_limited_to_the_tenant
            newest_first
            the_limit_selects_the_newest
            excluded_breadcrumbs_do_not_count_towards_the_limit
            paging_returns_each_breadcrumb_once
            a_query_after_a_time_omits_older_breadcrumbs
            atomic
            a_commit_with_a_failing_write_changes_nothing
            a_commit_publishes_its_events
            cancel_safe
            clones_have_the_same_identity
            tenants_are_isolated
            runs_of_tenants_are_isolated
            a_run_has_one_row
            a_version_announced_too_early_is_executed_later
            runs_with_different_names_are_different_runs
            a_claim_of_one_run_adds_its_row
            a_claim_of_one_run_does_not_wait_for_its_time
            a_run_is_due_at_its_time
            one_of_concurrent_claims_is_granted
            an_unknown_run_is_an_error
            an_attempt_counts_when_it_is_claimed
            a_claim_reports_an_expired_lease
            a_retry_resets_the_count_of_abandoned_leases
            an_owner_that_reports_a_lost_lease_has_not_abandoned_it
            fenced
            an_expired_lease_may_still_commit
            leases_use_the_clock_of_the_store
            commits_after_a_suspension_have_a_later_time
            ordered
            a_delayed_run_blocks_later_runs_of_its_key
            a_retry_blocks_later_runs_of_its_key
            a_suspended_run_blocks_later_runs_of_its_key
            an_expired_lease_blocks_later_runs_of_its_key
            runs_of_other_keys_do_not_wait
            a_claim_of_one_run_respects_the_order
            a_claim_of_a_blocked_run_returns_a_future_time
            a_redone_run_goes_to_the_end_of_its_order
            a_redone_run_gets_no_new_ordering_key
            a_version_announced_too_early_goes_to_the_end_of_its_order
            a_later_version_goes_to_the_end_of_its_order
            a_later_version_does_not_wait_for_an_older_one
            a_row_retains_its_ordering_key
            the_first_of_two_ordering_keys_counts
            a_claimed_run_is_running_for_every_handle
            a_claim_returns_the_history_of_a_due_run
            new_runs_are_claimed_in_the_same_step
            leases_are_listed_by_their_claim
            an_expired_lease_is_listed_until_the_next_claim
            heartbeats_extend_claimed_leases
            a_claimed_lease_expires
            an_ended_run_is_not_listed_for_its_claim
            a_run_with_an_expired_lease_is_due
            a_claim_respects_the_limit_of_each_executor
            executors_take_turns
            the_oldest_run_is_claimed_first
            no_run_is_claimed_twice
            a_heartbeat_extends_the_lease
            a_heartbeat_returns_lost_leases
            a_retry_waits_for_its_time
            a_retry_can_leave_the_attempts_unchanged
            an_attempt_begins_with_its_first_claim
            a_release_does_not_count_as_an_attempt
            the_next_attempt_continues_from_the_saved_state
            a_claim_of_a_done_run_returns_its_breadcrumbs
            a_skipped_run_retains_its_reason
            a_later_version_supersedes_an_older_one
            a_done_later_version_supersedes_an_older_one
            a_failed_run_writes_one_dead_letter
            a_lost_lease_writes_no_dead_letter
            a_run_has_the_cause_of_its_last_failure
            redo_begins_a_new_epoch
            a_waiting_run_is_cancelled_at_once
            a_cancelled_run_loses_its_lease
            a_run_that_is_over_is_not_cancelled
            a_cancelled_run_stays_cancelled
            a_run_that_is_not_enqueued_is_cancelled
            a_cancelled_run_can_be_redone
            the_next_run_follows_a_cancelled_one
            either_a_commit_or_a_cancellation_succeeds
            a_paused_executor_is_not_claimed
            a_pause_affects_every_handle
            paused_executors_are_listed
            a_running_run_of_a_paused_executor_continues
            a_suspended_run_of_a_paused_executor_waits
            a_later_version_waits_for_the_end_of_a_pause
            a_pause_affects_only_claims
            pauses_of_tenants_are_isolated
            a_repeated_request_returns_the_first_trigger
            a_request_publishes_one_event
            one_of_concurrent_requests_with_a_key_creates
            a_request_with_another_breadcrumb_is_a_conflict
            keys_belong_to_their_executor
            keys_of_tenants_are_isolated
            a_refused_request_records_no_key
            writes_before_the_end_are_recorded
            a_suspended_run_waits
            a_suspended_run_is_resumed_once
            one_of_concurrent_resumes_succeeds
            a_retry_retains_the_breadcrumb_that_woke_the_run
            a_wait_ends_at_its_time_limit
            an_empty_or_invalid_wait_is_rejected
            a_woken_run_can_be_suspended_again
            an_executor_does_not_run_on_its_own_breadcrumbs
            a_claim_returns_the_lineage_of_the_trigger
            only_the_written_version_is_an_executors_own
            lineage_follows_the_ledger
            lineage_is_not_read_from_payloads
            the_store_returns_the_writer_of_a_version
            all_writes_of_a_run_have_one_lineage
            lineage_is_recorded_when_enqueued
            a_deletion_has_a_lineage
            a_transfer_with_a_lost_lease_fails
            a_transferred_run_blocks_later_runs_of_its_key
            a_transferred_run_waits_for_its_version
            a_transferred_run_is_due_at_its_time_limit
            an_unmatched_run_can_be_redone
            a_run_that_left_its_position_goes_to_the_end_of_its_order
            runs_that_left_their_positions_retain_their_order
            a_run_that_left_its_position_is_accepted_at_its_time_limit
            a_claim_of_a_run_that_left_its_position_goes_to_the_end
            a_transferred_run_can_be_skipped
            workers_are_recorded
            workers_of_tenants_are_isolated
            a_saved_position_is_read_back_unchanged
            the_latest_position_counts
            a_position_that_is_too_large_is_rejected
            positions_of_tenants_are_isolated
            runs_are_listed_by_filter
            runs_are_listed_in_due_order
            a_page_has_the_runs_that_the_query_selects
            pages_return_each_run_once
            a_page_of_runs_is_bounded
            a_run_that_left_its_position_is_on_the_first_page
        }
    };
}

/// A conformance promise: checks a fresh store.
type Promise = for<'s> fn(&'s dyn AnyStoreUnderTest) -> BoxFuture<'s, Result<(), Broken>>;

/// All conformance promises by name.
const PROMISES: &[(&str, Promise)] = store_conformance! { @names @table };
