//! Compaction of long conversations of a session. A conversation is compacted between two turns, or between two steps.

use super::log::{About, Kept};
use super::{Conversation, Log};
use crate::agent::ChatModel;
use crate::agent::compaction::{HearCost, helps, sum_up, tokens};
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
pub(in crate::workload) async fn compacted(
    session: &Conversation,
    log: Log,
    policy: &Compaction,
    model: Option<Arc<dyn ChatModel>>,
    guardrails: &Guardrails,
    by: &HearCost,
) -> Result<(Log, Option<WorkloadEventKind>), BoxError> {
    let cut = cut(&log.kept, policy.keep);
    let old = Log {
        kept: log.kept.iter().take(cut).cloned().collect(),
        ..log.clone()
    };
    let old = match cut {
        0 => Vec::new(),
        _ => old.messages(),
    };
    if !helps(policy.at_tokens, tokens(&log.messages()), tokens(&old)) {
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
            match sum_up(&old, guardrails, &*model, Some(by)).await {
                Ok(summary) => Some(summary),
                Err(error) => {
                    error.log();
                    return Ok((log, None));
                }
            }
        }
    };
    let kept = log.kept.get(cut..).unwrap_or_default().to_vec();
    let about = About {
        began: log.about.began,
        entries: log.about.entries,
        since: kept.first().map_or(log.about.entries, |kept| kept.number),
        summary,
    };
    let Some(head) = log.head else {
        return Ok((log, None));
    };
    let head = match session.change(head, &about, None).await {
        Ok(head) => head,
        // Another agent of the run has compacted the log, or another turn added to it, which this turn detects at its
        // end.
        Err(SessionError::Conflict { .. }) => return Ok((log, None)),
        Err(error) => return Err(error.into()),
    };
    let event = WorkloadEventKind::Compacted {
        left_out: u64::try_from(cut).unwrap_or(u64::MAX),
        summed_up: about.summary.is_some(),
    };
    Ok((Log { head, about, kept }, Some(event)))
}

/// Returns the number of oldest turns to omit from a conversation, so that at most `keep` messages remain. The last
/// turn always remains.
fn cut(kept: &[Kept], keep: u64) -> usize {
    let mut messages = 0_u64;
    for (at, turn) in kept.iter().enumerate().rev() {
        messages += u64::try_from(turn.entry.messages().len()).unwrap_or(u64::MAX);
        if messages > keep {
            return (at + 1).min(kept.len() - 1);
        }
    }
    0
}
