//! Tenants with unusual names: each has its own breadcrumbs and runs, and no name is taken for SQL, a pattern or another name.

use serde_json::json;
use universal_executor::store::conformance::StoreUnderTest;
use universal_executor::store::{Claim, Query, RunFilter, RunRef, StoreError};
use universal_executor::{
    BreadcrumbStore as _, BreadcrumbStoreExt as _, NewBreadcrumb, Patch, Selector,
};

/// Names that could end an SQL string, match another name, be normalised to another name, or be truncated.
const NAMES: [&str; 25] = [
    "a",
    "A",
    " a",
    "a ",
    "a\t",
    "a\n",
    "a\0",
    "a\0b",
    "a\u{FFFD}",
    "a\u{1A}0",
    "a\u{200B}",
    "\u{430}",
    "\u{E9}",
    "e\u{301}",
    "%",
    "_",
    "*",
    "'; DROP TABLE ux_breadcrumbs; --",
    "' OR '1'='1",
    "a'--",
    "\"a\"",
    "$1",
    "a\\",
    "NULL",
    "../a",
];

/// Checks a store: each tenant has exactly its own breadcrumb and run, and no tenant can read, change or delete data of another
/// tenant.
pub(crate) async fn are_apart<S: StoreUnderTest>(subject: &S) {
    let store = subject.fresh().await;
    let first = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    let mut tenants = Vec::new();
    for name in NAMES {
        let tenant = subject.in_tenant(&store, name).await.unwrap();
        let new = NewBreadcrumb::new("note.v1").context(json!({"of": name}));
        let note = tenant.create(new).await.unwrap();
        let run = RunRef::new(name, note.id, 1);
        let claim = tenant.ledger().unwrap().claim(&run, None).await.unwrap();
        assert!(matches!(claim, Claim::Granted(_)), "{name:?}: {claim:?}");
        tenants.push((name, tenant, note));
    }

    for (name, tenant, note) in &tenants {
        assert_eq!(tenant.tenant(), *name);
        let found = tenant.search(&Query::new(Selector::any())).await.unwrap();
        assert_eq!(found, std::slice::from_ref(note), "{name:?}");
        let ledger = tenant.ledger().unwrap();
        let runs = ledger.runs(&RunFilter::all()).await.unwrap();
        let runs: Vec<_> = runs.into_iter().map(|row| row.run).collect();
        assert_eq!(runs, [RunRef::new(*name, note.id, 1)], "{name:?}");
        for (other, _, theirs) in tenants.iter().filter(|(other, ..)| other != name) {
            let found = tenant.get(theirs.id).await;
            assert!(is_not_found(&found), "{name:?} reads {other:?}: {found:?}");
        }
    }
    let next = tenants.iter().cycle().skip(1);
    for ((name, tenant, _), (other, owner, theirs)) in tenants.iter().zip(next) {
        let changed = tenant.update(theirs.id, 1, Patch::new().title("b")).await;
        let deleted = tenant.delete(theirs.id).await;
        assert!(is_not_found(&changed), "{name:?} changes {other:?}");
        assert!(is_not_found(&deleted), "{name:?} deletes {other:?}");
        assert_eq!(owner.get(theirs.id).await.unwrap(), *theirs, "{other:?}");
    }
    assert_eq!(store.get(first.id).await.unwrap(), first);
}

fn is_not_found<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::NotFound { .. }))
}
