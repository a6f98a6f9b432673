//! Checks of the breadcrumb writes that an agent's model requests, against the agent's definition.

use super::{Action, Draft, Target, is_reserved};
use crate::agent::AgentCapabilities;
use crate::error::excerpt;
use crate::model::{
    Breadcrumb, BreadcrumbId, NewBreadcrumb, Patch, is_definition_schema, is_reserved_schema,
};
use crate::request::agents;

/// A breadcrumb write that an agent's model requested and the agent's definition permits.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::agent) enum PermittedWrite {
    Nothing,
    Create(NewBreadcrumb),
    Update {
        id: BreadcrumbId,
        version: u64,
        patch: Patch,
    },
    /// A permitted request of an agent's model to delete a breadcrumb. `version` is the version of the breadcrumb during the
    /// permission check. The deletion itself does not check the version.
    Delete {
        id: BreadcrumbId,
        version: u64,
    },
}

/// The reason why an agent's definition does not permit a breadcrumb write, as text for the model that requested it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(in crate::agent) enum PermissionError {
    #[error(
        "this agent may not do the requested action, because the agent's definition does not set {capability:?}"
    )]
    MissingCapability { capability: &'static str },
    #[error("this agent may not write {schema:?}; it may write: {allowed}")]
    OtherSchema { schema: String, allowed: String },
    #[error(
        "this agent may not write the reserved schema {schema:?}; answer with another schema, and call tools only with tool calls"
    )]
    Reserved { schema: String },
    #[error(
        "cannot update or delete breadcrumb {id}: the breadcrumb is missing, or another writer wrote its current version"
    )]
    NotOwnBreadcrumb { id: BreadcrumbId },
    #[error(
        "cannot update or delete breadcrumb {id}: the current version is {found}, but the action names version {named}"
    )]
    Stale {
        id: BreadcrumbId,
        found: u64,
        named: u64,
    },
    #[error("an update cannot change the schema of breadcrumb {id}; omit \"schema_name\"")]
    ChangedSchema { id: BreadcrumbId },
}

impl Action {
    /// Returns the breadcrumb write that a model's action requests, or the reason why the agent's definition does not permit the
    /// write. `own` is the current version of the [target](Self::target) if this agent wrote it. The caller must determine the
    /// writer from the ledger and not from the breadcrumb's contents.
    ///
    /// # Errors
    /// [`PermissionError`] if the agent's definition does not permit the action.
    pub(in crate::agent) fn permit(
        self,
        rules: &Rules<'_>,
        own: Option<&Breadcrumb>,
    ) -> Result<PermittedWrite, PermissionError> {
        let capabilities = rules.capabilities;
        match self {
            Self::None => Ok(PermittedWrite::Nothing),
            Self::Create(draft) => {
                rules.require(
                    capabilities.can_create_breadcrumbs,
                    AgentCapabilities::CREATE,
                )?;
                rules.create(draft)
            }
            Self::Update(target, draft) => {
                rules.require(capabilities.can_update_own, AgentCapabilities::UPDATE)?;
                let own = rules.check_target(target, own)?;
                rules.update(own, draft)
            }
            Self::Delete(target) => {
                rules.require(capabilities.can_delete_own, AgentCapabilities::DELETE)?;
                let Breadcrumb { id, version, .. } = *rules.check_target(target, own)?;
                Ok(PermittedWrite::Delete { id, version })
            }
        }
    }
}

/// The limits of an agent's definition on the breadcrumbs that the model's answers may write.
pub(in crate::agent) struct Rules<'r> {
    pub(in crate::agent) capabilities: &'r AgentCapabilities,
    pub(in crate::agent) responds_with: &'r [String],
    /// If `true`, the agent may create breadcrumbs of schemas that its list `responds_with` does not contain. Protected schemas,
    /// such as definitions and requests, and schemas with a prefix in [`CLOSED_PREFIXES`] are excluded: see [`is_open`].
    pub(in crate::agent) creates_any_schema: bool,
}

impl Rules<'_> {
    fn create(&self, draft: Draft) -> Result<PermittedWrite, PermissionError> {
        let schema = draft.schema_name.as_deref();
        let schema = schema.unwrap_or(agents::RESPONSE);
        self.check_schema(schema)?;
        let mut new = NewBreadcrumb::new(schema).title(draft.title.as_deref().unwrap_or(TITLE));
        new = match draft.tags.filter(|tags| !tags.is_empty()) {
            Some(tags) => new.tags(tags),
            None => new.tag(TAG),
        };
        if let Some(context) = draft.context {
            new = new.context(context);
        }
        Ok(PermittedWrite::Create(new))
    }

    fn update(&self, own: &Breadcrumb, draft: Draft) -> Result<PermittedWrite, PermissionError> {
        let Breadcrumb { id, version, .. } = *own;
        if draft.schema_name.is_some() && draft.schema_name != own.schema_name {
            return Err(PermissionError::ChangedSchema { id });
        }
        let mut patch = Patch::new();
        if let Some(title) = draft.title {
            patch = patch.title(title);
        }
        if let Some(tags) = draft.tags {
            // Reserved tags stay unchanged.
            let reserved_tags = own.tags.iter().filter(|tag| is_reserved(tag)).cloned();
            patch = patch.tags(
                tags.into_iter()
                    .chain(reserved_tags)
                    .take(Breadcrumb::MAX_TAGS),
            );
        }
        if let Some(context) = draft.context {
            patch = patch.context(context);
        }
        Ok(PermittedWrite::Update { id, version, patch })
    }

    fn require(&self, is_allowed: bool, capability: &'static str) -> Result<(), PermissionError> {
        match is_allowed {
            true => Ok(()),
            false => Err(PermissionError::MissingCapability { capability }),
        }
    }

    /// Returns the breadcrumb that a model's action updates or deletes, or an error if the agent may not write this breadcrumb.
    /// The agent must have written the breadcrumb's current version, the action must name that version, and the agent must be
    /// permitted to write the breadcrumb's schema.
    fn check_target<'b>(
        &self,
        target: Target,
        own: Option<&'b Breadcrumb>,
    ) -> Result<&'b Breadcrumb, PermissionError> {
        let id = target.id;
        let own = own.filter(|own| own.id == id);
        let own = own.ok_or(PermissionError::NotOwnBreadcrumb { id })?;
        let (found, named) = (own.version, target.version);
        if found != named {
            return Err(PermissionError::Stale { id, found, named });
        }
        self.check_schema(own.schema_name.as_deref().unwrap_or_default())?;
        Ok(own)
    }

    fn check_schema(&self, schema: &str) -> Result<(), PermissionError> {
        let named = || excerpt(schema, 80).into_owned();
        if is_reserved_schema(schema) {
            return Err(PermissionError::Reserved { schema: named() });
        }
        let is_listed = self.responds_with.iter().any(|allowed| allowed == schema);
        let is_unlisted_open = self.creates_any_schema && is_open(schema);
        if !is_listed && !is_unlisted_open {
            let mut allowed = self.responds_with.join(", ");
            if self.creates_any_schema {
                allowed.push_str(OPEN_SCHEMAS);
            }
            return Err(PermissionError::OtherSchema {
                schema: named(),
                allowed,
            });
        }
        let may_spawn = self.capabilities.can_spawn_agents;
        self.require(
            may_spawn || !is_definition_schema(schema),
            AgentCapabilities::SPAWN,
        )
    }
}

const TITLE: &str = "Agent Response";
const TAG: &str = "agent:response";
/// Prefixes of the schemas that an agent without the list `responds_with` may not create. Breadcrumbs of these schemas control other
/// services: tools, tool configurations, tool code, and messages of users and of the system.
const CLOSED_PREFIXES: [&str; 3] = ["tool.", "user.", "system."];
/// Text that follows the list of permitted schemas in an error message for a model, used if the agent's definition has no list
/// `responds_with`.
const OPEN_SCHEMAS: &str = ", and every other schema except definitions, requests, answers of people, and names that start with \"tool.\", \
                    \"user.\" or \"system.\"";

/// Returns `true` if an agent without the list `responds_with` may create breadcrumbs of this schema.
pub(crate) fn is_open(schema: &str) -> bool {
    !is_protected(schema)
        && !CLOSED_PREFIXES
            .iter()
            .any(|prefix| schema.starts_with(prefix))
}

/// Returns `true` if breadcrumbs of this schema control agents, tools or runs: requests, responses, answers of people, dead
/// letters, or definitions.
pub(crate) fn is_protected(schema: &str) -> bool {
    is_reserved_schema(schema) || is_definition_schema(schema)
}
