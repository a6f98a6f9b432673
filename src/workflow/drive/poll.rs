//! Polls of the store for answers to the waiting steps of a flow run, and for control orders to the run.

use super::attempt::Drive;
use super::control::Control;
use super::next_check::fallback_timeout;
use super::outcome::{of_error, timed_out};
use super::step_breadcrumbs::StepBreadcrumb;
use super::waiting::{Awaited, Wait, tool_of};
use crate::classes::decided;
use crate::error::{BoxError, Chain, Verdict};
use crate::executor::{ContextError, PagedSearch};
use crate::machine::Answer;
use crate::model::{Breadcrumb, Selector, Timestamp};
use crate::request::{Pending, Reply, answer_deadline, human};
use crate::store::Wake;
use crate::workflow::{StepOutcome, StepPath, StepTask};
use futures::future::BoxFuture;
use std::sync::Arc;

impl Drive<'_> {
    /// Polls for answers and control orders, and applies them, until a poll finds no new ones. The repeated polls find breadcrumbs that
    /// arrived during an earlier poll. Returns `true` if anything was applied.
    pub(super) async fn poll(&mut self) -> Result<bool, BoxError> {
        // The notification is registered before the store is read, so that no breadcrumb is missed in between.
        self.next_check.reset();
        self.next_check.follow(self.announced());
        let mut any = false;
        loop {
            let before = self.poll_progress.since;
            any |= self.poll_once().await?;
            if self.poll_progress.since == before {
                return Ok(any);
            }
        }
    }

    /// Polls the store for answers and control orders while steps are running, and logs a transient store error instead of
    /// returning it. The next poll then reads everything that this one did not.
    pub(super) async fn poll_while_running(&mut self) -> Result<(), BoxError> {
        let Err(error) = self.poll().await else {
            return Ok(());
        };
        match decided(error.as_ref()) {
            Some(Verdict::Permanent) | None => return Err(error),
            Some(Verdict::Transient(_) | Verdict::RateLimited(_)) => {}
        }
        let trigger = self.context.trigger().id;
        tracing::warn!(
            %trigger,
            error = %Chain(&*error),
            "cannot poll the store for answers and control orders (such as pause) to a flow run; the running steps continue, and the \
             next poll will retry"
        );
        self.next_check.reset();
        Ok(())
    }

    /// Returns a future that ends when a runtime announces a breadcrumb that the run waits for. The future ends after
    /// [`fallback_timeout`] at the latest. `None` if no runtime announces breadcrumbs to the run.
    fn announced(&self) -> Option<BoxFuture<'static, ()>> {
        let end = self.ends().min();
        let left = end.map(|end| end.since(self.context.now()));
        let store = &*self.assembly.store;
        self.context
            .announced(store, &self.wake().selectors, fallback_timeout(left))
    }

    async fn poll_once(&mut self) -> Result<bool, BoxError> {
        let mut any = self.apply_control_orders().await?;
        let waiting = self
            .checkpoints
            .iter()
            .filter(|(_, checkpoint)| checkpoint.wait.is_some());
        let waiting: Vec<StepPath> = waiting.map(|(path, _)| path.clone()).collect();
        for path in waiting {
            any |= self.apply_answer(&path).await?;
        }
        for path in self.waiting_agents.keys().cloned().collect::<Vec<_>>() {
            any |= self.wake_agent(&path).await?;
        }
        Ok(any)
    }

    async fn apply_control_orders(&mut self) -> Result<bool, BoxError> {
        let trigger = self.context.trigger().id;
        let done = self.poll_progress.control;
        let since = done.map_or(self.context.trigger().updated_at, |(at, ..)| at);
        let mut any = false;
        for order in self
            .newer(Control::selector(trigger), since, done.is_none())
            .await?
        {
            if done.is_some_and(|done| order.order_key() <= done) {
                continue;
            }
            self.poll_progress.control = Some(order.order_key());
            let Some(control) = Control::read(&order) else {
                continue;
            };
            let next = match control {
                Control::Cancel => self.run.cancel(),
                Control::Pause => self.run.pause(),
                Control::Resume => self.run.unpause(),
            };
            self.apply(next);
            any = true;
        }
        Ok(any)
    }

    /// Ends the wait of a step if an answer has arrived or the wait has expired. Returns `true` if the wait ended.
    async fn apply_answer(&mut self, path: &StepPath) -> Result<bool, BoxError> {
        let wait = self
            .checkpoints
            .get(path)
            .and_then(|checkpoint| checkpoint.wait.clone());
        let (Some(wait), Some(ready)) = (wait, self.ready.get(path).cloned()) else {
            return Ok(false);
        };
        let task = &ready.task;
        let found = match wait.selector(task) {
            Some(selector) => self.newer(selector, wait.since, false).await?,
            None => Vec::new(),
        };
        let found = self.may_answer(&ready, found);
        let wait_by_store_clock = self.with_store_deadline(&wait, task);
        let mut counted = None;
        for found in &found {
            if let Some(reply) = wait_by_store_clock.reply(found, &found.context, task)
                && self.matches_schema(&reply, task)
                && self.may_change(&wait, &reply, found, task)
                && self.counts(wait.pending(task), found).await?
            {
                counted = Some((reply, found));
                break;
            }
        }
        let outcome = match counted {
            Some((Reply::Approved(changed), answer)) => {
                let (context, store) = (self.context, &*self.assembly.store);
                let withheld = human::withheld_arguments(answer, changed.as_ref(), context, store);
                let Some(withheld) = withheld.await? else {
                    self.approve(path, &wait.on, changed);
                    return Ok(true);
                };
                of_error(withheld, None)
            }
            Some((Reply::Answer(full_answer), answer)) => {
                let shown = self.shown(&wait_by_store_clock, answer, task).await?;
                let schema = answer.schema_name.as_deref().unwrap_or_default();
                if let (Answer::Success(_), Some(checkpoint)) =
                    (&full_answer, self.checkpoints.get(path))
                {
                    let mark = StepBreadcrumb::received(answer.updated_at);
                    checkpoint.marks.add(schema, answer.id, mark);
                }
                self.checked(task, &full_answer, shown)
            }
            None if wait.until <= self.context.now() => match wait.pending(task) {
                Some(pending) if matches!(wait.on, Awaited::Approval { .. }) => {
                    of_error(pending.timeout_answer(), None)
                }
                Some(_) | None => timed_out(task, self.assembly),
            },
            None => return Ok(false),
        };
        self.report_outcome(path, outcome);
        Ok(true)
    }

    /// Returns `true` if an answer belongs to the request of this run and, for a question, comes from a person. Always `true` for the
    /// event of a `wait_for`.
    async fn counts(
        &mut self,
        pending: Option<Pending<'_>>,
        found: &Breadcrumb,
    ) -> Result<bool, BoxError> {
        /// Maximum number of breadcrumb versions that a flow run remembers as refused answers. Each poll checks further versions
        /// again.
        const MAX_REFUSED: usize = 1_024;
        let Some(asked) = pending.map(Pending::sent_request) else {
            return Ok(true);
        };
        let version = (found.id, found.version);
        if self.poll_progress.refused.contains(&version) {
            return Ok(false);
        }
        let store = &*self.assembly.store;
        let counts = human::questions::accepts(self.context, found, asked, store).await?;
        if !counts && self.poll_progress.refused.len() < MAX_REFUSED {
            self.poll_progress.refused.insert(version);
        }
        Ok(counts)
    }

    /// Returns a copy of a step's wait for a breadcrumb, with the end of the wait converted to the store's clock. Outside of a
    /// run, a wait for an event or for a tool has no end by the store's clock, because the wait ends by the machine's clock.
    fn with_store_deadline(&self, wait: &Wait, task: &StepTask) -> Wait {
        let is_run = self.context.correlation_id().is_some();
        let of_person = |pending: Pending<'_>| pending.sent_request().of_person;
        let until = match is_run || wait.pending(task).is_some_and(of_person) {
            true => answer_deadline(wait.until, is_run),
            false => Timestamp::from_micros(i64::MAX),
        };
        Wait {
            until,
            ..wait.clone()
        }
    }

    /// Returns `true` if an answer matches the schema of an `ask` step.
    fn matches_schema(&self, reply: &Reply, task: &StepTask) -> bool {
        match (reply, task) {
            (
                Reply::Answer(Answer::Success(answer)),
                StepTask::Ask {
                    output: Some(schema),
                    ..
                },
            ) => {
                let workflow = self.assembly.workflow();
                workflow.check(Some(schema), answer).is_ok()
            }
            (Reply::Answer(_) | Reply::Approved(_), _) => true,
        }
    }

    /// Returns the answer in a breadcrumb, restricted to the contents that a model may see. Only these contents enter the flow,
    /// because every value of a flow can reach a model.
    async fn shown(
        &mut self,
        wait: &Wait,
        found: &Breadcrumb,
        task: &StepTask,
    ) -> Result<Answer, BoxError> {
        let store = &*self.assembly.store;
        let shown = match self.context.shown(found, store).await {
            Ok(shown) => shown,
            Err(withheld @ ContextError::Withheld { .. }) => {
                return Ok(wait.withheld(Some(&withheld), task));
            }
            Err(error) => return Err(error.into()),
        };
        Ok(match wait.reply(found, &shown, task) {
            Some(Reply::Answer(answer)) => answer,
            Some(Reply::Approved(_)) | None => wait.withheld(None, task),
        })
    }

    /// Returns the outcome of a step from the answer for which it waited. The whole result of a tool of another service is checked like the
    /// result of a local tool.
    fn checked(&self, task: &StepTask, full_answer: &Answer, shown: Answer) -> StepOutcome {
        let (answer, safety) = match tool_of(task) {
            Some(tool) => {
                let answer = self.assembly.tools.check_answer(tool, full_answer, shown);
                let has_failed = matches!(full_answer, Answer::Error { .. });
                let safety = self.assembly.safety(tool).filter(|_| has_failed);
                (answer, safety)
            }
            None => (shown, None),
        };
        match answer {
            Answer::Success(result) => StepOutcome::Succeeded(result),
            answer @ Answer::Error { .. } => of_error(answer, safety),
        }
    }

    /// Queues the step of a suspended agent if an awaited breadcrumb has arrived or the wait has expired. The agent itself reads the
    /// breadcrumbs.
    async fn wake_agent(&mut self, path: &StepPath) -> Result<bool, BoxError> {
        let Some(wake) = self.waiting_agents.get(path) else {
            return Ok(false);
        };
        let since = wake.since.unwrap_or(self.context.trigger().updated_at);
        let own = self
            .checkpoints
            .get(path)
            .and_then(|checkpoint| checkpoint.until);
        let mut untils = wake.until.into_iter().chain(own);
        let mut is_woken = untils.any(|until| until <= self.context.now());
        for selector in wake.selectors.clone() {
            is_woken |= !self.newer(selector, since, true).await?.is_empty();
        }
        if is_woken {
            self.waiting_agents.remove(path);
            self.queue.push_back(path.clone());
        }
        Ok(is_woken)
    }

    /// Returns the breadcrumbs that match `selector` and were updated at or after `since`, oldest first. With `strictly`, only breadcrumbs
    /// updated after `since`.
    async fn newer(
        &mut self,
        selector: Selector,
        since: Timestamp,
        strictly: bool,
    ) -> Result<Vec<Arc<Breadcrumb>>, BoxError> {
        let mut found: Vec<Arc<Breadcrumb>> = Vec::new();
        let mut pages = PagedSearch::new(&*self.assembly.store, selector);
        while let Some(page) = pages.next().await? {
            let oldest = page.last().map(|oldest| oldest.updated_at);
            let is_new = |found: &Arc<Breadcrumb>| match strictly {
                true => found.updated_at > since,
                false => found.updated_at >= since,
            };
            found.extend(page.into_iter().filter(is_new));
            if oldest.is_none_or(|oldest| oldest < since) {
                break;
            }
        }
        found.reverse();
        let newest = found.last().map(|newest| newest.updated_at);
        self.poll_progress.since = self
            .poll_progress
            .since
            .max(newest.unwrap_or(self.poll_progress.since));
        Ok(found)
    }

    /// Returns the wait and the task of each step in flight that waits for a breadcrumb.
    fn waits(&self) -> impl Iterator<Item = (&Wait, &StepTask)> {
        self.checkpoints.iter().filter_map(|(path, checkpoint)| {
            let ready = self.ready.get(path)?;
            Some((checkpoint.wait.as_ref()?, &ready.task))
        })
    }

    /// Returns the times at which the waits of steps and agents expire.
    fn ends(&self) -> impl Iterator<Item = Timestamp> {
        let agents = self.waiting_agents.iter().flat_map(|(path, wake)| {
            let own = self
                .checkpoints
                .get(path)
                .and_then(|checkpoint| checkpoint.until);
            wake.until.into_iter().chain(own)
        });
        self.waits().map(|(wait, _)| wait.until).chain(agents)
    }

    /// Returns the condition that wakes the flow run: a breadcrumb for one of its waits, a control order (cancel, pause or
    /// resume), or the earliest due time.
    pub(super) fn wake(&self) -> Wake {
        let control = Control::selector(self.context.trigger().id);
        let mut wake = Wake::on(control).since(self.poll_progress.since);
        let selectors = self.waits().filter_map(|(wait, task)| wait.selector(task));
        wake.selectors.extend(selectors);
        let of_agents = self
            .waiting_agents
            .values()
            .flat_map(|agent| &agent.selectors);
        wake.selectors.extend(of_agents.cloned());
        let due_times = self
            .queue
            .iter()
            .filter(|path| !self.is_blocked_by_pause(path));
        let due_times = due_times.filter_map(|path| self.checkpoints.get(path)?.due);
        wake.until = self.ends().chain(due_times).min();
        wake
    }
}
