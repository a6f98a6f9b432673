//! Approval of payments by a person, and changes of some questions by an attacker before the approval.

use crate::BoxError;
use crate::backend::Store;
use crate::executors::Order;
use crate::oracle::Job;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::sleep;
use universal_executor::store::Query;
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt as _, NewBreadcrumb, Patch, Selector,
};

/// Maximum number of questions per read. Fewer questions are open at a time.
const MAX_QUESTIONS: usize = 1_000;

/// Approves every payment while this future is polled. Before the approval of a [`Job::Forged`] payment, writes another amount
/// into the question that the person sees.
pub async fn approve(store: &Store) {
    let store = store.handle();
    let mut answered = HashSet::new();
    loop {
        let open = Query::new(Selector::schema("human.request.v1")).limit(MAX_QUESTIONS);
        // While the server is down, the search finds no questions. A failed decision is retried.
        for question in store.search(&open).await.unwrap_or_default() {
            if !answered.contains(&question.id) && decide(&*store, &question).await.is_ok() {
                answered.insert(question.id);
            }
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Answers one question. A repeated call has no further effect, because a decision counts once.
async fn decide(store: &dyn BreadcrumbStore, question: &Breadcrumb) -> Result<(), BoxError> {
    let creator = question.context.get("creator");
    let trigger = creator.and_then(|creator| creator.get("trigger_id")?.as_str());
    let trigger = store
        .get(trigger.ok_or("the question names no trigger")?.parse()?)
        .await?;
    let order: Order = trigger.context.parse()?;
    if order.job == Job::Forged && question.version == 1 {
        let mut shown = question.context.clone().into_value();
        if let Value::Object(fields) = &mut shown {
            fields.insert("arguments".to_owned(), json!({"amount": 1}));
        }
        let patch = Patch::new().context(shown);
        store.update(question.id, question.version, patch).await?;
    }
    let field = |name| question.context.get(name).cloned().unwrap_or_default();
    let id = question.context.text("requestId").unwrap_or_default();
    let approval = NewBreadcrumb::new("human.response.v1")
        .tag(format!("request:{id}"))
        .created_by("ann")
        .context(json!({"request_id": id, "approved": true, "digest": field("digest")}));
    store.create(approval).await?;
    Ok(())
}
