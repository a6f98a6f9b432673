use super::*;
use crate::error::BoxError;
use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb, WORKFLOW_DEFINITION};
use crate::services::Services;
use crate::store::{
    BreadcrumbStore, BreadcrumbStoreExt as _, Capabilities, Commit, Committed, MemoryStore, Query,
    RunLedger, Scored, StoreError, StoreId, VectorQuery,
};
use crate::workload::{Meta, NativeDefinition};
use async_trait::async_trait;
use serde_json::json;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A temporary folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("workloads-{}", uuid::Uuid::new_v4()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn with(self, file: &str, text: &str) -> Self {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.join(below)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn flow(description: &str) -> String {
    let flow = json!({"description": description, "flows": {"main": {"steps": [{"return": 1}]}}});
    flow.to_string()
}

fn manager(folder: &Folder, roots: &[&str]) -> WorkloadManagerBuilder {
    let builder = WorkloadManager::builder();
    roots
        .iter()
        .fold(builder, |builder, root| builder.root(folder.path(root)))
}

fn native(name: &str) -> Arc<dyn Definition> {
    Arc::new(NativeDefinition::new(name, |_, _| async { Ok(json!(1)) }).description("code"))
}

async fn described(manager: &WorkloadManager, ident: &str) -> String {
    let loaded = manager.load(ident).await.unwrap();
    loaded.meta().description.clone().unwrap()
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_that_leads_out_of_its_root_is_not_followed() {
    let folder = Folder::new()
        .with("one/a.json", &flow("inside"))
        .with("outside/secret.json", &flow("outside"));
    let link = |from: &str, to: &str| {
        std::os::unix::fs::symlink(folder.path(from), folder.path(to)).unwrap();
    };
    link("outside/secret.json", "one/secret.json");
    link("one/a.json", "one/b.json");
    let manager = manager(&folder, &["one"]).build().unwrap();

    assert_eq!(described(&manager, "b").await, "inside");
    let error = manager.load("secret").await.err().unwrap();

    let listing = manager.list().await;
    assert_eq!(listing.unseen.len(), 1, "{error}");
    let unseen = listing.unseen[0].to_string();
    assert!(unseen.contains("leads out of its root"), "{unseen}");
}

#[tokio::test]
async fn an_earlier_root_wins_and_code_comes_last() {
    let folder = Folder::new()
        .with("one/a.json", &flow("one"))
        .with("two/a.json", &flow("two"))
        .with("two/b.json", &flow("two"));
    let manager = manager(&folder, &["one", "two", "none"])
        .native(native("b"))
        .native(native("c"))
        .build()
        .unwrap();

    assert_eq!(described(&manager, "a").await, "one");
    assert_eq!(described(&manager, "b").await, "two");
    assert_eq!(described(&manager, "c").await, "code");
    assert_eq!(manager.names().await, ["a", "b", "c"]);
}

#[tokio::test]
async fn the_order_of_names_decides_and_not_that_of_the_file_system() {
    for order in [
        ["z/x.json", "m/x.json", "x.json"],
        ["x.json", "m/x.json", "z/x.json"],
    ] {
        let folder = order.iter().fold(Folder::new(), |folder, file| {
            folder.with(&format!("root/{file}"), &flow(file))
        });
        let manager = manager(&folder, &["root"]).build().unwrap();

        let listed = manager.list().await.workloads;

        let found: Vec<_> = listed
            .iter()
            .map(|listed| listed.description.as_deref().unwrap())
            .collect();
        assert_eq!(found, ["x.json", "m/x.json", "z/x.json"]);
        assert_eq!(
            listed
                .iter()
                .map(|listed| listed.is_hidden)
                .collect::<Vec<_>>(),
            [false, true, true]
        );
    }
}

#[tokio::test]
async fn a_hidden_root_folder_is_searched_but_hidden_folders_below_it_are_not() {
    let folder = Folder::new()
        .with(".config/target/agents/a.json", &flow("a"))
        .with(".config/target/agents/.b/b.json", &flow("b"))
        .with(".config/target/agents/target/c.json", &flow("c"))
        .with(".config/target/agents/drafts/d.json", &flow("d"));
    let manager = manager(&folder, &[".config/target/agents"])
        .exclude("drafts")
        .build()
        .unwrap();

    assert_eq!(manager.names().await, ["a"]);
}

#[tokio::test]
async fn a_folder_of_that_name_does_not_capture_a_name() {
    let folder = Folder::new().with("reviewer/x.json", &flow("x"));
    let manager = manager(&folder, &["."])
        .native(native("reviewer"))
        .build()
        .unwrap();

    assert_eq!(described(&manager, "reviewer").await, "code");
}

#[tokio::test]
async fn a_broken_file_is_reported_with_its_line_and_skipped_if_the_policy_allows() {
    let folder = Folder::new()
        .with(
            "one/x.json",
            "{\n  \"flows\": {\"main\": {\"stepps\": []}}\n}",
        )
        .with("two/x.json", &flow("good"));
    let strict = manager(&folder, &["one", "two"]).build().unwrap();
    let lenient = manager(&folder, &["one", "two"])
        .broken(BrokenPolicy::Next)
        .build()
        .unwrap();

    let error = strict.load("x").await.err().unwrap();

    let [tried] = error.searched.as_slice() else {
        panic!("{error}")
    };
    assert!(tried.to_string().contains("one/x.json:2:"), "{tried}");
    assert!(tried.reason.contains("did you mean \"steps\"?"), "{tried}");
    assert_eq!(described(&lenient, "x").await, "good");
    let listed = lenient.list().await.workloads;
    assert_eq!(listed[0].error.as_ref(), Some(tried));
}

#[cfg(feature = "yaml")]
#[tokio::test]
async fn a_broken_file_of_one_format_hides_a_sound_one_of_another_or_gives_way_to_it() {
    let folder = Folder::new()
        .with("one/x.yaml", "flows:\n  main:\n    stepps: []\n")
        .with("two/x.json", &flow("good"));
    let strict = manager(&folder, &["one", "two"]).build().unwrap();
    let lenient = manager(&folder, &["one", "two"])
        .broken(BrokenPolicy::Next)
        .build()
        .unwrap();

    let error = strict.load("x").await.err().unwrap();

    assert!(error.to_string().contains("one/x.yaml:3:13: "), "{error}");
    assert_eq!(described(&lenient, "x").await, "good");
}

#[tokio::test]
async fn a_name_with_only_broken_files_is_an_error_that_lists_each_file() {
    let folder = Folder::new()
        .with("one/x.json", "{")
        .with("two/x.json", "[]")
        .with("three/y.json", &flow("y"));
    let manager = manager(&folder, &["one", "two", "three"])
        .broken(BrokenPolicy::Next)
        .build()
        .unwrap();

    let error = manager.load("x").await.err().unwrap();

    let searched = error.searched.iter().map(|tried| tried.path.as_str());
    let searched: Vec<_> = searched.collect();
    let expected = ["one/x.json", "two/x.json", "three"].map(|path| folder.path(path));
    let expected = expected.map(|path| path.display().to_string());
    assert_eq!(searched[..3], expected);
    assert_eq!(searched[3..], ["code"]);
}

#[tokio::test]
async fn names_are_listed_without_reading_files_and_a_load_reads_one_file() {
    struct Counts(Arc<AtomicUsize>);
    impl Loader for Counts {
        fn format(&self) -> &str {
            "counted"
        }
        fn extensions(&self) -> &[&str] {
            &["counted"]
        }
        fn load(&self, source: &LoaderSource<'_>) -> Result<Arc<dyn Definition>, BoxError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(native(source.name))
        }
    }
    let folder = Folder::new()
        .with("a.counted", "")
        .with("b.counted", "")
        .with("broken.json", "{");
    let loaded = Arc::new(AtomicUsize::new(0));
    let loader = Counts(Arc::clone(&loaded));
    let manager = manager(&folder, &["."]).loader(loader).build().unwrap();

    assert_eq!(manager.names().await, ["a", "b", "broken"]);
    assert_eq!(loaded.load(Ordering::Relaxed), 0);
    manager.load("a").await.unwrap();
    assert_eq!(loaded.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn the_folder_of_the_project_comes_before_that_of_the_user() {
    let folder = Folder::new().with("agents/a.json", &flow("of the project"));
    let manager = WorkloadManager::builder();
    let manager = manager
        .usual_roots(&folder.path(""), "an-app")
        .build()
        .unwrap();

    let error = manager.load("none").await.err().unwrap();

    assert_eq!(described(&manager, "a").await, "of the project");
    let searched: Vec<_> = error
        .searched
        .iter()
        .map(|tried| PathBuf::from(&tried.path))
        .collect();
    assert_eq!(searched[0], folder.path("").join("agents"));
    assert!(searched[1].ends_with("an-app/agents"), "{error}");
}

#[tokio::test]
async fn an_unknown_name_is_an_error_with_the_searched_places_and_similar_names() {
    let folder = Folder::new()
        .with("one/writer.json", &flow("w"))
        .with("one/critic.json", &flow("c"));
    let manager = manager(&folder, &["one", "two"])
        .native(native("write"))
        .build()
        .unwrap();

    let error = manager.load("writr").await.err().unwrap();

    let searched: Vec<_> = error
        .searched
        .iter()
        .map(|tried| tried.path.as_str())
        .collect();
    let roots = [folder.path("one"), folder.path("two")].map(|root| root.display().to_string());
    assert_eq!(searched, [roots[0].as_str(), roots[1].as_str(), "code"]);
    assert_eq!(error.nearest, ["write", "writer"]);
    assert!(
        error.to_string().contains("did you mean \"write\"?"),
        "{error}"
    );
}

#[tokio::test]
async fn a_format_of_the_service_is_loaded_without_the_manager_knowing_it() {
    struct Foo;
    struct FooDefinition(Meta);
    impl Definition for FooDefinition {
        fn meta(&self) -> &Meta {
            &self.0
        }
        fn check(&self, _: &Services, _: &Arc<dyn BreadcrumbStore>) -> Result<(), BoxError> {
            Ok(())
        }
        fn instantiate(
            &self,
            _: &Services,
            _: &Arc<dyn BreadcrumbStore>,
        ) -> Result<Box<dyn crate::workload::Workload>, BoxError> {
            Err("never".into())
        }
    }
    impl Loader for Foo {
        fn format(&self) -> &str {
            "foo"
        }
        fn extensions(&self) -> &[&str] {
            &["foo"]
        }
        fn load(&self, source: &LoaderSource<'_>) -> Result<Arc<dyn Definition>, BoxError> {
            Ok(Arc::new(FooDefinition(
                Meta::new(source.name).description(source.text),
            )))
        }
    }
    let folder = Folder::new().with("a.foo", "of foo");

    let manager = manager(&folder, &["."]).loader(Foo).build().unwrap();

    assert_eq!(described(&manager, "a").await, "of foo");
}

#[tokio::test]
async fn paths_entries_and_breadcrumbs_name_workloads_too() {
    let two = json!({"description": "two", "flows": {
        "a": {"steps": [{"return": 1}]}, "b": {"steps": [{"return": 2}]},
    }});
    let folder = Folder::new().with("x.json", &two.to_string());
    let store = MemoryStore::default();
    let stored = NewBreadcrumb::new(WORKFLOW_DEFINITION)
        .context(json!({"workflow_id": "stored", "definition": two}));
    let stored = store.create(stored).await.unwrap();
    let manager = manager(&folder, &["."]).store(Arc::new(store));
    let manager = manager.allow_paths().build().unwrap();
    let path = folder.path("x.json").display().to_string();

    assert_eq!(described(&manager, "x#b").await, "two");
    assert_eq!(described(&manager, &format!("{path}#a")).await, "two");
    let by_id = manager
        .load(&format!("store:{}#a", stored.id))
        .await
        .unwrap();
    assert_eq!(by_id.meta().name, "stored");
    let error = manager.load(&path).await.err().unwrap();
    assert!(error.to_string().ends_with("candidates: a, b"), "{error}");
    let error = manager.load("x#c").await.err().unwrap();
    assert!(
        error.to_string().contains("unknown flow or agent \"c\""),
        "{error}"
    );
}

#[tokio::test]
async fn a_file_is_read_in_strict_mode_and_a_breadcrumb_is_not() {
    let with_unknown_field = r#"{"banana": 1, "flows": {"main": {"steps": [{"return": 1}]}}}"#;
    let folder = Folder::new().with("odd.json", with_unknown_field);
    let store = MemoryStore::default();
    let context = json!({"workflow_id": "stored", "definition": with_unknown_field});
    let stored = NewBreadcrumb::new(WORKFLOW_DEFINITION).context(context);
    let id = store.create(stored).await.unwrap().id;
    let manager = manager(&folder, &["."]).store(Arc::new(store));
    let manager = manager.build().unwrap();

    let error = manager.load("odd").await.err().unwrap();
    let loaded = manager.load(&format!("store:{id}")).await;

    let reason = format!("{error:?}");
    assert!(reason.contains("banana: unknown field"), "{reason}");
    assert!(loaded.is_ok());
}

#[tokio::test]
async fn a_reference_cannot_start_another_flow_than_a_stored_definition_names() {
    let two = json!({"flows": {
        "a": {"steps": [{"return": 1}]}, "b": {"steps": [{"return": 2}]},
    }});
    let store = MemoryStore::default();
    let stored = NewBreadcrumb::new(WORKFLOW_DEFINITION)
        .context(json!({"workflow_id": "stored", "flow": "a", "definition": two}));
    let id = store.create(stored).await.unwrap().id;
    let folder = Folder::new();
    let manager = manager(&folder, &["."]).store(Arc::new(store));
    let manager = manager.build().unwrap();

    for allowed in [format!("store:{id}"), format!("store:{id}#a")] {
        assert!(manager.load(&allowed).await.is_ok(), "{allowed}");
    }
    let error = manager.load(&format!("store:{id}#b")).await.err().unwrap();

    let message = error.to_string();
    assert!(message.contains("names the flow \"a\""), "{message}");
}

#[tokio::test]
async fn a_compiled_definition_is_cached_until_its_content_changes() {
    let folder = Folder::new().with("x.json", &flow("old"));
    let manager = manager(&folder, &["."]).build().unwrap();

    let first = manager.load("x").await.unwrap();
    let again = manager.load("x").await.unwrap();
    fs::write(folder.path("x.json"), flow("new")).unwrap();

    assert!(Arc::ptr_eq(&first, &again));
    assert_eq!(described(&manager, "x").await, "new");
}

#[tokio::test]
async fn a_file_without_a_definition_is_an_error() {
    let folder = Folder::new()
        .with("large.json", &" ".repeat((1 << 20) + 1))
        .with("empty.json", "");
    fs::write(folder.path("bytes.json"), [0xff, 0xfe]).unwrap();
    let manager = manager(&folder, &["."]).allow_paths().build().unwrap();

    for name in ["large", "empty", "bytes"] {
        assert!(manager.load(name).await.is_err(), "{name}");
    }
    assert!(manager.load("./none.toml").await.is_err());
}

#[tokio::test]
async fn a_path_is_refused_unless_paths_are_allowed() {
    let folder = Folder::new().with("x.json", &flow("x"));
    let path = folder.path("x.json").display().to_string();
    let only_names = WorkloadManager::builder().build().unwrap();
    let paths_too = WorkloadManager::builder().allow_paths().build().unwrap();

    let error = only_names.load(&path).await.err().unwrap();
    let parsed = only_names.load_ident(&path.parse().unwrap()).await;

    assert!(error.searched[0].reason.contains("allow_paths"), "{error}");
    assert_eq!(parsed.err(), Some(error));
    assert_eq!(described(&paths_too, &path).await, "x");
}

#[cfg(unix)]
#[tokio::test]
async fn a_path_to_a_folder_or_device_is_an_error_that_names_the_kind() {
    let folder = Folder::new().with("folder.json/x", "");
    std::os::unix::fs::symlink("/dev/null", folder.path("device.json")).unwrap();
    let manager = manager(&folder, &["."]).allow_paths().build().unwrap();

    for (name, expected) in [
        ("folder.json", "expected a file, found a folder"),
        (
            "device.json",
            "expected a file, found a pipe, a socket or a device",
        ),
    ] {
        let path = folder.path(name).display().to_string();
        let error = manager.load(&path).await.err().unwrap();

        assert_eq!(error.searched[0].reason, expected);
    }
    assert_eq!(manager.names().await, [""; 0]);
}

#[test]
fn two_workloads_of_one_name_in_code_are_refused() {
    let manager = WorkloadManager::builder()
        .native(native("a"))
        .native(native("b"))
        .native(native("a"));

    let error = manager.build().err().unwrap();

    assert_eq!(
        error,
        ManagerError::Twice {
            name: "a".to_owned()
        }
    );
}

async fn define(store: &MemoryStore, context: serde_json::Value) -> BreadcrumbId {
    let new = NewBreadcrumb::new(WORKFLOW_DEFINITION).context(context);
    store.create(new).await.unwrap().id
}

#[tokio::test]
async fn stored_definitions_are_listed_with_their_description_or_load_error() {
    let folder = Folder::new().with("a.json", &flow("a file"));
    let store = MemoryStore::default();
    let stored = define(
        &store,
        json!({"workflow_id": "a", "definition": flow("stored")}),
    )
    .await;
    let broken = define(&store, json!({"workflow_id": "b", "definition": {"x": 1}})).await;
    let two = json!({"x": {"steps": [{"return": 1}]}, "y": {"steps": [{"return": 2}]}});
    let begins = json!({"definition": {"description": "two", "flows": two}, "flow": "y"});
    let begins = define(&store, begins).await;
    let manager = manager(&folder, &["."]).store(Arc::new(store));
    let manager = manager.build().unwrap();

    let listing = manager.list().await;

    let nameless = format!("store:{begins}");
    let found: Vec<_> = listing
        .workloads
        .iter()
        .map(|one| (&*one.name, &one.origin, one.description.as_deref()))
        .collect();
    assert_eq!(
        found,
        [
            (
                "a",
                &WorkloadOrigin::File(folder.path("./a.json")),
                Some("a file")
            ),
            (&*nameless, &WorkloadOrigin::Store(begins), Some("two")),
            ("b", &WorkloadOrigin::Store(broken), None),
            ("a", &WorkloadOrigin::Store(stored), Some("stored")),
        ]
    );
    let error = listing.workloads[2].error.as_ref().unwrap();
    assert_eq!(error.path, format!("store:{broken}"));
    assert_eq!(listing.unseen, []);
    assert_eq!(manager.names().await, ["a"]);
    assert_eq!(described(&manager, &nameless).await, "two");
}

#[tokio::test]
async fn a_listing_reports_that_the_store_has_more_definitions() {
    let store = MemoryStore::default();
    for number in 0..500 {
        define(
            &store,
            json!({"workflow_id": number.to_string(), "definition": flow("x")}),
        )
        .await;
    }
    let manager = WorkloadManager::builder().store(Arc::new(store.clone()));
    let manager = manager.build().unwrap();

    let all = manager.list().await;
    define(&store, json!({"workflow_id": "one more", "definition": 1})).await;
    let some = manager.list().await;

    assert_eq!((all.workloads.len(), all.unseen), (500, Vec::new()));
    assert_eq!(some.workloads.len(), 500);
    assert_eq!(some.workloads[0].name, "one more");
    let unseen = some.unseen[0].to_string();
    assert!(
        unseen.starts_with("store: more than 500 definitions"),
        "{unseen}"
    );
}

/// A store whose searches return fewer breadcrumbs than the limit of the query.
#[derive(Debug)]
struct ShortPages(MemoryStore);

#[async_trait]
impl BreadcrumbStore for ShortPages {
    fn tenant(&self) -> &str {
        self.0.tenant()
    }

    fn identity(&self) -> StoreId {
        self.0.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.0.get(id).await
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        self.0.search(&query.clone().limit(7)).await
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        self.0.vector_search(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.0.commit(commit).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        BreadcrumbStore::ledger(&self.0)
    }
}

#[tokio::test]
async fn a_store_that_finds_fewer_at_a_time_has_no_more_listed() {
    let store = MemoryStore::default();
    for number in 0..600 {
        define(
            &store,
            json!({"workflow_id": number.to_string(), "definition": 1}),
        )
        .await;
    }
    let manager = WorkloadManager::builder().store(Arc::new(ShortPages(store)));

    let listing = manager.build().unwrap().list().await;

    // The page that exceeds 500 is the last one.
    assert_eq!(listing.workloads.len(), 504);
    assert_eq!(listing.unseen.len(), 1);
}

#[tokio::test]
async fn a_breadcrumb_of_another_schema_defines_nothing() {
    let store = MemoryStore::default();
    let context = json!({"workflow_id": "x", "definition": flow("x")});
    let note = NewBreadcrumb::new("note.v1").context(context);
    let note = store.create(note).await.unwrap();
    let manager = WorkloadManager::builder().store(Arc::new(store));
    let manager = manager.build().unwrap();

    let error = manager.load(&format!("store:{}", note.id)).await;

    let error = error.err().unwrap().to_string();
    assert!(error.contains("schema is \"note.v1\""), "{error}");
}

#[tokio::test]
async fn a_missing_root_folder_is_reported_as_missing() {
    let folder = Folder::new().with("one/x.json", &flow("x"));
    let manager = manager(&folder, &["one", "none"]).build().unwrap();

    let error = manager.load("y").await.err().unwrap().to_string();

    let none = folder.path("none");
    assert!(
        error.contains("one: has no workload of this name"),
        "{error}"
    );
    let absent = format!("{}: folder does not exist", none.display());
    assert!(error.contains(&absent), "{error}");
}

#[tokio::test]
async fn an_invalid_json_file_is_an_error_with_line_and_column() {
    let folder = Folder::new().with("one/x.json", "{\n\"flows\": {,}}");
    let manager = manager(&folder, &["one"]).build().unwrap();

    let error = manager.load("x").await.err().unwrap();

    assert_eq!(error.searched[0].position, Some((2, 11)));
}

#[tokio::test]
async fn skipped_folders_are_listed_as_unseen() {
    let deep = format!("one/{}x.json", "d/".repeat(17));
    let folder = Folder::new().with(&deep, &flow("x")).with("two", "");
    fs::create_dir(folder.path("three")).unwrap();
    for number in 0..=10_000 {
        fs::write(folder.path(&format!("three/.{number}")), "").unwrap();
    }
    let manager = manager(&folder, &["one", "two", "three", "none"]);
    let manager = manager.build().unwrap();

    let listing = manager.list().await;

    assert_eq!(listing.workloads, []);
    let unseen: Vec<_> = listing.unseen.iter().map(ToString::to_string).collect();
    assert_eq!(unseen.len(), 3, "{unseen:?}");
    let one = folder.path(deep.trim_end_matches("/x.json"));
    assert!(unseen[0].starts_with(&format!("{}: more than 16", one.display())));
    assert!(unseen[1].starts_with(&format!("{}: ", folder.path("two").display())));
    assert!(unseen[2].contains("three: more than 10000 files"));
}
