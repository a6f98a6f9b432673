//! Definitions on a server: all of an RCRT distribution are checked with warnings only, with paths from the top of the record.

use super::server::Server;
use super::store;
use serde_json::json;
use std::path::Path;
use universal_executor::check::{Check, Kind, Severity, Source};
use universal_executor::store::Query;
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Selector};

#[tokio::test]
async fn definitions_on_a_server_are_checked_with_the_paths_of_their_records() {
    let server = Server::start().await;
    let store = store(&server);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/rcrt-definitions");
    for folder in ["agents", "tools"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let definition: NewBreadcrumb = serde_json::from_str(&text).unwrap();
            store.create(definition).await.unwrap();
        }
    }
    let broken = NewBreadcrumb::new("agent.def.v1").context(json!({"agent_id": "broken"}));
    store.create(broken).await.unwrap();

    let mut sources = Vec::new();
    for schema in Kind::SCHEMAS {
        let query = Query::new(Selector::schema(schema)).limit(100);
        let found = store.search(&query).await.unwrap();
        sources.extend(found.iter().map(|found| Source::record(found)));
    }
    let report = Check::new().rcrt_fields().all(sources);

    assert_eq!(report.definitions.len(), 19);
    assert_eq!(report.remote_tools().count(), 13);
    let all = report.definitions.iter().flat_map(|one| &one.findings);
    let errors = all.filter(|finding| finding.severity == Severity::Error);
    let errors: Vec<String> = errors.map(|error| error.place.to_string()).collect();
    assert_eq!(errors, ["context.subscriptions"]);
}
