//! Shaping of an execution context for a model, by the `llm_hints` of the breadcrumbs in the context. The result is the part
//! of the context that a model may see.

use super::{ModelContext, ModelItem, ModelSource};
use crate::executor::context::ExecutionContext;
use crate::executor::context_error::ContextError;
use crate::executor::sources::{MissingReason, MissingSource, Source};
use crate::executor::withheld::{HintsOf, WithheldBy};
use crate::hints::{Budget, Hints, HintsError, HintsFailure, MAX_OUTPUT_BYTES, MAX_STEPS};
use crate::model::{Breadcrumb, Json};
use crate::store::schema_hints::{self, HintsOfSchemas};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of separately listed causes of withheld items in one context source, so that a writer of breadcrumbs cannot
/// flood the list.
const MAX_CAUSES: usize = 4;

/// Maximum number of evaluation steps of the `llm_hints` for a whole context: four times the limit of one breadcrumb. Any
/// writer can set hints.
const STEPS: usize = 4 * MAX_STEPS;
/// Maximum size of the output of `llm_hints` for a whole context, in bytes: eight times the limit of one breadcrumb.
const BYTES: usize = 8 * MAX_OUTPUT_BYTES;

/// Number of evaluation steps of `llm_hints` after which the evaluation pauses, so that the heartbeat in the same task can run.
const MAX_STEPS_PER_YIELD: usize = 1 << 17;

/// Number of evaluation steps that each breadcrumb costs, in addition to the steps of its `llm_hints`.
const STEPS_PER_ITEM: usize = 1 << 10;

impl ExecutionContext {
    /// Returns the part of the execution context that a model may see: the trigger and every item, each shaped by its
    /// `llm_hints`.
    ///
    /// A breadcrumb's own `llm_hints` override the hints of its schema. The hints of a schema are in the newest `schema.def.v1`
    /// breadcrumb with the tag `defines:<schema>`: at its top level, else in its context. An item without hints shares its context
    /// with the breadcrumb and is not copied.
    ///
    /// An item whose hints cannot be applied is withheld and listed in [`missing`](ModelContext::missing). The other items of its
    /// source remain.
    ///
    /// A run reads the definitions of schemas from the store in one search. A [`Runtime`](crate::Runtime) caches them until an event
    /// announces a change, and for at most [`HINTS_AGE`](Self::HINTS_AGE). A context of [`for_trigger`](Self::for_trigger) has the
    /// schema hints that [`with_schema_hints`](Self::with_schema_hints) sets.
    ///
    /// All items of a context together may take four times the steps of [one breadcrumb](crate::hints). The sources share these steps.
    ///
    /// Hints hide useless or confidential values from a model. They do not protect a value against users with write
    /// access to the tenant: the writer of a breadcrumb sets its hints, and the writer of a schema definition sets the
    /// hints of the schema.
    ///
    /// ```
    /// use serde_json::json;
    /// use universal_executor::{ExecutionContext, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "Hi", "token": "t-1"}));
    /// let context = ExecutionContext::for_trigger(message)
    ///     .with_schema_hints("user.message.v1", json!({"exclude": ["token"]}));
    ///
    /// assert_eq!(context.for_model().await?.trigger().context, json!({"message": "Hi"}));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    ///
    /// # Errors
    /// [`ContextError::Withheld`] if the trigger or all items of a required source are withheld, [`ContextError::Store`] if the store
    /// cannot read the hints, and [`ContextError::Unsupported`] if the context was assembled outside of a run or its run has ended.
    pub async fn for_model(&self) -> Result<ModelContext, ContextError> {
        shaped(self).await
    }
}

async fn shaped(context: &ExecutionContext) -> Result<ModelContext, ContextError> {
    let by_schema = context.hints_of(schemas_to_read(context)).await?;
    let mut shaper = Shaper {
        by_schema,
        own: Vec::new(),
        remaining: (STEPS, BYTES),
        steps_since_yield: 0,
    };
    let trigger = match shaper.shape(context.trigger()) {
        Ok(item) => item,
        Err(cause) => return Err(withheld("trigger", Arc::new(cause))),
    };
    let mut missing = context.missing().to_vec();
    let mut sources = Vec::with_capacity(context.sources().len());
    let of = context.sources().len();
    for (index, source) in context.sources().iter().enumerate() {
        let (shaped, causes) = shaper.shape_all(source, of - index).await;
        if source.required
            && shaped.items.is_empty()
            && let Some((_, cause)) = causes.first()
        {
            return Err(withheld(&source.key, Arc::clone(cause)));
        }
        sources.push(shaped);
        missing.extend(causes.into_iter().map(|(items, cause)| {
            tracing::warn!(
                source = source.key,
                items,
                "items of a source are withheld from the model, because their llm_hints cannot be applied"
            );
            MissingSource {
                key: source.key.clone(),
                reason: MissingReason::Withheld { items, cause },
            }
        }));
    }
    Ok(ModelContext::new(trigger, sources, missing))
}

/// Returns the schema names of the breadcrumbs in the execution context, except breadcrumbs with the field `llm_hints`.
fn schemas_to_read(context: &ExecutionContext) -> Vec<String> {
    let items = context.sources().iter().flat_map(|source| &source.items);
    let all = items.map(|item| &**item).chain([context.trigger()]);
    let without = all.filter(|item| schema_hints::own(item).is_none());
    let schemas: BTreeSet<&str> = without
        .filter_map(|item| item.schema_name.as_deref())
        .collect();
    schemas.into_iter().map(str::to_owned).collect()
}

fn withheld(key: &str, cause: Arc<WithheldBy>) -> ContextError {
    tracing::warn!(
        source = key,
        "the trigger or a required source is withheld from the model, because its llm_hints cannot be applied; the run fails"
    );
    ContextError::Withheld {
        key: key.to_owned(),
        cause,
    }
}

/// Numbers of items of one context source that are withheld from the model, by cause.
type Causes = Vec<(usize, Arc<WithheldBy>)>;

pub(super) struct Shaper {
    by_schema: HintsOfSchemas,
    /// Cache of parsed `llm_hints` from breadcrumbs, because breadcrumbs of the same kind mostly have equal hints.
    own: Vec<(Json, Result<Hints, HintsError>)>,
    /// The evaluation steps and output bytes that `llm_hints` may still use for the rest of the context.
    remaining: (usize, usize),
    /// Number of evaluation steps of `llm_hints` since the evaluation last paused for other tasks.
    steps_since_yield: usize,
}

impl Shaper {
    /// Creates the state for applying `llm_hints` to a single breadcrumb, with the step and output limits of one breadcrumb.
    pub(super) fn of_one(by_schema: HintsOfSchemas) -> Self {
        Self {
            by_schema,
            own: Vec::new(),
            remaining: (MAX_STEPS, MAX_OUTPUT_BYTES),
            steps_since_yield: 0,
        }
    }

    /// Applies `llm_hints` to the items of a context source, within the source's share of the remaining evaluation steps and
    /// output bytes. `shares` is the number of sources that divide the remainder equally: this source and all later sources.
    async fn shape_all(&mut self, source: &Source, shares: usize) -> (ModelSource, Causes) {
        let (steps, bytes) = self.remaining;
        let share = (steps / shares.max(1), bytes / shares.max(1));
        let others = (steps - share.0, bytes - share.1);
        self.remaining = share;
        let mut items = Vec::with_capacity(source.items.len());
        let mut causes = Causes::new();
        for item in &source.items {
            match self.shape(item) {
                Ok(item) => items.push(item),
                Err(cause) => add_cause(&mut causes, cause),
            }
            if self.steps_since_yield >= MAX_STEPS_PER_YIELD {
                self.steps_since_yield = 0;
                tokio::task::yield_now().await;
            }
        }
        self.remaining = (self.remaining.0 + others.0, self.remaining.1 + others.1);
        let shaped = ModelSource {
            key: source.key.clone(),
            items,
            is_one: source.is_one,
            required: source.required,
            priority: source.priority,
        };
        (shaped, causes)
    }

    pub(super) fn shape(&mut self, item: &Breadcrumb) -> Result<ModelItem, WithheldBy> {
        let (of, hints) = match (schema_hints::own(item), &item.schema_name) {
            (Some(own), _) => (HintsOf::Breadcrumb, self.read(own).map(Some)),
            (None, Some(schema)) => {
                let hints = HintsOf::Schema(schema.clone());
                match self.by_schema.get(schema).cloned() {
                    Some(known) => (hints, known),
                    None => return Err(WithheldBy::Unknown { hints }),
                }
            }
            (None, None) => (HintsOf::Breadcrumb, Ok(None)),
        };
        let context = match hints {
            Ok(None) => item.context.clone(),
            Ok(Some(hints)) => match self.apply(&hints, &item.context) {
                Ok(shaped) => shaped,
                Err(failure) => return Err(WithheldBy::Failed { hints: of, failure }),
            },
            Err(error) => return Err(WithheldBy::Unreadable { hints: of, error }),
        };
        Ok(ModelItem {
            id: item.id,
            version: item.version,
            schema_name: item.schema_name.clone(),
            updated_at: item.updated_at,
            context,
        })
    }

    fn apply(&mut self, hints: &Hints, context: &Json) -> Result<Json, HintsFailure> {
        let mut budget = Budget::new(self.remaining.0, self.remaining.1);
        let (steps, bytes) = budget.remaining();
        let shaped = hints.apply_within(context, &mut budget);
        let (steps, bytes) = (steps - budget.remaining().0, bytes - budget.remaining().1);
        self.remaining = (self.remaining.0 - steps, self.remaining.1 - bytes);
        self.steps_since_yield += STEPS_PER_ITEM + steps;
        shaped
    }

    fn read(&mut self, hints: &Json) -> Result<Hints, HintsError> {
        const MAX_CACHED_HINTS: usize = 16;
        if let Some((_, read)) = self.own.iter().find(|(known, _)| known == hints) {
            return read.clone();
        }
        self.steps_since_yield += STEPS_PER_ITEM + hints.size();
        let read = Hints::from_json(hints);
        if self.own.len() < MAX_CACHED_HINTS {
            self.own.push((hints.clone(), read.clone()));
        }
        read
    }
}

fn add_cause(causes: &mut Causes, cause: WithheldBy) {
    let cause = match causes.iter().position(|(_, known)| **known == cause) {
        None if causes.len() >= MAX_CAUSES => WithheldBy::More,
        None | Some(_) => cause,
    };
    match causes.iter_mut().find(|(_, known)| **known == cause) {
        Some((items, _)) => *items += 1,
        None => causes.push((1, Arc::new(cause))),
    }
}
