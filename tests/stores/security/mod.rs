//! Attacks on stores that need no server.

#[cfg(feature = "sqlite")]
mod json;
#[path = "../../support/tenants.rs"]
mod tenants;

use crate::memory::Memory;
#[cfg(feature = "sqlite")]
use crate::sqlite::File;

#[tokio::test]
async fn tenants_with_odd_names_are_apart_in_memory() {
    tenants::are_apart(&Memory).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn tenants_with_odd_names_are_apart_in_sqlite() {
    tenants::are_apart(&File::default()).await;
}
