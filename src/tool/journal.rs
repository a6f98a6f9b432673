use super::context::hex;
use super::outcome::{ToolCall, ToolOutcome};
use super::{RetrySafety, ToolRegistry};
use crate::executor::{ContextError, ExecutionContext};
use crate::model::{Json, is_too_deep};
use crate::store::BreadcrumbStore;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

/// What became of the tool calls of one run, kept in the run's saved state: a call that has finished is never made
/// again, however often the run is tried, resumed or woken.
///
/// A call of a tool that is not [idempotent](RetrySafety::Idempotent) is recorded before it begins. If the next attempt
/// finds it begun and not finished, its outcome is unknown, which is an error result; any other call is made again. One
/// journal serves all calls of a run, at the same time too. On a store without a ledger nothing is kept, and a tool that is
/// called at most once is not called at all.
///
/// The journal owns the saved state of its run; what the executor wants to keep goes with it, through
/// [`save`](Self::save). To suspend the run give [`to_json`](Self::to_json) to [`suspend`](crate::suspend).
///
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::tool::{CallJournal, ToolCall, ToolRegistry, json_tool};
/// use universal_executor::{BreadcrumbStore, ExecutionContext, MemoryStore, NewBreadcrumb};
///
/// let send = json_tool("send", "Sends a mail.", json!({"type": "object"}), |_, _| async { Ok(json!("sent")) });
/// let registry = ToolRegistry::default().with(send)?;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// // Within `execute` of an agent both are there already.
/// let run = ExecutionContext::for_trigger(NewBreadcrumb::new("user.message.v1"));
/// let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
///
/// let journal = CallJournal::of(&run);
/// let sent = journal.call(&registry, ToolCall::new("c-1", "send", json!({})), &store).await?;
/// let again = journal.call(&registry, ToolCall::new("c-1", "send", json!({})), &store).await?;
/// assert_eq!(sent, again);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Debug)]
pub struct CallJournal {
    context: ExecutionContext,
    kept: Mutex<Kept>,
    /// One save at a time, so that the newest is the last.
    turn: Semaphore,
}

/// What is kept, and how much of it was saved.
#[derive(Debug, Default)]
struct Kept {
    saved: Saved,
    changes: u64,
    saved_changes: u64,
}

/// The saved state of a run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    tool_calls: BTreeMap<String, Record>,
    state: Value,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Record {
    /// SHA-256 of tool and input.
    digest: String,
    /// None of a call that has begun.
    outcome: Option<ToolOutcome>,
    /// Whether it goes on in this attempt; not one that an earlier attempt began.
    #[serde(skip)]
    running: bool,
}

/// What is to be done about a call.
enum Begun {
    Make,
    Known(ToolOutcome),
}

impl CallJournal {
    /// How many calls of one run are recorded; one more is refused with an error result.
    pub const MOST_CALLS: usize = 256;

    /// The journal of a run, with what its earlier attempts recorded. Make one for each `execute`.
    #[must_use]
    pub fn of(context: &ExecutionContext) -> Self {
        let saved = context.resumed().map(|resumed| {
            let read = resumed.state.parse();
            // What no journal saved is the executor's own.
            read.unwrap_or_else(|_| Saved {
                state: resumed.state.clone().into_value(),
                ..Saved::default()
            })
        });
        let kept = Kept {
            saved: saved.unwrap_or_default(),
            ..Kept::default()
        };
        Self {
            context: context.clone(),
            kept: Mutex::new(kept),
            turn: Semaphore::new(1),
        }
    }

    /// What the executor saved last beside the calls; `null` if nothing.
    #[must_use]
    pub fn state(&self) -> Value {
        self.kept().saved.state.clone()
    }

    /// The outcome of a call that has finished.
    #[must_use]
    pub fn finished(&self, id: &str) -> Option<ToolOutcome> {
        let kept = self.kept();
        kept.saved.tool_calls.get(id)?.outcome.clone()
    }

    /// All of it, as [`suspend`](crate::suspend) should keep it.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let saved = self.kept().saved.clone();
        // Maps with texts as keys and JSON, which cannot fail to become a value.
        serde_json::to_value(saved).unwrap_or_default().into()
    }

    /// Keeps a state of the executor's own beside the calls.
    ///
    /// # Errors
    /// As [`ExecutionContext::save`]; on a store without a ledger nothing is kept, and that is no error.
    pub async fn save(&self, state: impl Into<Value>) -> Result<(), ContextError> {
        let change = self.change(|saved| saved.state = state.into());
        self.write(change).await
    }

    /// Makes a call, or says what came of it before.
    ///
    /// A call with a known id and another tool or input is an error result: somebody mixed up ids.
    ///
    /// # Errors
    /// As [`ExecutionContext::save`]: the run should end with that error, to be tried again.
    pub async fn call(
        &self,
        registry: &ToolRegistry,
        call: ToolCall,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<ToolOutcome, ContextError> {
        let tool = registry.get(&call.tool);
        let safety = tool.map_or(RetrySafety::Idempotent, |tool| tool.settings().retry);
        // One that is refused anyway has no outcome to keep, and may be too deep to be looked at.
        if tool.is_none() || is_too_deep(&call.input) {
            return Ok(registry.call(call, &self.context, store).await);
        }
        let id = call.id.clone();
        let (begun, change) = self.begin(&call, safety);
        let _running = match begun {
            Begun::Known(outcome) => return Ok(outcome),
            Begun::Make => Running {
                journal: self,
                id: &id,
            },
        };
        if safety > RetrySafety::Idempotent
            && let Err(error) = self.mark(change, safety).await
        {
            self.change(|saved| saved.tool_calls.remove(&id));
            return Err(error);
        }
        let outcome = registry.call(call, &self.context, store).await;
        let change = self.change(|saved| {
            if let Some(record) = saved.tool_calls.get_mut(&id) {
                record.outcome = Some(outcome.clone());
            }
        });
        self.write(change).await?;
        Ok(outcome)
    }

    /// Records that a call begins, unless it is known.
    fn begin(&self, call: &ToolCall, safety: RetrySafety) -> (Begun, u64) {
        let digest = digest(call);
        let mut kept = self.kept();
        let calls = &mut kept.saved.tool_calls;
        let known = |code, message: &str| Begun::Known(ToolOutcome::error(code, message));
        let begun = match calls.get(&call.id) {
            Some(record) if record.digest != digest => {
                let message =
                    "this call id was used before with another tool or input; use a new one";
                known("conflicting_call", message)
            }
            Some(Record {
                outcome: Some(outcome),
                ..
            }) => Begun::Known(outcome.clone()),
            Some(record) if record.running => {
                known("conflicting_call", "this call is being made already")
            }
            Some(_) if safety > RetrySafety::Idempotent => {
                let message =
                    "the call was interrupted and is not made again, so its outcome is unknown";
                known("outcome_unknown", message)
            }
            None if calls.len() >= Self::MOST_CALLS => known(
                "too_many_calls",
                "this run has made as many tool calls as it may",
            ),
            Some(_) | None => Begun::Make,
        };
        if let Begun::Make = begun {
            let record = Record {
                digest,
                outcome: None,
                running: true,
            };
            calls.insert(call.id.clone(), record);
            kept.changes += 1;
        }
        (begun, kept.changes)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Saved) -> R) -> u64 {
        let mut kept = self.kept();
        change(&mut kept.saved);
        kept.changes += 1;
        kept.changes
    }

    /// Saves what may be missing without harm up to a degree of caution. Without a ledger nothing is remembered, and nothing is tried again either; but nobody
    /// could promise then that a call is made at most once.
    async fn mark(&self, change: u64, safety: RetrySafety) -> Result<(), ContextError> {
        match self.try_write(change).await {
            Err(ContextError::Unsupported { .. }) if safety < RetrySafety::AtMostOnce => Ok(()),
            marked => marked,
        }
    }

    /// Saves all of it where there is a ledger.
    async fn write(&self, change: u64) -> Result<(), ContextError> {
        self.mark(change, RetrySafety::Idempotent).await
    }

    /// Saves all of it, unless a save since the change has done so.
    async fn try_write(&self, change: u64) -> Result<(), ContextError> {
        let _turn = self.turn.acquire().await;
        let changes = {
            let kept = self.kept();
            if kept.saved_changes >= change {
                return Ok(());
            }
            kept.changes
        };
        self.context.save(self.to_json()).await?;
        let mut kept = self.kept();
        kept.saved_changes = kept.saved_changes.max(changes);
        Ok(())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that goes on; dropped, it does not any more.
struct Running<'j> {
    journal: &'j CallJournal,
    id: &'j str,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(record) = self.journal.kept().saved.tool_calls.get_mut(self.id) {
            record.running = false;
        }
    }
}

/// SHA-256 in hex of what is called with what.
fn digest(call: &ToolCall) -> String {
    let mut hash = Sha256::new();
    hash.update((call.tool.len() as u64).to_be_bytes());
    hash.update(call.tool.as_bytes());
    add(&mut hash, &call.input);
    hex(&hash.finalize())
}

/// Adds a value, the fields of an object in the order of their names. Recursion is bounded: the depth was checked.
fn add(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            hash.update(value.to_string());
        }
        Value::Array(items) => {
            hash.update("[");
            for item in items {
                add(hash, item);
                hash.update(",");
            }
            hash.update("]");
        }
        Value::Object(fields) => {
            let fields: BTreeMap<_, _> = fields.iter().collect();
            hash.update("{");
            for (name, field) in fields {
                hash.update(Value::from(name.as_str()).to_string());
                add(hash, field);
                hash.update(",");
            }
            hash.update("}");
        }
    }
}
