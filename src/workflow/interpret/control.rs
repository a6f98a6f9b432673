//! Interprets the control flow of a flow run: loops, choices, `try` and escalations.

use super::path::StepPath;
use super::progress::{Cursor, Node, Produced};
use super::protocol::{FlowEventKind, StepFailure};
use super::scope::Scope;
use super::walk::{End, Walk, Walked, text, unresolved};
use crate::model::Json;
use crate::workflow::ast::{Arm, Block, Handler, Step};
use crate::workflow::definition::MATCHED;
use crate::workflow::expression::{Expression, Test};
use serde_json::json;

impl<'r> Walk<'r> {
    pub(super) fn repeat(
        &mut self,
        most: u32,
        until: Option<&Test>,
        body: &'r Block,
        path: &StepPath,
        scope: &mut Scope<'_>,
    ) -> Result<Walked, Walked> {
        let first = Node::Loop {
            iteration: 1,
            cursor: Cursor::default(),
        };
        self.enter(path, first)?;
        loop {
            let Some(Node::Loop { iteration, .. }) = self.progress.nodes.get(path) else {
                return Err(self.misfit(path));
            };
            let iteration = *iteration;
            scope.push("iteration", json!(iteration));
            let base = path.iteration(iteration.into());
            let walked = self.block(body, path, &base, scope);
            let done = match (&walked, until) {
                (Walked::Ended(End::Produced(_)), Some(until)) => until.holds(scope),
                (Walked::Open | Walked::Ended(_), _) => Ok(false),
            };
            scope.pop();
            let value = match walked {
                Walked::Ended(End::Produced(value)) => value,
                walked @ (Walked::Open | Walked::Ended(_)) => return Ok(walked),
            };
            let done = done.map_err(|error| Walked::failed(unresolved(&error)))?;
            if !done && iteration >= most {
                let iterations = iteration;
                self.event(path, FlowEventKind::LoopExhausted { iterations });
            }
            if done || iteration >= most {
                return Ok(Walked::Ended(End::Produced(value)));
            }
            let next = Node::Loop {
                iteration: iteration + 1,
                cursor: Cursor::default(),
            };
            self.insert(path, next);
        }
    }

    pub(super) fn choose(
        &mut self,
        on: Option<&Expression>,
        arms: &'r [Arm],
        path: &StepPath,
        scope: &mut Scope<'_>,
    ) -> Result<Walked, Walked> {
        if !self.progress.nodes.contains_key(path) {
            self.begin(path, None)?;
            let chosen = self.chosen(on, arms, scope).map_err(Walked::failed)?;
            let Some(arm) = chosen else {
                return Ok(Walked::Ended(End::Produced(Produced::Nothing)));
            };
            let cursor = Cursor::default();
            let node = Node::Chosen { arm, cursor };
            self.insert(path, node);
        }
        let arm = match self.progress.nodes.get(path) {
            Some(Node::Chosen { arm, .. }) => arms.get(*arm),
            Some(_) | None => None,
        };
        match arm {
            Some(arm) => Ok(self.block(&arm.body, path, &path.child(&arm.segment), scope)),
            None => Err(self.misfit(path)),
        }
    }

    /// Returns the index of the first arm of an `if` or `match` whose condition holds, or `None` if no condition holds.
    fn chosen(
        &self,
        on: Option<&Expression>,
        arms: &[Arm],
        scope: &mut Scope<'_>,
    ) -> Result<Option<usize>, StepFailure> {
        let on = on.map(|on| self.value(on, scope)).transpose()?;
        let is_match = on.is_some();
        if let Some(value) = on {
            scope.push(MATCHED, value);
        }
        let mut chosen = Ok(None);
        for (at, arm) in arms.iter().enumerate() {
            let holds = arm.test.as_ref().map_or(Ok(true), |test| test.holds(scope));
            match holds {
                Ok(false) => continue,
                Ok(true) => chosen = Ok(Some(at)),
                Err(error) => chosen = Err(unresolved(&error)),
            }
            break;
        }
        if is_match {
            scope.pop();
        }
        chosen
    }

    pub(super) fn attempt(
        &mut self,
        body: &'r Block,
        on_failure: &'r Block,
        path: &StepPath,
        scope: &mut Scope<'_>,
    ) -> Result<Walked, Walked> {
        let first = Node::Try {
            failure: None,
            cursor: Cursor::default(),
        };
        self.enter(path, first)?;
        let Some(Node::Try { failure, .. }) = self.progress.nodes.get(path) else {
            return Err(self.misfit(path));
        };
        let failure = match failure.clone() {
            Some(failure) => failure,
            None => match self.block(body, path, &path.child("try"), scope) {
                Walked::Ended(End::Failed(failure)) => {
                    let recovering = Node::Try {
                        failure: Some(failure.clone()),
                        cursor: Cursor::default(),
                    };
                    self.insert(path, recovering);
                    failure
                }
                walked @ (Walked::Open | Walked::Ended(_)) => return Ok(walked),
            },
        };
        let error = json!({"code": failure.code, "message": failure.message, "step": failure.step});
        scope.push("error", error);
        let walked = self.block(on_failure, path, &path.child("on_failure"), scope);
        scope.pop();
        Ok(walked)
    }

    /// Applies the first escalation of a step whose condition holds for the step's result. Without such an escalation, the result stays.
    pub(super) fn escalate(
        &mut self,
        step: &'r Step,
        path: &StepPath,
        result: Json,
        scope: &mut Scope<'_>,
    ) -> Walked {
        scope.push("result", result.clone());
        let mut escalations = step.escalations.iter().enumerate();
        let found = escalations.find_map(|(at, one)| match one.when.holds(scope) {
            Ok(false) => None,
            Ok(true) => Some(Ok((at, &one.handler))),
            Err(error) => Some(Err(unresolved(&error))),
        });
        let walked = match found {
            None => Walked::produced(result),
            Some(Err(failure)) => Walked::failed(failure),
            Some(Ok((escalation, handler))) => {
                self.event(path, FlowEventKind::Escalated { escalation });
                self.apply_handler(step, path, (escalation, handler), result, scope)
            }
        };
        scope.pop();
        walked
    }

    fn apply_handler(
        &mut self,
        step: &'r Step,
        path: &StepPath,
        (escalation, handler): (usize, &Handler),
        result: Json,
        scope: &mut Scope<'_>,
    ) -> Walked {
        match handler {
            Handler::Continue(value) => Walked::of(self.value(value, scope)),
            Handler::Return(value) => match self.value(value, scope) {
                Ok(value) => Walked::Ended(End::Return(value)),
                Err(failure) => Walked::failed(failure),
            },
            Handler::Abort(message) => Walked::failed(match self.value(message, scope) {
                Ok(message) => StepFailure::new("escalated", text(&message)),
                Err(failure) => failure,
            }),
            Handler::Steps(_) => {
                if let Err(failure) = self.total_size.check(result.size()) {
                    return Walked::failed(failure);
                }
                let node = Node::Escalated {
                    escalation,
                    result,
                    cursor: Cursor::default(),
                };
                self.insert(path, node);
                self.handler(step, path, scope)
            }
        }
    }

    /// Advances the steps of an escalation. If they have no result, the original result of the escalated step stays.
    pub(super) fn handler(
        &mut self,
        step: &'r Step,
        path: &StepPath,
        scope: &mut Scope<'_>,
    ) -> Walked {
        let Some(Node::Escalated {
            escalation, result, ..
        }) = self.progress.nodes.get(path)
        else {
            return self.misfit(path);
        };
        let (escalation, result) = (*escalation, result.clone());
        let Some(Handler::Steps(block)) = step.escalations.get(escalation).map(|one| &one.handler)
        else {
            return self.misfit(path);
        };
        scope.push("result", result.clone());
        let base = path.child(&format!("escalation{escalation}"));
        let walked = self.block(block, path, &base, scope);
        scope.pop();
        match walked {
            Walked::Ended(End::Produced(Produced::Nothing)) => Walked::produced(result),
            walked @ (Walked::Open | Walked::Ended(_)) => walked,
        }
    }
}
