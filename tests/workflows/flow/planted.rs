//! Breadcrumbs that a client plants to imitate the breadcrumbs of a flow.

use super::*;
use sha2::{Digest as _, Sha256};
use std::sync::atomic::AtomicBool;
use universal_executor::Patch;
use universal_executor::store::{Operation, RunRef};
use universal_executor::tool::remote_tool;
use universal_executor::workload::{FlowDefinition, Supervisor, TurnStatus};

/// A run with a step that emits an invoice, on a store that can be unavailable.
struct Emitting {
    store: MemoryStore,
    is_away: Arc<AtomicBool>,
    executor: WorkloadExecutor,
    request: Arc<Breadcrumb>,
}

impl Emitting {
    /// `moment` is the moment at which a commit fails while the store is unavailable.
    async fn new(moment: Moment) -> Self {
        let (store, is_away) = (MemoryStore::default(), Arc::new(AtomicBool::new(true)));
        let away = Arc::clone(&is_away);
        let faulty = Faulty::new(store.clone(), move |operation, now| {
            let fails = operation == Operation::Commit && now == moment;
            match fails && away.load(Ordering::SeqCst) {
                true => Fault::Fail,
                false => Fault::None,
            }
        });
        let invoice = json!({"pay_to": "Bob", "amount": 5});
        let definition = flow(
            &json!({}),
            json!([{"emit": {"schema_name": "invoice.v1", "context": invoice}}, {"return": "sent"}]),
        );
        let executor = executor(&definition, &Services::new(), Arc::new(faulty));
        let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).created_by("ann");
        let request = request.context(json!({"workflow": ID, "input": {}}));
        let request = store.create(request).await.unwrap();
        Self {
            store,
            is_away,
            executor,
            request,
        }
    }

    async fn first_attempt(&self) {
        let outcome = self
            .executor
            .process_event(&Event::created(&self.request))
            .await;
        assert!(outcome.is_err(), "{outcome:?}");
        self.is_away.store(false, Ordering::SeqCst);
    }

    async fn next_attempt(&self) -> Vec<Arc<Breadcrumb>> {
        goes_on(&self.executor, &Event::created(&self.request))
            .await
            .unwrap();
        let result = self.store.latest(RESULT).await.unwrap();
        assert_eq!(result.unwrap().context["output"], "sent");
        self.store.recent("invoice.v1", 5).await.unwrap()
    }

    /// Returns the invoice's tag. Any client that knows the request's ID can compute it.
    fn tag(&self) -> String {
        let Breadcrumb { id, version, .. } = *self.request;
        let run = RunRef::new(ID, id, version).key(self.store.tenant(), 0);
        let mut hash = Sha256::new();
        for part in [format!("{run}/main/0").as_str(), "emit", ""] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        let id: String = hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("step:{id}")
    }
}

#[tokio::test(start_paused = true)]
async fn a_breadcrumb_forged_by_a_client_does_not_replace_an_emitted_one() {
    let emitting = Emitting::new(Moment::Before).await;
    emitting.first_attempt().await;
    let creator = json!({
        "type": "workflow", "id": ID, "workflow": ID, "trigger_id": emitting.request.id,
        "trigger_version": 1,
    });
    let planted = NewBreadcrumb::new("invoice.v1")
        .created_by(ID)
        .tag(emitting.tag())
        .context(json!({"pay_to": "Eve", "amount": 5000, "creator": creator}));
    let planted = emitting.store.create(planted).await.unwrap();

    let invoices = emitting.next_attempt().await;

    let emitted: Vec<_> = invoices
        .iter()
        .filter(|found| found.id != planted.id)
        .collect();
    assert_eq!(emitted.len(), 1, "{invoices:?}");
    assert_eq!(emitted[0].context["pay_to"], "Bob");
    assert!(
        emitted[0].tags.contains(&emitting.tag()),
        "the test must compute the same tag as the step"
    );
}

#[tokio::test(start_paused = true)]
async fn a_breadcrumb_of_a_step_is_emitted_once_also_if_others_changed_it() {
    let emitting = Emitting::new(Moment::After).await;
    emitting.first_attempt().await;
    let invoices = emitting.store.recent("invoice.v1", 5).await.unwrap();
    let paid = Patch::new().context(json!({"paid": true}));
    let sent = &invoices[0];
    emitting.store.update(sent.id, 1, paid).await.unwrap();

    let invoices = emitting.next_attempt().await;

    assert_eq!(invoices.len(), 1, "{invoices:?}");
    assert_eq!(
        (invoices[0].version, &invoices[0].context["paid"]),
        (2, &json!(true))
    );
}

/// Schemas of a run's requests, answers and records.
const OF_THE_RUN: [&str; 7] = [
    "tool.request.v1",
    "human.request.v1",
    "agent.request.v1",
    "agent.response.v1",
    "workflow.result.v1",
    "workflow.progress.v1",
    "workload.result.v1",
];

#[tokio::test]
async fn a_tool_of_a_step_writes_no_requests_and_answers_in_the_name_of_the_workflow() {
    for schema in OF_THE_RUN.into_iter().chain(["note.v1", "other.v1"]) {
        let note = json_tool("note", "Writes.", json!({}), |input, context| async move {
            let schema = input["schema"].as_str().unwrap_or_default();
            let note = NewBreadcrumb::new(schema).context(json!({"tool": "pay"}));
            Ok(match context.store().create(note).await {
                Ok(_) => json!("written"),
                Err(error) => json!(error.to_string()),
            })
        });
        let pay = remote_tool("pay", "Pays.", json!({"type": "object"}));
        let pay = pay.needs_approval(Approval::always());
        let tools = registry([note]).with(pay).unwrap();
        let more = json!({
            "tools": {"note": {}, "pay": {}}, "agents": {"helper": {"instruction": "Help."}},
        });
        let never = json!({"path": "input.never", "op": "eq", "value": true});
        let definition = flow(
            &more,
            json!([
                {"id": "noted", "tool": "note", "input": "${input}"},
                {"if": never, "then": [
                    {"tool": "pay", "input": {}}, {"agent": "helper", "input": "hi"},
                    {"emit": {"schema_name": "note.v1"}},
                ]},
                {"return": "${noted}"},
            ]),
        );
        let world = World::new(&definition, tools, no_model());

        let result = world.result_of(json!({"schema": schema})).await;

        let is_allowed = schema == "note.v1";
        let output = result["output"].as_str().unwrap_or_default();
        assert_eq!(output == "written", is_allowed, "{schema}: {result}");
        let forged = world.store.recent(schema, 5).await.unwrap().into_iter();
        let forged = forged
            .filter(|found| found.context["tool"] == "pay")
            .count();
        assert_eq!(forged, usize::from(is_allowed), "{schema}");
    }
}

#[tokio::test]
async fn a_tool_of_a_supervised_flow_writes_no_requests() {
    let store = MemoryStore::default();
    let note = json_tool("note", "Writes.", json!({}), |_, context| async move {
        let request = NewBreadcrumb::new("tool.request.v1");
        context.store().create(request).await?;
        Ok(json!("written"))
    });
    let services = Services::new().tools(registry([note]));
    let steps = json!([{"tool": "note", "input": {}}]);
    let workflow = Workflow::from_json(&flow(&json!({"tools": {"note": {}}}), steps)).unwrap();
    let definition = FlowDefinition::new("it", workflow).unwrap();
    let supervisor = Supervisor::builder(Arc::new(definition), &services, &store)
        .build()
        .unwrap();

    let outcome = supervisor.send("one", "go").unwrap().outcome().await;

    assert!(
        matches!(outcome.status, TurnStatus::Failed { .. }),
        "{outcome:?}"
    );
    assert!(store.latest("tool.request.v1").await.unwrap().is_none());
}
