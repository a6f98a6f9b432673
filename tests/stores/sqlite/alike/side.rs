//! One of the two stores, with results in a form that does not depend on the store.

use super::step::{Content, End, Named, Step, Version, Which, Written};
use futures::StreamExt as _;
use proptest::prelude::*;
use regex::{Captures, Regex};
use std::fmt::Debug;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use universal_executor::model::Timestamp;
use universal_executor::source::StartAt;
use universal_executor::store::{
    Claim, ClaimId, Claimed, Commit, DeadLetter, ExecutorLimits, FailureClass, Lease, NewRequest,
    NewRun, Query, Requested, RunEnd, RunFilter, RunLedger, RunQuery, RunRef, RunState, StoreError,
    Wake, Write,
};
use universal_executor::{
    BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, Event, EventSource, NewBreadcrumb, Patch,
    Selector,
};

pub(super) struct Side<S> {
    store: S,
    /// The created breadcrumbs in order, each with its last version.
    created: Vec<(BreadcrumbId, u64)>,
    leases: Vec<Lease>,
    claims: Vec<ClaimId>,
    origin: Timestamp,
}

impl<S: BreadcrumbStore + RunLedger> Side<S> {
    /// Creates a side with one breadcrumb, whose creation time is the origin of all times.
    pub(super) async fn new(store: S) -> Self {
        let first = store.create(NewBreadcrumb::new("origin.v1")).await.unwrap();
        Self {
            store,
            created: vec![(first.id, 1)],
            leases: Vec::new(),
            claims: Vec::new(),
            origin: first.updated_at,
        }
    }

    /// Executes a step. Returns the store's result.
    pub(super) async fn run_step(&mut self, step: &Step) -> String {
        match step {
            Step::Commit(writes, end) => self.commit(writes, end.as_ref()).await,
            Step::Get(which) => self.debug_text(self.store.get(self.id(*which)).await),
            Step::Search(random_query) => {
                let query = random_query.query(self.origin, |which| self.id(which));
                self.debug_text(self.store.search(&query).await)
            }
            Step::Pass(_) => String::new(),
            Step::Runs(filter) => self.rows(filter).await,
            Step::Page(query, after) => self.page(query, *after).await,
            Step::Enqueue(runs) => {
                let mut new = Vec::new();
                for (named, at) in runs {
                    let mut run = NewRun::from(self.run(named).await);
                    run.at = at.map(|seconds| self.at(seconds));
                    new.push(run);
                }
                self.debug_text(self.store.enqueue(new).await)
            }
            Step::Claim(named, older) => {
                let older = older.and_then(|which| self.lease(which));
                let claim = self.store.claim(&self.run(named).await, older).await;
                if let Ok(Claim::Granted(Claimed { lease, .. })) = &claim {
                    self.leases.push(lease.clone());
                }
                self.debug_text(claim)
            }
            Step::ClaimNext(n, of) => self.claim_next(*n, of).await,
            Step::Resume(named, with) => {
                let run = self.run(named).await;
                self.debug_text(self.store.resume(&run, self.id(*with)).await)
            }
            Step::Redo(named) => {
                let run = self.run(named).await;
                self.debug_text(self.store.redo(&run).await)
            }
            Step::Cancel(named, adds) => {
                let run = self.run(named).await;
                let cancelled = match adds {
                    true => self.store.enqueue_cancelled(&run).await,
                    false => self.store.cancel(&run).await,
                };
                self.debug_text(cancelled)
            }
            Step::Request(executor, key, content) => self.request(executor, key, content).await,
            Step::Pause(executor, pauses) => self.pause(executor, *pauses).await,
            Step::Heartbeat(_)
            | Step::HeartbeatClaim(_)
            | Step::Retry(..)
            | Step::Release(_)
            | Step::Save(..) => self.with_lease(step).await,
        }
    }

    async fn request(&mut self, executor: &str, key: &str, content: &Content) -> String {
        let request = NewRequest::new(executor, key, self.new_breadcrumb(content));
        let requested = self.store.request(request).await;
        if let Ok(Requested::Created { breadcrumb }) = &requested {
            self.created.push((breadcrumb.id, breadcrumb.version));
        }
        self.debug_text(requested)
    }

    async fn pause(&self, executor: &str, pauses: bool) -> String {
        let changed = match pauses {
            true => self.store.pause_executor(executor).await,
            false => self.store.resume_executor(executor).await,
        };
        self.debug_text(changed) + &self.debug_text(self.store.paused_executors().await)
    }

    async fn claim_next(&mut self, n: usize, of: &[(&'static str, usize)]) -> String {
        let of: Vec<_> = of
            .iter()
            .map(|(executor, free)| ExecutorLimits::new(*executor, *free))
            .collect();
        let id = ClaimId::unique();
        self.claims.push(id);
        let mut claimed = self.store.claim_next(n, &of, id).await;
        for run in claimed.iter_mut().flatten() {
            self.leases.push(run.lease.clone());
            // Not every store returns the trigger with the run.
            run.trigger = None;
        }
        self.debug_text(claimed)
    }

    /// Returns a page, or the next page if `after` is `true` and there is one.
    async fn page(&self, query: &RunQuery, after: bool) -> String {
        let mut page = self.store.runs_page(query).await.unwrap();
        if let Some(next) = page.next.filter(|_| after) {
            let query = query.clone().after(next);
            page = self.store.runs_page(&query).await.unwrap();
        }
        self.plain(&format!("{:?} {}", page.runs, page.next.is_some()))
    }

    async fn with_lease(&self, step: &Step) -> String {
        let told = match step {
            Step::Heartbeat(which) => {
                let leases = which.iter().filter_map(|which| self.lease(*which));
                let lost = self.store.heartbeat(&leases.collect::<Vec<_>>()).await;
                return self.debug_text(lost);
            }
            Step::HeartbeatClaim(_) if self.claims.is_empty() => return String::new(),
            Step::HeartbeatClaim(which) => {
                let filter = RunFilter::of_claim(*which.get(&self.claims));
                let rows = self.store.runs(&filter).await.unwrap();
                let leases: Vec<Lease> = rows.into_iter().filter_map(|row| row.lease).collect();
                let lost = self.store.heartbeat(&leases).await;
                return self.plain(&format!("{leases:?}")) + &self.debug_text(lost);
            }
            Step::Retry(which, at, counts) => match self.lease(*which) {
                Some(lease) => self.store.retry(lease, self.at(*at), *counts, None).await,
                None => return String::new(),
            },
            Step::Release(which) => match self.lease(*which) {
                Some(lease) => self.store.release(lease).await,
                None => return String::new(),
            },
            Step::Save(which, state) => match self.lease(*which) {
                Some(lease) => self.store.save(&lease, state.clone().into()).await,
                None => return String::new(),
            },
            _ => return String::new(),
        };
        self.debug_text(told)
    }

    async fn commit(
        &mut self,
        writes: &[Written],
        end: Option<&(prop::sample::Index, End)>,
    ) -> String {
        let writes = writes.iter().map(|write| self.write(write)).collect();
        let end = end.and_then(|(which, end)| Some((self.lease(*which)?, self.end(end))));
        let committed = self.store.commit(Commit { writes, end }).await;
        for written in committed.iter().flat_map(|committed| &committed.written) {
            match self.created.iter_mut().find(|(id, _)| *id == written.id) {
                Some((_, version)) => *version = written.version,
                None => self.created.push((written.id, written.version)),
            }
        }
        self.debug_text(committed)
    }

    /// Returns all readable state.
    pub(super) async fn readable_state(&self) -> String {
        let all = Query::new(Selector::any()).limit(100);
        let found = self.store.search(&all).await;
        let mut claims = String::new();
        for id in &self.claims {
            claims.push_str(&self.rows(&RunFilter::of_claim(*id)).await);
        }
        format!(
            "{}\n{}\n{claims}",
            self.debug_text(found),
            self.rows(&RunFilter::all()).await
        )
    }

    async fn rows(&self, filter: &RunFilter) -> String {
        let rows = self.store.runs(filter).await.unwrap();
        let how = rows
            .iter()
            .map(|row| (&row.run.event, &row.run.order, row.run.lease));
        self.plain(&format!("{rows:?} {:?}", how.collect::<Vec<_>>()))
    }

    /// Returns all events up to the event of a new breadcrumb.
    pub(super) async fn events(&mut self, source: Box<dyn EventSource>) -> Vec<Event> {
        for (id, _) in &self.created {
            if self.store.delete(*id).await.is_ok() {
                break;
            }
        }
        // The deletion above makes room for this breadcrumb.
        let last = NewBreadcrumb::new("last.v1");
        let last = self.store.create(last).await.unwrap().id;
        self.created.push((last, 1));
        let mut deliveries = source.subscribe(StartAt::Beginning).await.unwrap();
        let mut events = Vec::new();
        while let Some(delivery) = deliveries.next().await {
            let event = delivery.unwrap().event;
            let is_last = event.breadcrumb_id == last;
            events.push(event);
            if is_last {
                break;
            }
        }
        events
    }

    fn write(&self, write: &Written) -> Write {
        match write {
            Written::Create(content) => Write::Create(self.new_breadcrumb(content)),
            Written::Update(which, version, content) => {
                let known = match which {
                    Which::Created(which) => which.get(&self.created).1,
                    Which::Never => 1,
                };
                let version = match version {
                    Version::Current => known,
                    Version::Next => known + 1,
                    Version::Zero => 0,
                    Version::Most => u64::MAX,
                };
                Write::Update {
                    id: self.id(*which),
                    version,
                    patch: self.patch(content),
                }
            }
            Written::Delete(which, by) => Write::Delete {
                id: self.id(*which),
                by: by.map(str::to_owned),
            },
        }
    }

    fn new_breadcrumb(&self, content: &Content) -> NewBreadcrumb {
        let mut new = NewBreadcrumb::default();
        new.schema_name = content.schema.map(str::to_owned);
        new.title = content.title.clone().unwrap_or_default();
        new.tags = content.tags.clone().unwrap_or_default();
        new.context = content.context.clone().unwrap_or_default().into();
        new.llm_hints = content.hints.clone().map(Into::into);
        new.ttl = self.ttl(content);
        new.created_by = content.author.map(str::to_owned);
        new
    }

    fn patch(&self, content: &Content) -> Patch {
        let mut patch = Patch::new();
        patch.schema_name = content.schema.map(str::to_owned);
        patch.title.clone_from(&content.title);
        patch.tags.clone_from(&content.tags);
        patch.context = content.context.clone().map(Into::into);
        patch.llm_hints = content.hints.clone().map(Into::into);
        patch.ttl = self.ttl(content);
        patch.updated_by = content.author.map(str::to_owned);
        patch
    }

    fn ttl(&self, content: &Content) -> Option<Timestamp> {
        content.ttl.map(|seconds| match seconds {
            i64::MIN | i64::MAX => Timestamp::from_micros(seconds),
            _ => self.at(seconds.cast_unsigned()),
        })
    }

    fn end(&self, end: &End) -> RunEnd {
        match end {
            End::Over(RunState::Done) => RunEnd::Done,
            End::Over(RunState::Skipped) => RunEnd::Skipped("gone"),
            End::Over(RunState::Superseded) => RunEnd::Superseded,
            End::Over(_) => RunEnd::Continues,
            End::Failed(tags) => {
                let mut letter = DeadLetter::new(FailureClass::Permanent, "error", 1);
                letter.tags = vec!["t".to_owned(); *tags];
                RunEnd::Failed(letter)
            }
            End::Suspended(on, until, state) => {
                let mut wake = Wake::default();
                wake.selectors
                    .extend(on.iter().map(|random_query| random_query.selector()));
                wake.until = until.map(|seconds| self.at(seconds));
                RunEnd::Suspended {
                    wake,
                    state: state.clone().into(),
                }
            }
        }
    }

    async fn run(&self, named: &Named) -> RunRef {
        let run = RunRef::new(named.executor, self.id(named.trigger), named.version);
        let mut run = run.ordered_by(named.order).lasting(named.lease);
        if named.has_event
            && let Ok(trigger) = self.store.get(run.trigger_id).await
        {
            run.event = Some(Arc::new(Event::updated(&trigger)));
        }
        run
    }

    fn lease(&self, which: prop::sample::Index) -> Option<Lease> {
        (!self.leases.is_empty()).then(|| which.get(&self.leases).clone())
    }

    fn id(&self, which: Which) -> BreadcrumbId {
        match which {
            Which::Created(which) => which.get(&self.created).0,
            Which::Never => BreadcrumbId::NIL,
        }
    }

    fn at(&self, seconds: u64) -> Timestamp {
        self.origin + Duration::from_secs(seconds)
    }

    /// Returns the debug output of a result. For an error, it also contains the message.
    fn debug_text<T: Debug>(&self, answer: Result<T, StoreError>) -> String {
        match answer {
            Ok(answer) => self.plain(&format!("{answer:?}")),
            Err(error) => self.plain(&format!("{error}: {error:?}")),
        }
    }

    /// Replaces IDs by numbers, times by their distance from the origin, and store names by a constant.
    fn plain(&self, text: &str) -> String {
        static PARTS: LazyLock<Regex> = LazyLock::new(|| {
            let (id, time) = (
                "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
                r"-?\d{4,6}-\d\d-\d\dT[\d:.]+Z",
            );
            Regex::new(&format!(
                "{id}|{time}|[0-9a-f]{{64}}|MemoryStore|PostgresStore|SqliteStore"
            ))
            .unwrap()
        });
        let plain = PARTS.replace_all(text, |found: &Captures<'_>| {
            let found = &found[0];
            if let Ok(id) = found.parse::<BreadcrumbId>() {
                let number = self.created.iter().position(|(created, _)| *created == id);
                return number.map_or_else(|| found.to_owned(), |number| format!("#{number}"));
            }
            if let Ok(time) = found.parse::<Timestamp>() {
                let since = time.as_micros().saturating_sub(self.origin.as_micros());
                // The minimum and the maximum time are the same in both stores.
                let is_of_walk = since.unsigned_abs() < 1 << 50;
                return if is_of_walk {
                    format!("{since}us")
                } else {
                    found.to_owned()
                };
            }
            // The key of a run is derived from its trigger's ID.
            if found.len() == 64 { "key" } else { "store" }.to_owned()
        });
        plain.into_owned()
    }

    /// Returns an event without its context.
    pub(super) fn envelope(&self, event: &Event) -> String {
        self.plain(&format!("{:?}", event.envelope()))
    }

    /// Returns the context of an event.
    pub(super) fn context(&self, event: &Event) -> Option<String> {
        Some(self.plain(&event.context.as_ref()?.to_string()))
    }

    /// Returns `true` if the store no longer has the breadcrumb version of an event.
    pub(super) async fn is_past(&self, event: &Event) -> bool {
        let now = self.store.get(event.breadcrumb_id).await;
        now.is_err() || now.is_ok_and(|now| now.version != event.version)
    }
}
