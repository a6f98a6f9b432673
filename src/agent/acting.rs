//! What an agent ends with: examined before the run is over, and written if it is an action.

use super::AgentExecutor;
use super::action::{Action, Permitted};
use crate::error::BoxError;
use crate::executor::Response;
use crate::model::{Breadcrumb, BreadcrumbId};
use crate::store::StoreError;
use serde_json::Value;
use std::sync::Arc;

impl AgentExecutor {
    /// What an agent ends with, as the guardrails let it pass, and what is wrong with it, if so.
    ///
    /// # Errors
    /// [`Denied`]; what the store says of a breadcrumb that the answer wants to change.
    pub(super) async fn examine(&self, text: String) -> Result<(String, Option<String>), BoxError> {
        let kept = match self.guardrails.is_empty() {
            true => String::new(),
            false => text.clone(),
        };
        let text = match self.guardrails.output(text).await {
            Ok(text) => text,
            Err(denied) if denied.try_again => return Ok((kept, Some(denied.reason))),
            Err(denied) => return Err(denied.marked()),
        };
        if let Some(output) = &self.output {
            let objection = output.read(&text).err();
            return Ok((text, objection));
        }
        let objection = self.permitted(&text).await?.err();
        Ok((text, objection))
    }

    /// What an answer may write, if it is an action; why it may not, for the model.
    pub(super) async fn permitted(
        &self,
        text: &str,
    ) -> Result<Result<Option<Permitted>, String>, BoxError> {
        let Some(capabilities) = &self.definition.capabilities else {
            return Ok(Ok(None));
        };
        let action = match Action::read(text) {
            Ok(Some(action)) => action,
            Ok(None) => return Ok(Ok(None)),
            Err(problem) => return Ok(Err(problem)),
        };
        let own = match action.target() {
            Some(id) => self.own(id).await?,
            None => None,
        };
        let permitted = action.permit(capabilities, &self.definition.responds_with, own.as_deref());
        Ok(permitted.map(Some).map_err(|refused| refused.to_string()))
    }

    /// A breadcrumb, if this agent wrote it.
    async fn own(&self, id: BreadcrumbId) -> Result<Option<Arc<Breadcrumb>>, StoreError> {
        let found = match self.store.get(id).await {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let creator = found.context.get("creator");
        let creator = creator.and_then(|creator| creator.get("agent_id")?.as_str());
        let agent = Some(&*self.definition.agent_id);
        let is_own = creator == agent
            && found
                .created_by
                .as_deref()
                .is_none_or(|by| Some(by) == agent);
        Ok(is_own.then_some(found))
    }

    /// What an action writes. Whoever asked by a request is answered in any case.
    pub(super) fn acted(
        &self,
        trigger: &Breadcrumb,
        permitted: Permitted,
        context: Value,
    ) -> Response {
        let requests = || request_tags(trigger);
        let response = match permitted {
            Permitted::Nothing => Response::none(),
            Permitted::Create(new) if new.schema_name.as_deref() == Some(Self::RESPONSE) => {
                return Response::create(new.tags(requests()));
            }
            Permitted::Create(new) => Response::create(new),
            Permitted::Update { id, version, patch } => {
                Response::none().and_update(id, version, patch)
            }
            Permitted::Delete { id, .. } => Response::none().and_delete(id),
        };
        let may_answer = self
            .definition
            .responds_with
            .iter()
            .any(|schema| schema == Self::RESPONSE);
        if requests().next().is_none() || !may_answer {
            return response;
        }
        response.and_create(Self::answer(trigger, context))
    }
}

/// The tags of a trigger that name a request, which whoever answers it carries too.
pub(super) fn request_tags(trigger: &Breadcrumb) -> impl Iterator<Item = String> {
    let requests = trigger
        .tags
        .iter()
        .filter(|tag| tag.starts_with("request:"));
    requests.take(Breadcrumb::MAX_TAGS - 65).cloned()
}
