//! From a context to what a model may see of it.

use super::{HintsOf, ModelContext, ModelItem, ModelSource, WithheldBy};
use crate::executor::context::{ExecutionContext, MissingReason, MissingSource, Source};
use crate::executor::context_error::ContextError;
use crate::executor::schema_hints::HintsOfSchemas;
use crate::hints::{Hints, HintsError};
use crate::model::{Breadcrumb, Json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many causes of one source are told apart: whoever writes breadcrumbs must not fill the report of what is missing.
const MOST_CAUSES: usize = 4;

/// How many items are shaped before others of the task go on.
const AT_ONCE: usize = 16;

/// Shapes everything in a context by its hints.
pub(in crate::executor) async fn shaped(
    context: &ExecutionContext,
) -> Result<ModelContext, ContextError> {
    let by_schema = context.hints_of(schemas_to_ask(context)).await?;
    let mut shaper = Shaper {
        by_schema,
        own: Vec::new(),
        shaped: 0,
    };
    let trigger = match shaper.shape(context.trigger()) {
        Ok(item) => item,
        Err(cause) => return Err(withheld("trigger", Arc::new(cause))),
    };
    let mut missing = context.missing().to_vec();
    let mut sources = Vec::with_capacity(context.sources().len());
    for source in context.sources() {
        let (shaped, causes) = shaper.shape_all(source).await;
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
                "items are withheld from the model"
            );
            MissingSource {
                key: source.key.clone(),
                reason: MissingReason::Withheld { items, cause },
            }
        }));
    }
    Ok(ModelContext::new(trigger, sources, missing))
}

/// The schemas of what has no hints of its own.
fn schemas_to_ask(context: &ExecutionContext) -> Vec<String> {
    let items = context.sources().iter().flat_map(|source| &source.items);
    let all = items.map(|item| &**item).chain([context.trigger()]);
    let without = all.filter(|item| own_hints(item).is_none());
    let schemas: BTreeSet<&str> = without
        .filter_map(|item| item.schema_name.as_deref())
        .collect();
    schemas.into_iter().map(str::to_owned).collect()
}

fn own_hints(item: &Breadcrumb) -> Option<&Json> {
    item.llm_hints.as_ref().filter(|hints| !hints.is_null())
}

fn withheld(key: &str, cause: Arc<WithheldBy>) -> ContextError {
    tracing::warn!(source = key, "all of it is withheld from the model");
    ContextError::Withheld {
        key: key.to_owned(),
        cause,
    }
}

/// So many items and why they are withheld.
type Causes = Vec<(usize, Arc<WithheldBy>)>;

struct Shaper {
    by_schema: HintsOfSchemas,
    /// Hints of breadcrumbs that were read already: items of one kind mostly have equal ones.
    own: Vec<(Json, Result<Hints, HintsError>)>,
    /// How many items had hints.
    shaped: usize,
}

impl Shaper {
    async fn shape_all(&mut self, source: &Source) -> (ModelSource, Causes) {
        let mut items = Vec::with_capacity(source.items.len());
        let mut causes = Causes::new();
        for item in &source.items {
            let before = self.shaped;
            match self.shape(item) {
                Ok(item) => items.push(item),
                Err(cause) => count(&mut causes, cause),
            }
            // Hints may come from anybody and take their time: the lease has to be kept meanwhile.
            if self.shaped > before && self.shaped.is_multiple_of(AT_ONCE) {
                tokio::task::yield_now().await;
            }
        }
        let shaped = ModelSource {
            key: source.key.clone(),
            items,
            is_one: source.is_one,
            required: source.required,
            priority: source.priority,
        };
        (shaped, causes)
    }

    fn shape(&mut self, item: &Breadcrumb) -> Result<ModelItem, WithheldBy> {
        let (of, hints) = match (own_hints(item), &item.schema_name) {
            (Some(own), _) => (HintsOf::Breadcrumb, self.read(own).map(Some)),
            (None, Some(schema)) => {
                let known = self.by_schema.get(schema).cloned();
                (HintsOf::Schema(schema.clone()), known.unwrap_or(Ok(None)))
            }
            (None, None) => (HintsOf::Breadcrumb, Ok(None)),
        };
        self.shaped += usize::from(!matches!(hints, Ok(None)));
        let context = match hints {
            Ok(None) => item.context.clone(),
            Ok(Some(hints)) => match hints.apply(&item.context) {
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

    fn read(&mut self, hints: &Json) -> Result<Hints, HintsError> {
        const MOST: usize = 16;
        if let Some((_, read)) = self.own.iter().find(|(known, _)| known == hints) {
            return read.clone();
        }
        let read = Hints::from_json(hints);
        if self.own.len() < MOST {
            self.own.push((hints.clone(), read.clone()));
        }
        read
    }
}

fn count(causes: &mut Causes, cause: WithheldBy) {
    let cause = match causes.iter().position(|(_, known)| **known == cause) {
        None if causes.len() >= MOST_CAUSES => WithheldBy::More,
        None | Some(_) => cause,
    };
    match causes.iter_mut().find(|(_, known)| **known == cause) {
        Some((items, _)) => *items += 1,
        None => causes.push((1, Arc::new(cause))),
    }
}
