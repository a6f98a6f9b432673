//! Earlier turns of a chat session, as messages for an agent's model.

use super::{AgentExecutor, ChatMessage};
use crate::error::BoxError;
use crate::executor::{
    CHAT_MESSAGE, ContextError, ExecutionContext, is_turn_of, turn_tag, words_of,
};
use crate::model::{Breadcrumb, BreadcrumbId, Json, SESSION_TAG, Selector};
use crate::request::agents;
use crate::store::{Query, StoreError, WrittenBy};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of earlier chat turns in a model request. The newest turns are used.
const MOST_TURNS: usize = 50;

/// Maximum size of the earlier chat turns in a model request, in bytes of text.
const MOST_BYTES: usize = 64 << 10;

/// Maximum number of a chat session's messages that are searched for earlier turns.
const MOST_MESSAGES: usize = 200;

impl AgentExecutor {
    /// Returns the earlier turns of the trigger's chat session. A turn is a user message and the agent's answer to this message. Returns
    /// no turns if the trigger is not a message of a session with this agent.
    ///
    /// Failed turns are omitted. The store's records decide who wrote a message or an answer, so a store without such records has no
    /// earlier turns.
    pub(super) async fn history(
        &self,
        context: &ExecutionContext,
    ) -> Result<Vec<ChatMessage>, BoxError> {
        let trigger = context.trigger();
        let agent = &*self.definition.agent_id;
        let mut tags = trigger.tags.iter();
        let session = tags.find(|tag| tag.starts_with(SESSION_TAG));
        let Some(session) = session.filter(|_| is_turn_of(agent, &trigger.tags)) else {
            return Ok(Vec::new());
        };
        let messages = Selector::schema(CHAT_MESSAGE).all_tags([session.clone(), turn_tag(agent)]);
        let mut query = Query::new(messages).limit(MOST_TURNS);
        query.before = Some(trigger.order_key());
        let mut turns = Vec::new();
        for _ in 0..MOST_MESSAGES / MOST_TURNS {
            let messages = self.store.search(&query).await?;
            query.before = messages.last().map(|last| last.order_key());
            let is_last = messages.len() < MOST_TURNS;
            let messages = self.written(messages, &WrittenBy::Outside).await?;
            let answers = self.answers(session, &messages).await?;
            turns.extend(messages.into_iter().filter_map(|message| {
                let answer = answers.get(&message.id)?;
                Some((message, Arc::clone(answer)))
            }));
            if is_last || turns.len() >= MOST_TURNS {
                break;
            }
        }
        turns.truncate(MOST_TURNS);
        self.turns(context, &turns).await
    }

    /// Returns the successful answers of this agent to messages of a chat session.
    async fn answers(
        &self,
        session: &str,
        messages: &[Arc<Breadcrumb>],
    ) -> Result<HashMap<BreadcrumbId, Arc<Breadcrumb>>, BoxError> {
        let agent = &*self.definition.agent_id;
        let mut answers = HashMap::new();
        if messages.is_empty() {
            return Ok(answers);
        }
        let ids: Vec<String> = messages.iter().map(|one| one.id.to_string()).collect();
        let found = Selector::schema(Self::RESPONSE)
            .all_tags([session.to_owned()])
            .matching("$.creator.trigger_id", "in", json!(ids));
        // A message can have answers of other agents in addition to the answer of this agent.
        let found = Query::new(found).limit(4 * MOST_TURNS);
        let found = self.store.search(&found).await?;
        let by = WrittenBy::Executor(agent.into());
        for answer in self.written(found, &by).await? {
            if let Some(message) = answered(&answer, agent) {
                answers.entry(message).or_insert(answer);
            }
        }
        Ok(answers)
    }

    /// Returns the messages of earlier chat turns for the model, oldest first. `found` has pairs of a message and its answer, newest first.
    async fn turns(
        &self,
        context: &ExecutionContext,
        found: &[(Arc<Breadcrumb>, Arc<Breadcrumb>)],
    ) -> Result<Vec<ChatMessage>, BoxError> {
        let is_data = self
            .definition
            .trust
            .untrusted
            .iter()
            .any(|schema| schema == CHAT_MESSAGE);
        let (mut turns, mut bytes) = (Vec::new(), 0);
        for (message, answer) in found {
            let (Some(said), Some(answered)) = (
                self.seen(context, message).await?,
                self.seen(context, answer).await?,
            ) else {
                continue;
            };
            let answered = agents::answer_text(&answered);
            let said = match words_of(&said) {
                Some(words) if !is_data => ChatMessage::user(words),
                Some(_) | None => ChatMessage::data(said),
            };
            bytes += message.context.size() + answered.len();
            if bytes > MOST_BYTES {
                break;
            }
            // The list is reversed below, so the answer precedes the message here.
            turns.extend([ChatMessage::assistant(answered), said]);
        }
        turns.reverse();
        Ok(turns)
    }

    /// Returns the part of a breadcrumb that the model may see, or `None` if its hints are invalid.
    async fn seen(
        &self,
        context: &ExecutionContext,
        found: &Breadcrumb,
    ) -> Result<Option<Json>, ContextError> {
        match context.shown(found, &self.store).await {
            Ok(shown) => Ok(Some(shown)),
            Err(ContextError::Withheld { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Filters the breadcrumbs: returns only those whose current version was written by `by`, according to the store's records.
    async fn written(
        &self,
        mut found: Vec<Arc<Breadcrumb>>,
        by: &WrittenBy,
    ) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        let records = self.store.capabilities().lineage;
        let Some(ledger) = self.store.ledger().filter(|_| records) else {
            return Ok(Vec::new());
        };
        let versions: Vec<_> = found.iter().map(|one| (one.id, one.version)).collect();
        let mut writers = ledger.written_by(&versions).await?.into_iter();
        found.retain(|_| writers.next().as_ref() == Some(by));
        Ok(found)
    }
}

/// Returns the ID of the user message that an agent's successful answer belongs to.
fn answered(answer: &Breadcrumb, agent: &str) -> Option<BreadcrumbId> {
    let creator = answer.context.get("creator")?;
    let is_own = creator.get("id").and_then(Value::as_str) == Some(agent);
    let has_failed = answer.context.text("status") == Some("error");
    let trigger = creator.get("trigger_id")?.as_str()?;
    trigger.parse().ok().filter(|_| is_own && !has_failed)
}
