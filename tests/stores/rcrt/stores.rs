//! The suite for stores, as far as the server can keep its promises.

use super::server::Server;
use super::{OWNER, builder, store};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use universal_executor::store::conformance::Subject;
use universal_executor::{BreadcrumbStore, EventSource, MemoryStore, RcrtStore, WithLedger};

#[derive(Default)]
struct Rcrt {
    server: Mutex<Option<Server>>,
}

impl Subject for Rcrt {
    type Store = RcrtStore;

    async fn fresh(&self) -> RcrtStore {
        let server = Server::start().await;
        *self.server.lock().unwrap() = Some(server.clone());
        store(&server)
    }

    async fn in_tenant(&self, _: &RcrtStore, tenant: &str) -> Option<RcrtStore> {
        let server = self.server.lock().unwrap().clone()?;
        builder(&server, tenant).build().ok()
    }

    fn events(&self, _: &RcrtStore) -> Option<Box<dyn EventSource>> {
        // The server does not tell of deletions; what it does tell of is tried in sources.rs.
        None
    }

    async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// Promises of a commit of several writes, which the server does one by one.
const LEFT_OUT: [&str; 2] = ["atomic", "cancel_safe"];

universal_executor::store_conformance! { @promises rcrt, Rcrt::default(),
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
    whole_selector
    conditions
    a_condition_that_cannot_be_evaluated_is_an_error
    any_tags_find_each_once
    scope_tags
    only_the_current_version_is_found
    what_expires_is_gone
    vector_search_is_as_declared
    newest_first
    the_limit_keeps_the_newest
    exclude_comes_before_the_limit
    paging_sees_each_once
    what_is_not_after_a_time_is_not_found
    a_failing_write_leaves_nothing
    an_identity_is_that_of_the_data
    tenants_apart
}

/// The server beside a ledger in memory.
#[derive(Default)]
struct Beside(Rcrt);

impl Subject for Beside {
    type Store = WithLedger<RcrtStore, MemoryStore>;

    async fn fresh(&self) -> Self::Store {
        WithLedger::new(self.0.fresh().await, MemoryStore::default())
    }

    async fn in_tenant(&self, _: &Self::Store, _: &str) -> Option<Self::Store> {
        None
    }

    fn events(&self, _: &Self::Store) -> Option<Box<dyn EventSource>> {
        None
    }

    async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

// What is about the ledger alone is tried in tests/stores/with_ledger.rs; these write to the server.
universal_executor::store_conformance! { @promises beside, Beside::default(),
    canonical_runs
    one_run
    other_names_are_other_runs
    of_many_claims_one_is_granted
    fenced
    ordered
    a_heartbeat_tells_what_is_lost
    the_next_attempt_goes_on_with_what_was_saved
    a_skipped_run_keeps_its_reason
    a_later_version_supersedes
    a_lost_lease_leaves_no_dead_letter
    racing_resumes_let_one_through
    a_wait_ends_at_its_time
    a_run_can_wait_again
    everything_a_run_writes_comes_from_it
}

#[test]
fn every_promise_about_breadcrumbs_is_kept_or_left_out_on_purpose() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kept = fs::read_to_string(root.join("tests/stores/rcrt/stores.rs"))?;
    let kept = kept
        .split("universal_executor::store_conformance!")
        .nth(1)
        .unwrap();
    let is_kept = |name: &str| kept.lines().any(|line| line.trim() == name);
    let mut promises = Vec::new();
    for file in [
        "writes",
        "canonical",
        "queries",
        "pages",
        "atomic",
        "tenants",
    ] {
        let path = format!("src/store/conformance/{file}.rs");
        let text = fs::read_to_string(root.join(path))?;
        let names = text
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn "));
        promises.extend(names.filter_map(|line| Some(line.split_once('<')?.0.to_owned())));
    }

    // These are about a ledger, or about events.
    let elsewhere = [
        "canonical_runs",
        "runs_of_tenants_are_apart",
        "commits_are_announced",
    ];
    for name in &promises {
        let out = LEFT_OUT.contains(&&**name) || elsewhere.contains(&&**name);
        assert!(
            is_kept(name) != out,
            "{name} is neither kept nor left out, or both"
        );
    }
    assert!(promises.len() > 25, "{promises:?}");
    Ok(())
}

#[tokio::test]
async fn the_store_says_what_it_cannot_do() {
    let able = store(&Server::start().await).capabilities();

    assert!(able.reads_own_writes && able.vector_search && able.run_keys);
    assert!(
        !able.oldest_first
            && !able.atomic
            && !able.tombstones
            && !able.chosen_author
            && !able.lineage
            && !able.scores
    );
    assert_eq!(store(&Server::start().await).tenant(), OWNER);
}
