//! Conversations that became too long are made shorter between turns and steps.

use super::{About, Log, LogEntry, Session};
use crate::agent::ChatModel;
use crate::agent::compaction::{message_tokens, sum_up};
use crate::agent::guardrail::Guardrails;
use crate::error::BoxError;
use crate::workflow::{Compaction, CompactionMethod};
use crate::workload::WorkloadEventKind;
use std::sync::Arc;

/// A log, made shorter if it is too long, and what to tell of that, if it was.
///
/// # Errors
/// What the store says. A model that does not sum up leaves the conversation as it is.
pub(in crate::workload) async fn compacted(
    session: &Session,
    log: Log,
    policy: &Compaction,
    model: Option<Arc<dyn ChatModel>>,
) -> Result<(Log, Option<WorkloadEventKind>), BoxError> {
    let tokens: usize = log.messages().iter().map(message_tokens).sum();
    let cut = cut(&log.entries, policy.keep);
    if u64::try_from(tokens).unwrap_or(u64::MAX) < policy.at_tokens || cut == 0 {
        return Ok((log, None));
    }
    let summary = match policy.method {
        CompactionMethod::Truncate => None,
        CompactionMethod::Summarise => {
            let Some(model) = model else {
                tracing::warn!("a conversation is too long, and there is no model to sum it up");
                return Ok((log, None));
            };
            let old = Log {
                entries: log.entries.iter().take(cut).cloned().collect(),
                ..log.clone()
            };
            match sum_up(&old.messages(), &Guardrails::default(), &*model).await {
                Ok(summary) => Some(summary),
                Err(error) => {
                    tracing::warn!("a conversation is too long, and is not summed up: {error}");
                    return Ok((log, None));
                }
            }
        }
    };
    let kept = u64::try_from(log.entries.len() - cut).unwrap_or(u64::MAX);
    let about = About {
        entries: log.about.entries,
        since: log.about.entries.saturating_sub(kept),
        summary,
    };
    session.change(&log, &about, None).await?;
    let event = WorkloadEventKind::Compacted {
        left_out: about.since - log.about.since,
        summed_up: about.summary.is_some(),
    };
    Ok((session.load().await?, Some(event)))
}

/// How many of the oldest entries are left out, so that no more messages are kept than these: whole turns, and never the last.
fn cut(entries: &[LogEntry], keep: u64) -> usize {
    let mut messages = 0_u64;
    for (at, entry) in entries.iter().enumerate().rev() {
        messages += match entry {
            LogEntry::Said { messages } => u64::try_from(messages.len()).unwrap_or(u64::MAX),
            LogEntry::Suspended { .. } => 0,
        };
        if messages > keep {
            return (at + 1).min(entries.len() - 1);
        }
    }
    0
}
