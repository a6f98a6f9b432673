//! Testing kit for executors and agents: a store with a clock that the test moves, runs until idle, assertions, recorded contexts
//! and injected faults.
//!
//! Use this when a test runs executors, agents or workflows in a [`Runtime`](crate::Runtime) and must know when they have
//! finished. Add the crate with the feature `testing` to the dev-dependencies.
//!
//! | to | use |
//! |---|---|
//! | run a runtime until it has nothing to do | [`TestStore::run_until_idle`] |
//! | reach a retry, the end of a lease or of a wait | [`TestStore::advance`], [`TestStore::next_due`] |
//! | check the state of a run | [`assert_responded`], [`assert_failed`], [`assert_suspended`] |
//! | answer an agent's question | [`Client::questions`](crate::Client::questions) |
//! | see the context of each run | [`Recorded`] |
//! | see the requests to a model | [`ScriptedModel::requests`](crate::agent::ScriptedModel::requests) |
//! | fail calls of the store, lose answers, crash a worker | [`Faults`], [`TestStore::run_until_crash`] |
//!
//! # Example
//! An agent asks a person before it refunds an order:
//!
//! ```
//! use serde_json::json;
//! use universal_executor::agent::{Agent, ScriptedModel};
//! use universal_executor::client::Principal;
//! use universal_executor::testing::{TestStore, assert_responded, assert_suspended};
//! use universal_executor::tool::json_tool;
//! use universal_executor::{BreadcrumbStoreExt, Client, NewBreadcrumb, Runtime, Subscription};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let refund = json_tool("refund", "Refunds an order.", json!({}), |_, _| async { Ok(json!("refunded")) });
//! let model = ScriptedModel::calling("refund", json!({"order": 7}), "Order 7 is refunded.");
//! let helper = Agent::new("helper", model)
//!     .on(Subscription::trigger("user.message.v1"))
//!     .tool(refund)
//!     .needs_approval(["refund"]);
//! let store = TestStore::new()?;
//! let worker = Runtime::on(&store).agent(helper).build()?;
//!
//! let wish = NewBreadcrumb::new("user.message.v1").context(json!({"message": "Refund order 7."}));
//! let wish = store.create(wish).await?;
//! store.run_until_idle(&worker).await?;
//! assert_suspended(&store, "helper", wish.id).await;
//!
//! let questions = Client::new(&store).questions();
//! let question = questions.open().await?.pop().ok_or("no question")?;
//! questions.approve(&question.id, &Principal::new("ann")).await?;
//! store.run_until_idle(&worker).await?;
//!
//! let responses = assert_responded(&store, "helper", wish.id).await;
//! let response = responses.last().ok_or("no response")?;
//! assert_eq!(response.context["message"], "Order 7 is refunded.");
//! # Ok::<(), universal_executor::BoxError>(())
//! # })?;
//! # Ok::<(), universal_executor::BoxError>(())
//! ```
//!
//! # The clock
//! Leases, timeouts, retries and waits follow the time of tokio. [`TestStore::new`] pauses this time, which needs a tokio runtime
//! with one thread, as `#[tokio::test]` creates it. From then on:
//!
//! - [`TestStore::advance`] moves the clock.
//! - A run that waits for a retry, or that is suspended, is idle until the clock reaches its time.
//! - tokio moves the paused clock to the next timer when every task waits. So an `execute` that sleeps for an hour ends at once, and
//!   so does the lease of a crashed worker.
//! - A task that waits for a network or a thread looks like a task that waits for a timer, so its timeouts can expire early. Use
//!   [`TestStore::in_real_time`] for tests with real servers or blocking tools.

mod assertions;
mod deadline;
mod error;
mod faults;
mod idle;
mod recorded;
mod store;
mod time;

pub use crate::store::{Fault, Faulty, Injected, Moment, Operation};
pub use assertions::{assert_failed, assert_responded, assert_suspended};
pub use error::TestError;
pub use faults::Faults;
pub use recorded::{Contexts, Recorded};
pub use store::TestStore;
