//! Approvals of the tool calls in flow steps. A tool's rules determine the calls that need an approval, and the people with the right to
//! approve.

use super::Assembly;
use super::attempt::Drive;
use super::step::{Step, StepResult};
use super::waiting::{Awaited, Wait, tool_of};
use crate::error::BoxError;
use crate::machine::MachineCall;
use crate::model::{Breadcrumb, Json};
use crate::request::{Reply, human};
use crate::tool::{Approval, NeededApproval, Tool};
use crate::workflow::{StepPath, StepTask};

impl Assembly {
    /// Returns one digest of the workflow definition and a tool's definition, which the digest of each call of this tool
    /// includes.
    fn fingerprint(&self, tool: &str) -> String {
        human::fingerprint(self.workflow().hash(), self.tools.registered(tool))
    }

    /// Returns the digest of a tool call: a hash of the tool, its input, and the definitions of the workflow and the tool. An
    /// approval with this digest is valid only for this call.
    pub(super) fn digest_of(&self, tool: &str, input: &Json) -> String {
        self.digest_with(tool, input, &self.fingerprint(tool))
    }

    fn digest_with(&self, tool: &str, input: &Json, definition: &str) -> String {
        let registered = self.tools.registered(tool).map(Tool::name);
        human::digest(registered.unwrap_or(tool), input, definition)
    }

    /// Returns the approval rules that apply after an approver has changed the input of a step that calls a tool.
    fn change_rules(&self, tool: &str) -> Vec<Approval> {
        let settings = self.tools.get(tool).map(Tool::settings);
        let rules = settings.into_iter().flat_map(|tool| &tool.approvals);
        rules.filter_map(|rule| rule.for_changes(&[])).collect()
    }
}

impl Step<'_> {
    /// Asks a person to approve the step's tool call, and waits for the answer.
    pub(super) async fn ask_approval(
        &self,
        tool: &str,
        input: &Json,
        digest: String,
        needed: NeededApproval,
    ) -> Result<StepResult, BoxError> {
        let assembly = self.assembly;
        let registered = assembly.tools.registered(tool);
        let NeededApproval { people, expires_in } = needed;
        let call = MachineCall::new(self.ready.path.as_str(), tool, input.clone());
        let changes = assembly.change_rules(tool);
        let fields = human::approval(&call, registered, input, &digest, &people, &changes);
        if self.approved.is_some() {
            let trigger = self.context.trigger();
            tracing::warn!(
                workflow = assembly.workflow().name.as_deref(),
                trigger = %trigger.id,
                version = trigger.version,
                step = self.ready.path.as_str(),
                tool = registered.map(Tool::name),
                reason = "the input, the tool, its rules or the workflow changed since the question",
                "an approval does not count, because its digest is not that of the call: the run asks again"
            );
        }
        // A repeated question after an approval gets a new ID, so that an answer to the earlier question does not count.
        let what = match self.approvals {
            0 => "approval".to_owned(),
            earlier => format!("approval {earlier}"),
        };
        let on = Awaited::Approval {
            digest,
            by: people,
            definition: assembly.fingerprint(tool),
        };
        self.ask_person(&what, on, fields, expires_in).await
    }
}

impl Drive<'_> {
    /// Returns `false` if an approval changes the input of a step and the approver may not do so. Equal input is not a change.
    pub(super) fn may_change(
        &self,
        wait: &Wait,
        reply: &Reply,
        found: &Breadcrumb,
        task: &StepTask,
    ) -> bool {
        let (
            Reply::Approved(Some(changed)),
            Some(tool),
            Awaited::Approval {
                digest, definition, ..
            },
        ) = (reply, tool_of(task), &wait.on)
        else {
            return true;
        };
        let assembly = self.assembly;
        // If the definitions changed meanwhile, the run asks again under the current rules.
        if assembly.fingerprint(tool) != *definition {
            return true;
        }
        let change = human::Change {
            arguments: changed,
            is_same: assembly.digest_with(tool, changed, definition) == *digest,
            rules: &assembly.change_rules(tool),
            asked_at: Some(wait.since),
        };
        change.is_allowed(found)
    }

    /// Schedules a step for execution after a person has approved its tool call. Changed input gets a new digest. If the
    /// definitions have changed since the question, the digest stays, does not match the call, and the flow asks again.
    pub(super) fn approve(&mut self, path: &StepPath, on: &Awaited, changed: Option<Json>) {
        let tool = self.ready.get(path).and_then(|ready| tool_of(&ready.task));
        let (
            Awaited::Approval {
                digest: asked,
                definition,
                ..
            },
            Some(checkpoint),
        ) = (on, self.checkpoints.get_mut(path))
        else {
            return;
        };
        let mut approved = asked.clone();
        if let (Some(input), Some(tool)) = (changed, tool) {
            let current = self.assembly.fingerprint(tool);
            let digest = self.assembly.digest_with(tool, &input, &current);
            if current == *definition {
                approved.clone_from(&digest);
            }
            // Input that equals the input in the question is not a change.
            if digest != *asked {
                checkpoint.changed = Some(input);
            }
        }
        // Only the call itself, and not the question, can have effects.
        checkpoint.approvals = checkpoint.approvals.saturating_add(1);
        (checkpoint.approved, checkpoint.wait, checkpoint.begun) = (Some(approved), None, false);
        self.queue.push_back(path.clone());
        self.is_saved = false;
    }
}
