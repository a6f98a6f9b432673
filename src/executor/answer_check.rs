//! Checks of the answers to a run's requests, by the store's record of the writer of each breadcrumb.
//!
//! Tags, request IDs and creators in a payload can be forged, so an answer counts only for a request that this run wrote.

use super::context::ExecutionContext;
use super::context_error::ContextError;
use super::handle::RunHandle;
use super::pages::PagedSearch;
use super::provenance::{Stamp, trigger_of};
use crate::bugs::planted;
use crate::error::BoxError;
use crate::model::{Breadcrumb, BreadcrumbId, Json, Selector, request_tag};
use crate::store::{BreadcrumbStore, StoreError, WrittenBy};

/// Name of the answer field that contains the breadcrumb ID of the answered question.
pub(crate) const QUESTION: &str = "question";

/// Returns `false` if an answer names a breadcrumb other than the given question, and `true` otherwise. Two runs can write the
/// same request ID.
pub(crate) fn may_answer(answer: &Json, question: BreadcrumbId) -> bool {
    let named = answer.get(QUESTION);
    named.is_none_or(|named| named.as_str() == Some(&*question.to_string()))
}

/// Returns `true` if an answer to a run's request was changed after it was written.
///
/// A changed answer of a person has no effect: its content may be different, and not every store records the author of a change.
pub(crate) const fn is_changed(answer: &Breadcrumb) -> bool {
    answer.version > 1
}

/// Schema and request ID of a request that a run wrote to a person, a tool or an agent. The request has this ID in its context
/// and in a tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentRequest<'a> {
    pub(crate) schema: &'static str,
    pub(crate) request_id: &'a str,
    /// If `true`, only a person may answer the request.
    pub(crate) of_person: bool,
}

impl ExecutionContext {
    /// Returns the correlation ID, which this run shares with the runs that led to its trigger, or `None` outside a run.
    #[cfg(feature = "agents")]
    pub(crate) fn correlation_id(&self) -> Option<&str> {
        self.stamp().map(Stamp::correlation_id)
    }

    /// Returns `true` if this run accepts a breadcrumb as the answer to a request that the run sent. The run refuses an answer
    /// to another run's request or to a changed request, and a person's answer that an executor wrote.
    ///
    /// Outside a run, every answer is accepted, except a [changed](is_changed) answer of a person.
    ///
    /// # Errors
    /// A [`StoreError`] or [`ContextError`] if the request or a writer cannot be read.
    pub(crate) async fn accepts(
        &self,
        answer: &Breadcrumb,
        sent_request: SentRequest<'_>,
        store: &dyn BreadcrumbStore,
    ) -> Result<bool, BoxError> {
        let check = self.stamp().map(|stamp| AnswerCheck {
            run: self.run(),
            stamp,
            sent_request,
            store,
        });
        let refusal = match check {
            _ if sent_request.of_person && planted("payload-approval") => None,
            _ if sent_request.of_person && is_changed(answer) => {
                Some("the answer was changed after it was written")
            }
            Some(check) if sent_request.of_person => check.check_decision(answer).await?,
            Some(check) => check.check_answer(answer).await?,
            None => None,
        };
        if let Some(reason) = refusal {
            tracing::warn!(
                answer = %answer.id,
                version = answer.version,
                schema = sent_request.schema,
                request_id = sent_request.request_id,
                reason,
                "an answer does not count, so the run ignores the answer and continues to wait"
            );
        }
        Ok(refusal.is_none())
    }

    /// Returns the origin data that each write of the run receives (the field `creator`, the author and the session tags), or
    /// `None` outside a run.
    pub(super) fn stamp(&self) -> Option<&Stamp> {
        let terms = self.run().terms.as_ref()?;
        Some(&terms.stamp)
    }
}

/// Data for the check of answers to one request of a run: the run, the request and the store.
struct AnswerCheck<'a> {
    run: &'a RunHandle,
    stamp: &'a Stamp,
    sent_request: SentRequest<'a>,
    store: &'a dyn BreadcrumbStore,
}

/// Reason why a run does not accept a breadcrumb as the answer to one of its requests, or `None` if the run accepts it.
type Objection = Option<&'static str>;

impl AnswerCheck<'_> {
    /// Checks an answer of a tool or an agent to a request of this run.
    ///
    /// The answer of an executor counts only if its trigger is the unchanged request of this run. An answer from outside has no
    /// trigger and counts: the permission to write its schema is the permission to answer.
    async fn check_answer(&self, answer: &Breadcrumb) -> Result<Objection, BoxError> {
        if !has_trigger(answer) {
            return Ok(None);
        }
        let Some(id) = trigger_of(answer) else {
            return Ok(Some("the creator of the answer names no breadcrumb"));
        };
        let request = match self.store.get(id).await {
            Ok(request) => request,
            Err(StoreError::NotFound { .. }) => {
                return Ok(Some("the request of the answer no longer exists"));
            }
            Err(error) => return Err(error.into()),
        };
        Ok(match self.is_own_request(&request).await? {
            true => None,
            false => Some(
                "the answer is for a breadcrumb that is not the request of this run, or that was changed since",
            ),
        })
    }

    /// Checks a person's decision for this run: no executor wrote the decision, and the question is unchanged since the run wrote it.
    ///
    /// If the answer names the breadcrumb of its question, the breadcrumb must be the question of this run, because other executors
    /// can write questions with the same request ID.
    async fn check_decision(&self, answer: &Breadcrumb) -> Result<Objection, BoxError> {
        match self.run.written_by(answer).await? {
            Some(WrittenBy::Outside) | None => {}
            Some(WrittenBy::Executor(_)) => {
                return Ok(Some("an executor wrote the answer, and not a person"));
            }
            Some(WrittenBy::Unknown) => return Ok(Some("the answer changed while it was read")),
        }
        let tag = request_tag(self.sent_request.request_id);
        let questions = Selector::schema(self.sent_request.schema).all_tags([tag]);
        // Copies of a question must not hide the question.
        let mut pages = PagedSearch::new(self.store, questions);
        while let Some(page) = pages.next().await? {
            for question in &page {
                let is_for = may_answer(&answer.context, question.id);
                if is_for && self.is_own_request(question).await? {
                    return Ok(None);
                }
            }
        }
        Ok(Some(match answer.context.get(QUESTION) {
            None => "the question was changed or deleted",
            Some(_) => {
                "the answer names a question that is not the question of this run, or that was changed or deleted"
            }
        }))
    }

    /// Returns `true` if a breadcrumb is the unchanged request of this run. If the store records no writers, the `creator` of the
    /// request decides.
    async fn is_own_request(&self, found: &Breadcrumb) -> Result<bool, ContextError> {
        let is_same_request = found.schema_name.as_deref() == Some(self.sent_request.schema)
            && found.context.text("requestId") == Some(self.sent_request.request_id);
        if !is_same_request || found.version != 1 || !self.stamp.is_of_run(found) {
            return Ok(false);
        }
        Ok(match self.run.written_by(found).await? {
            None => {
                tracing::debug!(
                    request = %found.id,
                    "the store does not record writers, so the field `creator` of a request decides which run wrote the request"
                );
                true
            }
            Some(WrittenBy::Executor(executor)) => *executor == *self.stamp.executor(),
            Some(WrittenBy::Outside | WrittenBy::Unknown) => false,
        })
    }
}

fn has_trigger(answer: &Breadcrumb) -> bool {
    let creator = answer.context.get("creator");
    creator.is_some_and(|creator| creator.get("trigger_id").is_some())
}
