//! The promises of sessions, tested on every store.

mod promises;
#[cfg(feature = "postgres")]
#[path = "../../../services/postgres/server.rs"]
mod server;

use std::sync::Arc;
use universal_executor::{BreadcrumbStore, MemoryStore};

type Store = Arc<dyn BreadcrumbStore>;

/// Defines the tests for a store. `$fresh` creates a store and a guard that holds its data, or `None` without a server.
macro_rules! sessions_on {
    ($name:ident, $fresh:expr) => {
        sessions_on! { @promises $name, $fresh,
            entries_are_read_in_append_order
            an_append_after_an_incomplete_read_is_a_conflict
            at_most_one_of_several_concurrent_session_starts_succeeds
            each_concurrent_append_is_stored_once_and_has_read_all_earlier_ones
            the_last_append_of_a_turn_replaces_its_earlier_ones
            sessions_and_agents_with_similar_names_are_separate
            a_turn_that_fails_adds_nothing
            messages_of_an_agent_are_matched_to_their_turn_at_any_age
            a_repeated_turn_is_shown_the_same_history
            a_long_conversation_is_truncated_between_turns_and_the_result_is_saved
            a_summary_replaces_the_omitted_turns
            agents_side_by_side_in_a_long_session_are_not_in_each_others_way
            two_supervisors_cannot_interleave_a_session
            only_one_of_two_concurrent_suspended_turns_is_saved
            a_deleted_session_is_gone_with_all_of_its_messages
            concurrent_deletions_remove_each_entry_of_a_session_once
            a_turn_under_way_does_not_bring_back_a_session_that_is_deleted
            a_running_agent_adds_nothing_to_a_deleted_or_recreated_session
            a_turn_that_waits_is_gone_with_its_session
        }
    };
    (@promises $name:ident, $fresh:expr, $($promise:ident)+) => {
        mod $name {
            $(
                #[tokio::test]
                async fn $promise() {
                    if let Some((_kept, store)) = $fresh.await {
                        super::promises::$promise(store).await;
                    }
                }
            )+
        }
    };
}

sessions_on!(memory, super::in_memory());
#[cfg(feature = "sqlite")]
sessions_on!(sqlite, super::in_file::fresh());
#[cfg(feature = "postgres")]
sessions_on!(postgres, super::on_server::fresh());

async fn in_memory() -> Option<((), Store)> {
    Some(((), Arc::new(MemoryStore::default())))
}

#[cfg(feature = "sqlite")]
mod in_file {
    use super::Store;
    use std::path::PathBuf;
    use std::sync::Arc;
    use universal_executor::SqliteStore;
    use universal_executor::store::Durability;

    /// A folder that is deleted on drop.
    pub(super) struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    pub(super) async fn fresh() -> Option<(Folder, Store)> {
        let name = format!("universal-executor-sessions-{}", uuid::Uuid::new_v4());
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&folder.0).unwrap();
        // No test interrupts the power of the disk, so a lower durability is enough.
        let file = SqliteStore::builder(folder.0.join("store.db")).durability(Durability::Normal);
        let store: Store = Arc::new(file.open().await.unwrap());
        Some((folder, store))
    }
}

#[cfg(feature = "postgres")]
mod on_server {
    use super::Store;
    use super::server::Namespaces;
    use std::io::Write as _;
    use std::sync::Arc;

    /// Creates a store on the server, or returns `None` without a server. Fails without a server if tests must not be skipped.
    pub(super) async fn fresh() -> Option<(Namespaces, Store)> {
        let is_set = |name| std::env::var_os(name).is_some();
        if is_set("POSTGRES_URL") {
            let namespaces = Namespaces::default();
            let store: Store = Arc::new(namespaces.builder().connect().await.unwrap());
            return Some((namespaces, store));
        }
        assert!(
            !is_set("CI") && !is_set("UX_REQUIRE_SERVICES"),
            "POSTGRES_URL is not set: see scripts/services"
        );
        // A print macro would be captured by the test harness.
        let skipped = "SKIPPED: a test of sessions in PostgreSQL, as POSTGRES_URL is not set\n";
        std::io::stderr().write_all(skipped.as_bytes()).unwrap();
        None
    }
}
