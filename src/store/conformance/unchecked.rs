//! Detection of conformance promises that cannot be checked, because the store does not declare their capability.

use super::AnyStore;
use super::fixtures::other_tenant_name;
use super::needs::NEEDS;
use super::{AnyStoreUnderTest, Broken, PROMISES, run};
use crate::store::Capabilities;
use futures::future::BoxFuture;
use std::fmt;
use std::io::{self, Write as _};

/// A capability that a store does not declare, with the conformance promises that need it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Unchecked {
    /// The name of the capability that the store under test lacks: a field of [`Capabilities`], or `ledger`, `tenants` or
    /// `events`.
    pub capability: &'static str,
    /// The conformance promises that the suite does not check without the capability.
    pub promises: Vec<&'static str>,
    /// The conformance promises that the suite checks only in part without the capability.
    pub in_part: Vec<&'static str>,
}

impl fmt::Display for Unchecked {
    /// Writes one line: the missing capability, then the promises that need it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.capability)?;
        if self.promises.is_empty() && self.in_part.is_empty() {
            return f.write_str("needed by no promise");
        }
        if !self.promises.is_empty() {
            write!(f, "not checked: {}", self.promises.join(", "))?;
        }
        if !self.in_part.is_empty() {
            let comma = if self.promises.is_empty() { "" } else { "; " };
            write!(f, "{comma}checked in part: {}", self.in_part.join(", "))?;
        }
        Ok(())
    }
}

/// Lists the capabilities that a store does not declare, each with the promises that the suite cannot check without it. Every
/// other promise is checked in full.
///
/// ```
/// use std::time::Duration;
/// use universal_executor::store::conformance::{StoreUnderTest, unchecked};
/// use universal_executor::{EventSource, MemoryStore};
///
/// struct Memory;
///
/// impl StoreUnderTest for Memory {
///     type Store = MemoryStore;
///
///     async fn fresh(&self) -> MemoryStore {
///         MemoryStore::default()
///     }
///
///     async fn in_tenant(&self, store: &MemoryStore, tenant: &str) -> Option<MemoryStore> {
///         Some(store.in_tenant(tenant))
///     }
///
///     fn events(&self, store: &MemoryStore) -> Option<Box<dyn EventSource>> {
///         Some(Box::new(store.events()))
///     }
///
///     async fn advance_clock(&self, duration: Duration) {
///         tokio::time::sleep(duration).await;
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let missing = unchecked(&Memory).await;
///
/// // A store without an embedder has no vector search.
/// assert!(missing.iter().any(|one| one.capability == "vector_search"));
/// assert!(missing.iter().all(|one| one.capability != "ledger"));
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn unchecked(subject: &dyn AnyStoreUnderTest) -> Vec<Unchecked> {
    let store = subject.fresh().await;
    let mut found = Vec::new();
    for (capability, is_declared) in declared(&store).await {
        if is_declared {
            continue;
        }
        let needs = NEEDS.iter().find(|needs| needs.capability == capability);
        found.push(Unchecked {
            capability,
            promises: needs.map_or_else(Vec::new, |needs| needs.promises.to_vec()),
            in_part: needs.map_or_else(Vec::new, |needs| needs.in_part.to_vec()),
        });
    }
    found
}

/// Checks one conformance promise of a store. If the store does not declare a capability that the promise needs, prints the
/// capability instead.
#[doc(hidden)]
pub fn check(subject: &dyn AnyStoreUnderTest, name: &str) -> Result<(), Broken> {
    let Some((_, promise)) = PROMISES.iter().find(|(known, _)| *known == name) else {
        return Err(Broken::new(&format!("the suite has the promise {name}")));
    };
    check_with(subject, name, promise(subject))
}

fn check_with(
    subject: &dyn AnyStoreUnderTest,
    name: &str,
    promise: BoxFuture<'_, Result<(), Broken>>,
) -> Result<(), Broken> {
    run(async {
        if NEEDS.iter().any(|needs| needs.promises.contains(&name)) {
            for missing in unchecked(subject).await {
                if missing.promises.contains(&name) {
                    print(&format!(
                        "{name} is not checked: the store does not declare {}\n",
                        missing.capability
                    ));
                    return Ok(());
                }
            }
        }
        promise.await
    })
}

/// Prints the capabilities that a store does not declare, even if the test harness captures the output of tests.
#[doc(hidden)]
pub fn report(subject: &dyn AnyStoreUnderTest, suite: &str) -> Result<(), Broken> {
    run(async {
        let missing = unchecked(subject).await;
        let mut text = format!("store conformance {suite}: ");
        match missing.is_empty() {
            true => text.push_str("all capabilities are declared, all promises are checked\n"),
            false => text.push_str("the store does not declare\n"),
        }
        for one in missing {
            text.push_str(&format!("    {one}\n"));
        }
        io::stderr()
            .lock()
            .write_all(text.as_bytes())
            .map_err(Broken::failed)
    })
}

#[expect(
    clippy::print_stderr,
    reason = "the harness shows what a test prints, and a promise that is not checked must show"
)]
fn print(text: &str) {
    eprint!("{text}");
}

/// Returns each capability of a store with `true` if the store declares it. A new field of [`Capabilities`] does not compile until
/// it is listed here.
async fn declared(store: &AnyStore<'_>) -> Vec<(&'static str, bool)> {
    let Capabilities {
        reads_own_writes,
        tombstones,
        vector_search,
        chosen_author,
        lineage,
        atomic,
        atomic_ends,
        exclusive_updates,
        scores,
        embeds_updates,
        embeds_hinted,
        named_tenants,
        run_keys,
        oldest_first,
        keyed_requests,
    } = store.capabilities();
    let has_ledger = store.ledger().is_some();
    let second = store.in_tenant(other_tenant_name(store)).await;
    vec![
        ("ledger", has_ledger),
        ("tenants", second.is_some()),
        ("events", store.events().is_some()),
        ("reads_own_writes", reads_own_writes),
        ("tombstones", tombstones),
        ("chosen_author", chosen_author),
        ("atomic", atomic),
        ("exclusive_updates", exclusive_updates),
        ("named_tenants", named_tenants),
        ("vector_search", vector_search),
        ("scores", scores),
        ("embeds_updates", embeds_updates),
        ("embeds_hinted", embeds_hinted),
        ("oldest_first", oldest_first),
        // These capabilities describe a ledger.
        ("lineage", lineage || !has_ledger),
        ("atomic_ends", atomic_ends || !has_ledger),
        ("keyed_requests", keyed_requests || !has_ledger),
        // A store with a ledger does not need this capability.
        ("run_keys", run_keys || has_ledger),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::EventSource;
    use crate::store::MemoryStore;
    use crate::store::conformance::StoreUnderTest;
    use std::time::Duration;

    struct Memory;

    impl StoreUnderTest for Memory {
        type Store = MemoryStore;

        async fn fresh(&self) -> MemoryStore {
            MemoryStore::default()
        }

        async fn in_tenant(&self, store: &MemoryStore, tenant: &str) -> Option<MemoryStore> {
            Some(store.in_tenant(tenant))
        }

        fn events(&self, store: &MemoryStore) -> Option<Box<dyn EventSource>> {
            Some(Box::new(store.events()))
        }

        async fn advance_clock(&self, _: Duration) {}
    }

    #[test]
    fn a_promise_is_checked_unless_the_store_does_not_declare_its_capability() {
        let broken = Box::pin(async { Err(Broken::new("never")) });
        assert!(check_with(&Memory, "the_most_similar_breadcrumbs_come_first", broken).is_ok());

        let broken = Box::pin(async { Err(Broken::new("never")) });
        assert!(check_with(&Memory, "fenced", broken).is_err());
    }

    #[test]
    fn an_unknown_promise_is_not_checked() {
        assert!(check(&Memory, "unknown").is_err());
    }

    #[test]
    fn every_listed_promise_is_in_the_suite() {
        for needs in NEEDS {
            for name in needs.promises.iter().chain(needs.in_part) {
                let is_known = PROMISES.iter().any(|(known, _)| known == name);
                assert!(is_known, "{name} is not in the suite");
            }
        }
    }

    #[tokio::test]
    async fn every_listed_capability_is_declared() {
        let declared = declared(&AnyStoreUnderTest::fresh(&Memory).await).await;

        for needs in NEEDS {
            let is_known = declared.iter().any(|(name, _)| *name == needs.capability);
            assert!(is_known, "{} is not declared", needs.capability);
        }
    }

    #[test]
    fn a_line_names_the_capability_and_its_promises() {
        let one = Unchecked {
            capability: "scores",
            promises: vec!["vector_search_applies_the_minimum_score"],
            in_part: vec!["the_most_similar_breadcrumbs_come_first"],
        };
        let none = Unchecked {
            capability: "oldest_first",
            promises: Vec::new(),
            in_part: Vec::new(),
        };
        let line = "scores: not checked: vector_search_applies_the_minimum_score; checked in part: the_most_similar_breadcrumbs_come_first";
        assert_eq!(one.to_string(), line);
        assert_eq!(none.to_string(), "oldest_first: needed by no promise");
    }
}
