//! Messages that an MCP server sends on its own: progress, changes of its list of tools, and log messages.

use crate::error::excerpt;
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::{NotificationContext, RoleClient};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc};

/// Maximum size in bytes of a progress message.
const MAX_PROGRESS_BYTES: usize = 1 << 10;

/// Maximum number of progress reports of one call that wait to be written. Further ones are dropped.
const WAITING_REPORTS: usize = 4;

/// Maximum number of progress reports with an unknown token that are held.
const EARLY_REPORTS: usize = 16;

/// Receiver of the messages that an MCP server sends on its own. It offers the server no abilities: no sampling, no elicitation and no
/// roots.
#[derive(Clone, Debug, Default)]
pub(super) struct Handler {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    tools_changed: Notify,
    progress: Mutex<Progress>,
}

/// The receivers of progress reports, by the tokens of their calls.
#[derive(Debug, Default)]
struct Progress {
    calls: HashMap<ProgressToken, mpsc::Sender<Value>>,
    /// The latest reports with an unknown token. A server can send a report before the token of the call is known here.
    early: VecDeque<(ProgressToken, Value)>,
}

impl Handler {
    /// Waits until the server reports a change of its tools. Changes since the last call count once.
    pub(super) async fn tools_changed(&self) {
        self.shared.tools_changed.notified().await;
    }

    /// Returns the progress reports of the call with this token. The reports end when the result is dropped.
    pub(super) fn progress_of(&self, token: ProgressToken) -> ProgressReports {
        let (sender, receiver) = mpsc::channel(WAITING_REPORTS);
        let mut progress = self.progress();
        if let Some(at) = progress.early.iter().position(|(early, _)| *early == token)
            && let Some((_, report)) = progress.early.remove(at)
        {
            sender.try_send(report).ok();
        }
        progress.calls.insert(token.clone(), sender);
        drop(progress);
        ProgressReports {
            handler: self.clone(),
            token,
            receiver,
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        let progress = self.shared.progress.lock();
        progress.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The progress reports of one call.
pub(super) struct ProgressReports {
    handler: Handler,
    token: ProgressToken,
    receiver: mpsc::Receiver<Value>,
}

impl ProgressReports {
    /// Returns the next report that was received already.
    pub(super) fn received(&mut self) -> Option<Value> {
        self.receiver.try_recv().ok()
    }

    /// Waits for the next report. Never returns if the server sends no further report.
    pub(super) async fn next(&mut self) -> Value {
        match self.receiver.recv().await {
            Some(report) => report,
            None => std::future::pending().await,
        }
    }
}

impl Drop for ProgressReports {
    fn drop(&mut self) {
        self.handler.progress().calls.remove(&self.token);
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let name = Implementation::new("universal-executor", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), name)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.shared.tools_changed.notify_one();
    }

    async fn on_progress(
        &self,
        report: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let shown = shown(&report);
        let mut progress = self.progress();
        match progress.calls.get(&report.progress_token) {
            // If the channel is full, the store is slower than the server, and the report is dropped.
            Some(call) => drop(call.try_send(shown)),
            None => {
                progress.early.push_back((report.progress_token, shown));
                let surplus = progress.early.len().saturating_sub(EARLY_REPORTS);
                progress.early.drain(..surplus);
            }
        }
    }
}

fn shown(report: &ProgressNotificationParam) -> Value {
    let message = report.message.as_deref();
    json!({
        "progress": report.progress,
        "total": report.total,
        "message": message.map(|message| excerpt(message, MAX_PROGRESS_BYTES)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::NumberOrString;

    fn token(number: i64) -> ProgressToken {
        ProgressToken(NumberOrString::Number(number))
    }

    #[test]
    fn a_progress_report_is_bounded() {
        let mut report = ProgressNotificationParam::new(token(1), 0.5);
        report.message = Some("x".repeat(10 << 20));

        let shown = shown(&report);

        assert_eq!(shown["progress"], 0.5);
        assert!(shown.to_string().len() < 2 << 10);
    }

    #[test]
    fn the_reports_of_a_call_end_with_the_call() {
        let handler = Handler::default();
        let reports = (handler.progress_of(token(1)), handler.progress_of(token(2)));
        assert_eq!(handler.progress().calls.len(), 2);

        drop(reports);

        assert!(handler.progress().calls.is_empty());
    }
}
