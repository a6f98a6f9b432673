//! Compaction of long conversations of a session. A conversation is compacted between two turns, or between two steps.

use super::log::{HeadFields, StoredEntry};
use super::{Conversation, Log};
use crate::agent::ChatModel;
use crate::agent::compaction::{CostCallback, should_shorten, summarise, tokens};
use crate::agent::guardrail::Guardrails;
use crate::error::BoxError;
use crate::session_log::SessionError;
use crate::workflow::{Compaction, CompactionMethod};
use crate::workload::event::WorkloadEventKind;
use std::sync::Arc;

/// Returns the session log, shortened if it is too long, and the event for the compaction if there was one.
///
/// # Errors
/// Returns the errors of the store. If the model returns no summary, the conversation stays as it is.
pub(in crate::workload) async fn compact_log(
    session: &Conversation,
    log: Log,
    policy: &Compaction,
    model: Option<Arc<dyn ChatModel>>,
    guardrails: &Guardrails,
    report_usage: &CostCallback,
) -> Result<(Log, Option<WorkloadEventKind>), BoxError> {
    let omitted = count_omitted_turns(&log.stored, policy.keep);
    let old = Log {
        stored: log.stored.iter().take(omitted).cloned().collect(),
        ..log.clone()
    };
    let old = match omitted {
        0 => Vec::new(),
        _ => old.messages(),
    };
    if !should_shorten(policy.at_tokens, tokens(&log.messages()), tokens(&old)) {
        return Ok((log, None));
    }
    let summary = match policy.method {
        CompactionMethod::Truncate => None,
        CompactionMethod::Summarise => {
            let Some(model) = model else {
                tracing::warn!(
                    "a long conversation is not shortened, because no model for summaries is configured"
                );
                return Ok((log, None));
            };
            match summarise(&old, guardrails, &*model, Some(report_usage)).await {
                Ok(summary) => Some(summary),
                Err(error) => {
                    error.log();
                    return Ok((log, None));
                }
            }
        }
    };
    let stored = log.stored.get(omitted..).unwrap_or_default().to_vec();
    let head_fields = HeadFields {
        began: log.head_fields.began,
        entries: log.head_fields.entries,
        since: stored
            .first()
            .map_or(log.head_fields.entries, |stored| stored.number),
        summary,
    };
    let Some(head) = log.head else {
        return Ok((log, None));
    };
    let head = match session.change(head, &head_fields, None).await {
        Ok(head) => head,
        // Another agent of the run has compacted the log, or another turn added to it, which this turn detects at its
        // end.
        Err(SessionError::Conflict { .. }) => return Ok((log, None)),
        Err(error) => return Err(error.into()),
    };
    let event = WorkloadEventKind::Compacted {
        left_out: u64::try_from(omitted).unwrap_or(u64::MAX),
        summed_up: head_fields.summary.is_some(),
    };
    let log = Log {
        head,
        head_fields,
        stored,
    };
    Ok((log, Some(event)))
}

/// Returns the number of oldest turns to omit from a conversation, so that at most `keep` messages remain. The last
/// turn always remains.
fn count_omitted_turns(stored: &[StoredEntry], keep: u64) -> usize {
    let mut messages = 0_u64;
    for (at, turn) in stored.iter().enumerate().rev() {
        messages += u64::try_from(turn.entry.messages().len()).unwrap_or(u64::MAX);
        if messages > keep {
            return (at + 1).min(stored.len() - 1);
        }
    }
    0
}
