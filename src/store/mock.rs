//! Mock of a [`BreadcrumbStore`] for tests of executors.
//!
//! Use this module when a unit test expects certain calls, or certain errors of a store. For most
//! tests, [`MemoryStore`] or `testing::TestStore` (feature `testing`) is simpler. `store::Faulty`
//! (feature `testing`) injects errors into a working store.
//!
//! [`store_with`] returns a mock that answers reads and commits like a store with some breadcrumbs. A bare
//! [`MockBreadcrumbStore`] answers only with the expectations of the test. For `process_event`, it needs `expect_tenant` and
//! `expect_ledger` in addition to the reads and writes. The crate adds a [ledger](BreadcrumbStore::ledger) for each identity, so
//! mocks with the same expected identity share one.
//!
//! ```
//! use serde_json::json;
//! use universal_executor::store::StoreError;
//! use universal_executor::store::mock::{MockBreadcrumbStore, store_with};
//! use universal_executor::{Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let page: Breadcrumb = NewBreadcrumb::new("page.v1").context(json!({"url": "a"})).into();
//! let store = store_with([page.clone()]);
//! assert_eq!(store.latest("page.v1").await?.as_deref(), Some(&page));
//!
//! let mut broken = MockBreadcrumbStore::new();
//! broken.expect_get().returning(|_| Err(StoreError::Unavailable {
//!     store: "a mock",
//!     retry_after: std::time::Duration::from_secs(1),
//!     source: "connection refused".into(),
//! }));
//! assert!(matches!(broken.get(page.id).await, Err(StoreError::Unavailable { .. })));
//! # Ok::<(), StoreError>(())
//! # })?;
//! # Ok::<(), universal_executor::BoxError>(())
//! ```

use super::{
    BreadcrumbStore, Capabilities, Commit, Committed, MemoryStore, Query, RunLedger, Scored,
    StoreError, StoreId, VectorQuery,
};
use crate::model::{Breadcrumb, BreadcrumbId};
use async_trait::async_trait;
use futures::FutureExt;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

mockall::mock! {
    /// Expectations of a mock store. A [`MockBreadcrumbStore`] dereferences to its expectations.
    pub Expectations {}

    #[async_trait]
    impl BreadcrumbStore for Expectations {
        fn tenant(&self) -> &str;
        fn identity(&self) -> StoreId;
        fn capabilities(&self) -> Capabilities;
        async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError>;
        async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError>;
        async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError>;
        async fn commit(&self, commit: Commit) -> Result<Committed, StoreError>;
        fn ledger<'a>(&'a self) -> Option<&'a dyn RunLedger>;
    }
}

use __mock_MockExpectations_BreadcrumbStore::{__capabilities, __identity};

/// A mock [`BreadcrumbStore`] that a test configures, for example with `store.expect_get().returning(|id| ..)`.
///
/// Without an expectation, its identity is unique, and its capabilities are [`Capabilities::default`].
///
/// It dereferences to the expectations of the crate `mockall`. A call without a fitting expectation
/// panics, except for the identity and the capabilities.
///
/// ```
/// use universal_executor::BreadcrumbStoreExt;
/// use universal_executor::store::mock::MockBreadcrumbStore;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let mut store = MockBreadcrumbStore::new();
/// store.expect_search().times(1).returning(|query| {
///     assert_eq!(query.limit, 1);
///     Ok(Vec::new())
/// });
/// assert!(store.latest("note.v1").await?.is_none());
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct MockBreadcrumbStore {
    expectations: MockExpectations,
    identity: Option<StoreId>,
    has_capabilities: bool,
}

impl MockBreadcrumbStore {
    /// Creates a mock store without expectations.
    #[must_use]
    pub fn new() -> Self {
        Self {
            expectations: MockExpectations::new(),
            identity: Some(StoreId::unique("default")),
            has_capabilities: false,
        }
    }

    /// Adds an expectation for calls of [`identity`](BreadcrumbStore::identity).
    ///
    /// Without this call, each mock has its own identity, and so its own runs.
    pub fn expect_identity(&mut self) -> &mut __identity::Expectation {
        self.identity = None;
        self.expectations.expect_identity()
    }

    /// Adds an expectation for calls of [`capabilities`](BreadcrumbStore::capabilities).
    ///
    /// Without this call, the mock declares no capability.
    pub fn expect_capabilities(&mut self) -> &mut __capabilities::Expectation {
        self.has_capabilities = true;
        self.expectations.expect_capabilities()
    }
}

impl Default for MockBreadcrumbStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MockExpectations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MockExpectations")
    }
}

impl fmt::Debug for MockBreadcrumbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MockBreadcrumbStore")
    }
}

impl Deref for MockBreadcrumbStore {
    type Target = MockExpectations;

    fn deref(&self) -> &MockExpectations {
        &self.expectations
    }
}

impl DerefMut for MockBreadcrumbStore {
    fn deref_mut(&mut self) -> &mut MockExpectations {
        &mut self.expectations
    }
}

#[async_trait]
impl BreadcrumbStore for MockBreadcrumbStore {
    fn tenant(&self) -> &str {
        self.expectations.tenant()
    }

    fn identity(&self) -> StoreId {
        let expected = || self.expectations.identity();
        self.identity.clone().unwrap_or_else(expected)
    }

    fn capabilities(&self) -> Capabilities {
        match self.has_capabilities {
            true => self.expectations.capabilities(),
            false => Capabilities::default(),
        }
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.expectations.get(id).await
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        self.expectations.search(query).await
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        self.expectations.vector_search(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.expectations.commit(commit).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        self.expectations.ledger()
    }
}

/// Creates a mock store with some breadcrumbs, which retain their IDs, versions and times. The mock answers like a store in
/// memory.
///
/// Later reads return the results of commits. The mock has no run ledger and no vector search. These answers take precedence over
/// expectations that a test adds later. `checkpoint()` removes these answers and all expectations.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::store::mock::store_with;
/// use universal_executor::{Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Patch};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let page: Breadcrumb = NewBreadcrumb::new("page.v1").context(json!({"url": "a"})).into();
/// let store = store_with([page.clone()]);
///
/// store.update(page.id, page.version, Patch::new().title("A page")).await?;
/// assert_eq!(store.get(page.id).await?.version, 2);
/// assert!(store.ledger().is_none());
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub fn store_with<B>(breadcrumbs: impl IntoIterator<Item = B>) -> MockBreadcrumbStore
where
    B: Into<Arc<Breadcrumb>>,
{
    let memory = MemoryStore::default();
    memory.seed(breadcrumbs.into_iter().map(Into::into));
    let mut mock = MockBreadcrumbStore::new();
    mock.expect_tenant()
        .return_const(memory.tenant().to_owned());
    mock.expect_identity().return_const(memory.identity());
    mock.expect_capabilities()
        .return_const(memory.capabilities().lineage(false));
    mock.expect_ledger().returning(|| None);
    let store = memory.clone();
    mock.expect_get()
        .returning(move |id| poll_once(store.get(id)));
    let store = memory.clone();
    mock.expect_search()
        .returning(move |query| poll_once(store.search(query)));
    let store = memory.clone();
    mock.expect_vector_search()
        .returning(move |query| poll_once(store.vector_search(query)));
    mock.expect_commit()
        .returning(move |commit| poll_once(memory.commit(commit)));
    mock
}

/// Polls a store's future once, and returns its result, or an error if the future is not ready.
fn poll_once<T>(answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    answer
        .now_or_never()
        .unwrap_or(Err(StoreError::Unsupported {
            store: "the mock store",
            operation: "waiting",
        }))
}
