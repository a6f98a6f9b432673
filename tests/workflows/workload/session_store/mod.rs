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
            what_is_added_is_read_in_its_order
            who_has_not_read_all_comes_too_late
            of_those_that_begin_a_session_at_once_one_is_in_time
            of_many_that_add_at_once_each_is_there_once_and_has_read_what_is_before_it
            what_a_turn_added_last_stands_for_all_that_it_added
            sessions_and_agents_of_names_that_look_alike_are_kept_apart
            a_turn_that_fails_adds_nothing
            what_an_agent_said_is_known_by_its_turn_however_long_ago_that_was
            a_turn_that_is_done_again_is_shown_what_it_was_shown_before
            a_long_conversation_is_cut_between_turns_and_that_is_kept
            a_summary_stands_for_what_is_not_shown_any_more
            agents_side_by_side_in_a_long_session_are_not_in_each_others_way
            two_supervisors_cannot_interleave_a_session
            of_two_turns_that_wait_at_once_only_one_is_kept
            a_session_that_is_deleted_is_gone_with_all_that_was_said_in_it
            of_those_that_delete_a_session_at_once_all_find_it_gone
            a_turn_under_way_does_not_bring_back_a_session_that_is_deleted
            an_agent_under_way_adds_nothing_to_a_session_that_is_deleted_or_begun_anew
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
