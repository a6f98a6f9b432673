//! Answers to the requests of a run, checked by the records of the store: tags, request IDs and creators in a payload can
//! be forged, so an executor must answer the very request that this run wrote.

use super::context::ExecutionContext;
use super::context_error::ContextError;
use super::provenance::{Stamp, trigger_of};
use crate::error::BoxError;
use crate::model::{Breadcrumb, Selector};
use crate::store::{BreadcrumbStore, Query, StoreError, WrittenBy};

/// A request of a run, by its schema and by the ID in its context and its tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) schema: &'static str,
    pub(crate) request_id: &'a str,
}

impl Asked<'_> {
    fn is_asked_by(self, found: &Breadcrumb) -> bool {
        let request_id = found.context.text("requestId");
        found.schema_name.as_deref() == Some(self.schema) && request_id == Some(self.request_id)
    }
}

/// Returns whether an answer of a tool or an agent counts. The answer of an executor counts only if its trigger is the
/// request that this run wrote, unchanged. An answer from outside has no trigger and counts: the permission to write its
/// schema is the permission to answer.
///
/// # Errors
/// A [`StoreError`] or [`ContextError`] if the request or its writer cannot be read.
pub(crate) async fn answers_request(
    context: &ExecutionContext,
    store: &dyn BreadcrumbStore,
    answer: &Breadcrumb,
    asked: Asked<'_>,
) -> Result<bool, BoxError> {
    let Some(stamp) = context.stamp() else {
        return Ok(true);
    };
    if !has_trigger(answer) {
        return Ok(true);
    }
    let request = match trigger_of(answer) {
        Some(id) => store.get(id).await,
        None => return Ok(refused(answer, asked, "its creator names no breadcrumb")),
    };
    let request = match request {
        Ok(request) => request,
        Err(StoreError::NotFound { .. }) => {
            return Ok(refused(
                answer,
                asked,
                "the request that it answers is gone",
            ));
        }
        Err(error) => return Err(error.into()),
    };
    let counts = asked.is_asked_by(&request) && is_own_request(context, stamp, &request).await?;
    Ok(counts || refused(answer, asked, NOT_OWN))
}

/// Returns whether a person's decision counts: no executor wrote it, and the question is unchanged since this run wrote it.
///
/// # Errors
/// A [`StoreError`] or [`ContextError`] if the question or a writer cannot be read.
pub(crate) async fn is_decision(
    context: &ExecutionContext,
    store: &dyn BreadcrumbStore,
    answer: &Breadcrumb,
    asked: Asked<'_>,
) -> Result<bool, BoxError> {
    let Some(stamp) = context.stamp() else {
        return Ok(true);
    };
    match context.written_by(answer).await? {
        None | Some(WrittenBy::Outside) => {}
        Some(WrittenBy::Executor(_)) => {
            return Ok(refused(
                answer,
                asked,
                "an executor wrote it, and not a person",
            ));
        }
        Some(WrittenBy::Unknown) => {
            return Ok(refused(answer, asked, "it changed while it was read"));
        }
    }
    let tag = format!("request:{}", asked.request_id);
    let mut query = Query::new(Selector::schema(asked.schema).all_tags([tag])).limit(AT_ONCE);
    for _ in 0..MOST_LOOKS {
        let page = store.search(&query).await?;
        for question in page.iter().filter(|question| asked.is_asked_by(question)) {
            if is_own_request(context, stamp, question).await? {
                return Ok(true);
            }
        }
        match page.last() {
            Some(oldest) if page.len() == AT_ONCE => query = query.before(oldest.order_key()),
            Some(_) | None => break,
        }
    }
    Ok(refused(
        answer,
        asked,
        "its question was changed or deleted",
    ))
}

/// Limit of the breadcrumbs with the tag of a question in one page. There are several pages, so that a flood of copies does
/// not hide the question.
const AT_ONCE: usize = 256;
/// Limit of the pages.
const MOST_LOOKS: usize = 64;

const NOT_OWN: &str =
    "it answers a breadcrumb that is not the request of this run, or that was changed since";

/// Returns whether this run wrote a request and no other write changed it. Without records of writers the `creator` of the
/// request decides.
async fn is_own_request(
    context: &ExecutionContext,
    stamp: &Stamp,
    request: &Breadcrumb,
) -> Result<bool, ContextError> {
    if request.version != 1 || !stamp.is_of_run(request) {
        return Ok(false);
    }
    Ok(match context.written_by(request).await? {
        None => true,
        Some(WrittenBy::Executor(executor)) => *executor == *stamp.executor(),
        Some(WrittenBy::Outside | WrittenBy::Unknown) => false,
    })
}

fn has_trigger(answer: &Breadcrumb) -> bool {
    let creator = answer.context.get("creator");
    creator.is_some_and(|creator| creator.get("trigger_id").is_some())
}

/// Logs why an answer does not count.
fn refused(answer: &Breadcrumb, asked: Asked<'_>, reason: &'static str) -> bool {
    tracing::warn!(
        answer = %answer.id,
        version = answer.version,
        schema = asked.schema,
        request_id = asked.request_id,
        reason,
        "an answer does not count for the run that waits for it"
    );
    false
}
