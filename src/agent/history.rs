//! Earlier turns of a chat session, as messages for an agent's model.

use super::{AgentExecutor, ChatMessage};
use crate::error::BoxError;
use crate::executor::{
    CHAT_MESSAGE, ContextError, ExecutionContext, is_turn_of, turn_tag, user_text_of,
};
use crate::model::{Breadcrumb, BreadcrumbId, Json, SESSION_TAG, Selector};
use crate::request::agents;
use crate::store::{Query, StoreError, WrittenBy};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of earlier chat turns in a model request. The newest turns are used.
const MAX_TURNS: usize = 50;

/// Maximum size of the earlier chat turns in a model request, in bytes of text.
const MAX_BYTES: usize = 64 << 10;

/// Maximum number of a chat session's messages that are searched for earlier turns.
const MAX_MESSAGES: usize = 200;

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
        let mut query = Query::new(messages).limit(MAX_TURNS);
        query.before = Some(trigger.order_key());
        let mut turns = Vec::new();
        for _ in 0..MAX_MESSAGES / MAX_TURNS {
            let messages = self.store.search(&query).await?;
            query.before = messages.last().map(|last| last.order_key());
            let is_last_page = messages.len() < MAX_TURNS;
            let messages = self
                .retain_written_by(messages, &WrittenBy::Outside)
                .await?;
            let answers = self.find_answers(session, &messages).await?;
            turns.extend(messages.into_iter().filter_map(|message| {
                let answer = answers.get(&message.id)?;
                Some((message, Arc::clone(answer)))
            }));
            if is_last_page || turns.len() >= MAX_TURNS {
                break;
            }
        }
        turns.truncate(MAX_TURNS);
        self.turn_messages(context, &turns).await
    }

    /// Returns the successful answers of this agent to messages of a chat session.
    async fn find_answers(
        &self,
        session: &str,
        messages: &[Arc<Breadcrumb>],
    ) -> Result<HashMap<BreadcrumbId, Arc<Breadcrumb>>, BoxError> {
        let agent = &*self.definition.agent_id;
        let mut answers = HashMap::new();
        if messages.is_empty() {
            return Ok(answers);
        }
        let ids: Vec<String> = messages
            .iter()
            .map(|message| message.id.to_string())
            .collect();
        let selector = Selector::schema(Self::RESPONSE)
            .all_tags([session.to_owned()])
            .matching("$.creator.trigger_id", "in", json!(ids));
        // A message can have answers of other agents in addition to the answer of this agent.
        let query = Query::new(selector).limit(4 * MAX_TURNS);
        let candidates = self.store.search(&query).await?;
        let by = WrittenBy::Executor(agent.into());
        for answer in self.retain_written_by(candidates, &by).await? {
            if let Some(message) = answered_message_id(&answer, agent) {
                answers.entry(message).or_insert(answer);
            }
        }
        Ok(answers)
    }

    /// Returns the messages of earlier chat turns for the model, oldest first. `turns` has pairs of a message and its answer, newest first.
    async fn turn_messages(
        &self,
        context: &ExecutionContext,
        turns: &[(Arc<Breadcrumb>, Arc<Breadcrumb>)],
    ) -> Result<Vec<ChatMessage>, BoxError> {
        let is_data = self
            .definition
            .trust
            .untrusted
            .iter()
            .any(|schema| schema == CHAT_MESSAGE);
        let (mut messages, mut bytes) = (Vec::new(), 0);
        for (message, answer) in turns {
            let (Some(message_context), Some(answer_context)) = (
                self.visible_context(context, message).await?,
                self.visible_context(context, answer).await?,
            ) else {
                continue;
            };
            let answer_text = agents::answer_text(&answer_context);
            let user_message = match user_text_of(&message_context) {
                Some(words) if !is_data => ChatMessage::user(words),
                Some(_) | None => ChatMessage::data(message_context),
            };
            bytes += message.context.size() + answer_text.len();
            if bytes > MAX_BYTES {
                break;
            }
            // The list is reversed below, so the answer precedes the message here.
            messages.extend([ChatMessage::assistant(answer_text), user_message]);
        }
        messages.reverse();
        Ok(messages)
    }

    /// Returns the part of a breadcrumb that the model may see, or `None` if the breadcrumb's `llm_hints` are invalid.
    async fn visible_context(
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

    /// Removes the breadcrumbs whose current version was not written by `by`, which is either one executor or any writer outside
    /// of runs. The writer comes from the store's records. Without such records, the result is empty.
    async fn retain_written_by(
        &self,
        mut breadcrumbs: Vec<Arc<Breadcrumb>>,
        by: &WrittenBy,
    ) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        let records = self.store.capabilities().lineage;
        let Some(ledger) = self.store.ledger().filter(|_| records) else {
            return Ok(Vec::new());
        };
        let versions: Vec<_> = breadcrumbs
            .iter()
            .map(|breadcrumb| (breadcrumb.id, breadcrumb.version))
            .collect();
        let mut writers = ledger.written_by(&versions).await?.into_iter();
        breadcrumbs.retain(|_| writers.next().as_ref() == Some(by));
        Ok(breadcrumbs)
    }
}

/// Returns the ID of the user message that an agent's successful answer belongs to.
fn answered_message_id(answer: &Breadcrumb, agent: &str) -> Option<BreadcrumbId> {
    let creator = answer.context.get("creator")?;
    let is_own = creator.get("id").and_then(Value::as_str) == Some(agent);
    let has_failed = answer.context.text("status") == Some("error");
    let trigger = creator.get("trigger_id")?.as_str()?;
    trigger.parse().ok().filter(|_| is_own && !has_failed)
}
