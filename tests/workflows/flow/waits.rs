//! Answers to waiting flows, and breadcrumbs that are written only once despite lost answers of the store.

use super::*;
use async_trait::async_trait;
use universal_executor::store::{
    Capabilities, Commit, Committed, Operation, Query, Scored, StoreError, StoreId, VectorQuery,
    Write,
};
use universal_executor::{BreadcrumbId, Patch, RunLedger};

/// A store that reacts to a new breadcrumb of a schema before its writer receives the result.
pub(super) struct Meanwhile<F> {
    pub(super) store: MemoryStore,
    pub(super) does: F,
}

/// The reaction of a [`Meanwhile`] store.
pub(super) enum Then {
    Nothing,
    Write(Vec<&'static str>),
    /// The store refuses the write.
    Refuse,
}

impl<F> std::fmt::Debug for Meanwhile<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meanwhile").finish_non_exhaustive()
    }
}

#[async_trait]
impl<F: Fn(&str) -> Then + Send + Sync + 'static> BreadcrumbStore for Meanwhile<F> {
    fn tenant(&self) -> &str {
        self.store.tenant()
    }

    fn identity(&self) -> StoreId {
        self.store.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.store.get(id).await
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        self.store.search(query).await
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        self.store.vector_search(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let written = commit.writes.iter().find_map(|write| match write {
            Write::Create(new) => new.schema_name.clone(),
            _ => None,
        });
        let then = (self.does)(written.as_deref().unwrap_or_default());
        if matches!(then, Then::Refuse) {
            let reason = "nobody may write this".to_owned();
            return Err(StoreError::Forbidden { reason });
        }
        let committed = self.store.commit(commit).await?;
        match then {
            Then::Nothing | Then::Refuse => {}
            Then::Write(schemas) => {
                for schema in schemas {
                    let answer = json!({"answer": schema});
                    let answer = NewBreadcrumb::new(schema).context(answer);
                    self.store.create(answer).await?;
                }
            }
        }
        Ok(committed)
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        self.store.ledger()
    }
}

/// Returns the result of a run over these steps, or `None` if it waits. The store answers `ping.v1` at once with `done.v1` and `pong.v1`.
async fn comes_to(steps: Value) -> Option<Value> {
    let store = MemoryStore::default();
    let old = NewBreadcrumb::new("pong.v1").context(json!({"answer": "of before"}));
    store.create(old).await.unwrap();
    let answering = Meanwhile {
        store: store.clone(),
        does: |schema: &str| match schema {
            "ping.v1" => Then::Write(vec!["done.v1", "pong.v1"]),
            _ => Then::Nothing,
        },
    };
    let (slow, _) = tool("slow", |_, _| Ok(json!("done")));
    let services = Services::new().tools(registry([slow]));
    let definition = flow(&json!({"tools": {"slow": {}}}), steps);
    let executor = executor(&definition, &services, Arc::new(answering));
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(json!({"workflow": ID}));
    let request = store.create(request).await.unwrap();

    let outcome = executor.process_event(&Event::created(&request)).await;
    let outcome = outcome.unwrap();
    if matches!(outcome, Outcome::Suspended { .. }) {
        return None;
    }
    let result = store.latest(RESULT).await.unwrap();
    let result = result.unwrap().context.clone().into_value();
    assert_eq!(result["status"], "success", "{result}");
    Some(result["output"].clone())
}

fn emit(schema: &str) -> Value {
    json!({"emit": {"schema_name": schema}})
}

fn wait(schema: &str) -> Value {
    json!({"wait_for": {"schema_name": schema}})
}

#[tokio::test]
async fn an_immediate_answer_to_an_emitted_breadcrumb_is_found_by_a_later_wait() {
    let pong = json!({"answer": "pong.v1"});
    let (ping, wait_pong) = (emit("ping.v1"), wait("pong.v1"));
    for steps in [
        json!([ping, wait_pong]),
        json!([ping, emit("note.v1"), wait_pong]),
        json!([ping, {"set": {"a": 1}}, {"tool": "slow"}, wait_pong]),
        // The waits are not in the order of the answers.
        json!([ping, wait("done.v1"), wait_pong]),
        json!([ping, wait_pong, wait("done.v1"), {"return": {"answer": "pong.v1"}}]),
        json!([{"parallel": [{"steps": [ping]}, {"steps": [emit("note.v1")]}]}, wait_pong]),
        json!([{"loop": [ping, wait_pong], "max": 3}]),
        json!([{"try": [ping], "on_failure": [{"fail": "no"}]}, {"if": {"path": "input", "op": "exists"}, "then": [wait_pong]}]),
    ] {
        assert_eq!(
            comes_to(steps.clone()).await.as_ref(),
            Some(&pong),
            "{steps}"
        );
    }
}

#[tokio::test]
async fn a_breadcrumb_answers_one_step_of_a_sequence_and_the_flows_own_write_answers_none() {
    let (ping, wait_pong) = (emit("ping.v1"), wait("pong.v1"));
    for steps in [
        json!([wait_pong]),
        json!([ping, wait_pong, wait_pong]),
        json!([ping, {"parallel": [{"steps": [wait_pong]}]}, wait_pong]),
        json!([ping, {"loop": [wait_pong], "max": 2}]),
        json!([emit("pong.v1"), wait_pong]),
        json!([emit("pong.v1"), emit("note.v1"), {"loop": [wait_pong], "max": 1}]),
    ] {
        assert_eq!(comes_to(steps.clone()).await, None, "{steps}");
    }
}

#[tokio::test]
async fn steps_beside_one_another_are_all_answered_by_the_same_breadcrumb() {
    let (ping, wait_pong) = (emit("ping.v1"), wait("pong.v1"));
    for steps in [
        json!([ping, {"parallel": [{"steps": [wait_pong]}, {"steps": [wait_pong]}]}]),
        json!([ping, {"for_each": [1, 2], "at_once": 1, "steps": [wait_pong]}]),
        // One of the waiting steps may be in the branch that writes `ping.v1`.
        json!([{"parallel": [{"steps": [wait_pong]}, {"steps": [ping, wait_pong]}]}]),
    ] {
        let output = comes_to(steps.clone()).await;
        let pong = json!({"answer": "pong.v1"});
        assert_eq!(output, Some(json!([pong, pong])), "{steps}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_breadcrumb_created_between_a_crash_and_the_next_attempt_is_found() {
    use std::sync::atomic::AtomicBool;
    let store = MemoryStore::default();
    let fails = Arc::new(AtomicBool::new(true));
    let (failing, saves) = (Arc::clone(&fails), AtomicUsize::new(0));
    // The third save would record that the flow waits for the breadcrumb.
    let faulty = Faulty::new(store.clone(), move |operation, moment| {
        let is_save = operation == Operation::Save && moment == Moment::Before;
        match is_save && saves.fetch_add(1, Ordering::SeqCst) > 1 && failing.load(Ordering::SeqCst)
        {
            true => Fault::Fail,
            false => Fault::None,
        }
    });
    let steps = json!([emit("pong.v1"), emit("note.v1"), wait("pong.v1")]);
    let executor = executor(&flow(&json!({}), steps), &Services::new(), Arc::new(faulty));
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(json!({"workflow": ID}));
    let request = store.create(request).await.unwrap();
    let event = Event::created(&request);

    executor.process_event(&event).await.unwrap_err();
    assert!(store.latest("note.v1").await.unwrap().is_some());
    store
        .create(NewBreadcrumb::new("pong.v1").context(json!({"n": 1})))
        .await
        .unwrap();
    fails.store(false, Ordering::SeqCst);
    tokio::time::advance(120 * SECOND).await;
    // An attempt that makes progress yields to another one.
    executor.process_event(&event).await.unwrap();
    executor.process_event(&event).await.unwrap();

    let result = store.latest(RESULT).await.unwrap().unwrap();
    assert_eq!(result.context["output"], json!({"n": 1}));
}

#[tokio::test]
async fn a_consumed_breadcrumb_answers_no_step_after_a_restart() {
    let world = World::new(
        &flow(&json!({}), json!([wait("pong.v1"), wait("pong.v1")])),
        ToolRegistry::default(),
        no_model(),
    );
    let pong = |number: u32| NewBreadcrumb::new("pong.v1").context(json!({"n": number}));
    world.request(json!({})).await;

    world.store.create(pong(1)).await.unwrap();
    world.works_until("pong.v1", 1).await;
    let results = world.store.latest(RESULT).await.unwrap();
    assert_eq!(results, None);
    world.store.create(pong(2)).await.unwrap();
    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["output"], json!({"n": 2}));
}

#[tokio::test]
async fn a_step_that_emits_in_a_loop_writes_each_time() {
    let steps = json!([{"loop": [emit("note.v1")], "max": 3}]);
    let world = World::new(
        &flow(&json!({}), steps),
        ToolRegistry::default(),
        no_model(),
    );

    world.result_of(json!({})).await;

    assert_eq!(world.store.recent("note.v1", 10).await.unwrap().len(), 3);
}

fn tagged(tag: &str) -> NewBreadcrumb {
    NewBreadcrumb::new("pong.v1")
        .tag(tag)
        .context(json!({"of": tag}))
}

fn wait_tagged(tag: &str) -> Value {
    json!({"wait_for": {"schema_name": "pong.v1", "all_tags": [tag]}})
}

#[tokio::test]
async fn answers_of_one_schema_are_found_in_any_order() {
    let all = json!([{"id": "a", "wait_for": {"schema_name": "pong.v1", "all_tags": ["a"]}},
        {"emit": {"schema_name": "pong.v1", "tags": ["own"]}},
        {"id": "b", "wait_for": {"schema_name": "pong.v1", "all_tags": ["b"]}},
        {"return": ["${a.of}", "${b.of}"]}]);
    for order in [["a", "b"], ["b", "a"]] {
        let world = World::new(
            &flow(&json!({}), all.clone()),
            ToolRegistry::default(),
            no_model(),
        );
        let request = world.request(json!({})).await;
        for tag in order {
            world.store.create(tagged(tag)).await.unwrap();
        }

        let event = Event::created(&request);
        let outcome = world.executor.process_event(&event).await;

        assert!(
            matches!(outcome, Ok(Outcome::Responded { .. })),
            "{order:?} {outcome:?}"
        );
        assert_eq!(world.result().await["output"], json!(["a", "b"]));
    }
}

#[tokio::test]
async fn a_consumed_breadcrumb_hides_no_older_one_from_a_less_specific_wait() {
    let steps = json!([wait_tagged("a"), wait("pong.v1")]);
    let world = World::new(
        &flow(&json!({}), steps),
        ToolRegistry::default(),
        no_model(),
    );
    let request = world.request(json!({})).await;
    for tag in ["b", "a"] {
        world.store.create(tagged(tag)).await.unwrap();
    }

    let event = Event::created(&request);
    let outcome = world.executor.process_event(&event).await;

    assert!(
        matches!(outcome, Ok(Outcome::Responded { .. })),
        "{outcome:?}"
    );
    assert_eq!(world.result().await["output"], json!({"of": "b"}));
}

#[tokio::test]
async fn an_earlier_breadcrumb_is_not_an_answer_and_an_answer_counts_once() {
    let question = json!({"emit": {"schema_name": "pong.v1", "tags": ["a"]}});
    for steps in [
        json!([question, wait_tagged("a")]),
        json!([wait_tagged("a"), wait_tagged("a")]),
        json!([wait("pong.v1"), wait_tagged("a")]),
    ] {
        let world = World::new(
            &flow(&json!({}), steps.clone()),
            ToolRegistry::default(),
            no_model(),
        );
        let request = world.request(json!({})).await;
        world.store.create(tagged("a")).await.unwrap();

        let event = Event::created(&request);
        let outcome = world.executor.process_event(&event).await;

        assert!(
            matches!(outcome, Ok(Outcome::Suspended { .. })),
            "{steps} {outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_consumed_breadcrumb_answers_another_step_after_it_is_updated() {
    let steps = json!([wait_tagged("a"), wait_tagged("a")]);
    let world = World::new(
        &flow(&json!({}), steps),
        ToolRegistry::default(),
        no_model(),
    );
    let request = world.request(json!({})).await;
    let pong = world.store.create(tagged("a")).await.unwrap();
    let event = Event::created(&request);
    let outcome = world.executor.process_event(&event).await;
    assert!(matches!(outcome, Ok(Outcome::Suspended { .. })));

    let patch = Patch::default().context(json!({"of": "later"}));
    let changed = world.store.update(pong.id, pong.version, patch).await;
    changed.unwrap();
    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["output"], json!({"of": "later"}));
}

#[tokio::test]
async fn an_earlier_breadcrumb_is_not_an_answer_after_the_emitted_one_is_updated() {
    let question = json!({"emit": {"schema_name": "pong.v1", "context": {"of": "flow"}}});
    let steps = json!([question, wait("pong.v1"), emit("note.v1"), wait("pong.v1")]);
    let world = World::new(
        &flow(&json!({}), steps),
        ToolRegistry::default(),
        no_model(),
    );
    let request = world.request(json!({})).await;
    let before = world.store.create(tagged("before")).await.unwrap();
    let event = Event::created(&request);
    let outcome = world.executor.process_event(&event).await;
    assert!(matches!(outcome, Ok(Outcome::Suspended { .. })));

    let question = world.store.latest("pong.v1").await.unwrap().unwrap();
    assert_ne!(question.id, before.id);
    let patch = Patch::default().context(json!({"of": "changed"}));
    let changed = world.store.update(question.id, question.version, patch);
    changed.await.unwrap();
    world.works_until("note.v1", 1).await;

    let result = world.store.latest(RESULT).await.unwrap();
    assert_eq!(result, None);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_breadcrumb_with_the_tag_of_a_step_does_not_replace_the_emitted_one() {
    let store = MemoryStore::default();
    let commits = AtomicUsize::new(0);
    // The first commit saves the definition. The second commit emits the note, but its answer is lost, so the test can read the tag.
    let losing = Faulty::new(store.clone(), move |operation, moment| {
        let is_commit = operation == Operation::Commit && moment == Moment::After;
        match is_commit && commits.fetch_add(1, Ordering::SeqCst) == 1 {
            true => Fault::Fail,
            false => Fault::None,
        }
    });
    let steps = json!([{"emit": {"schema_name": "note.v1", "context": {"by": "flow"}}}]);
    let executor = executor(&flow(&json!({}), steps), &Services::new(), Arc::new(losing));
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(json!({"workflow": ID}));
    let request = store.create(request).await.unwrap();
    let event = Event::created(&request);

    executor.process_event(&event).await.unwrap_err();
    let note = store.latest("note.v1").await.unwrap().unwrap();
    let tag = note.tags.iter().find(|tag| tag.starts_with("step:"));
    let forged = NewBreadcrumb::new("note.v1")
        .tag(tag.unwrap().clone())
        .created_by("mallory");
    store.delete(note.id).await.unwrap();
    store
        .create(forged.context(json!({"by": "mallory"})))
        .await
        .unwrap();
    goes_on(&executor, &event).await.unwrap();

    let notes = store.recent("note.v1", 10).await.unwrap();
    let mut by: Vec<_> = notes
        .iter()
        .map(|note| note.context["by"].clone())
        .collect();
    by.sort_by_key(Value::to_string);
    assert_eq!(by, ["flow", "mallory"]);
}
