//! Actions: answers of an agent's model that write breadcrumbs, such as `{"action": "create", "breadcrumb": {..}}`.
//!
//! `action` is `create`, `update`, `delete` or `none`. A breadcrumb without an action is created. The JSON can be in prose or in a fenced
//! block. The model sets `schema_name`, `title`, `tags` and `context` of the breadcrumb, and `id` and `version` for an update or a
//! deletion. Other fields are dropped: creator, ID and version of a new breadcrumb, author, visibility, expiry and hints. Reserved tags
//! are dropped, too: those that relate a breadcrumb to others (`parent:`, `request:`, `session:`, `step:`, `turn:` and `workspace:`), and
//! the crate's own (`ux:`).
//!
//! Reading and permitting are separate steps, so that the caller can read the [target](Action::target) from the store in between.

mod permit;
#[cfg(test)]
mod tests;

pub(crate) use permit::is_open;
#[cfg(feature = "workflows")]
pub(crate) use permit::is_protected;
pub(super) use permit::{PermittedWrite, Rules};

use super::output::extract;
use crate::model::{Breadcrumb, BreadcrumbId, Json, REQUEST_TAG, SESSION_TAG, is_reserved_tag};
use crate::request::agents;
use serde_json::{Map, Value};

/// A breadcrumb write that an agent's model requests in its answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// The model's answer requests no breadcrumb write.
    None,
    Create(Draft),
    Update(Target, Draft),
    Delete(Target),
}

/// The ID and version of the breadcrumb that an agent's model wants to update or delete.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Target {
    id: BreadcrumbId,
    version: u64,
}

/// The fields of a breadcrumb that an agent's model may set in an action. `None` if the model omitted a field.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Draft {
    schema_name: Option<String>,
    title: Option<String>,
    tags: Option<Vec<String>>,
    /// The context of the breadcrumb that the model creates or updates, a JSON object.
    context: Option<Json>,
}

/// Maximum number of tags that an agent's model may set on a breadcrumb. The crate adds further tags to a response.
pub(super) const MAX_TAGS: usize = 64;

impl Action {
    /// Reads the action in a model's answer, or returns `None` if the answer is not an action but prose or other JSON.
    ///
    /// # Errors
    /// The problem, for the model to correct, if the answer is a malformed action.
    pub(super) fn read(text: &str) -> Result<Option<Self>, String> {
        let value = match extract(text) {
            Ok(value) => value.into_value(),
            Err(problem) if looks_like_action(text) => return Err(problem),
            Err(_) => return Ok(None),
        };
        let Value::Object(mut fields) = value else {
            return match looks_like_action(text) {
                true => Err("the answer must be one JSON object with one action".to_owned()),
                false => Ok(None),
            };
        };
        match (fields.remove("action"), fields.remove("breadcrumb")) {
            (Some(Value::String(action)), breadcrumb)
                if breadcrumb.is_some() || ACTIONS.contains(&&*action) =>
            {
                Self::from_name(&action, breadcrumb).map(Some)
            }
            (_, Some(_)) => Err(format!("\"action\" must be one of {}", ACTIONS.join(", "))),
            (None, None) if is_breadcrumb(&fields) => {
                Draft::new(fields).map(|new| Some(Self::Create(new)))
            }
            (Some(_) | None, None) => Ok(None),
        }
    }

    /// Returns the ID of the breadcrumb that the model's action would update or delete, or `None` if the action does neither.
    pub(super) fn target(&self) -> Option<BreadcrumbId> {
        match self {
            Self::Update(target, _) | Self::Delete(target) => Some(target.id),
            Self::None | Self::Create(_) => None,
        }
    }

    /// Returns the field `tool_requests` of a response breadcrumb that the model creates, or `None` if the response requests no
    /// tools.
    pub(super) fn tool_requests(&self) -> Option<&Value> {
        let Self::Create(draft) = self else {
            return None;
        };
        let schema = draft.schema_name.as_deref();
        if schema.is_some_and(|schema| schema != agents::RESPONSE) {
            return None;
        }
        let requests = draft.context.as_ref()?.get("tool_requests")?;
        let is_empty = requests.as_array().is_some_and(Vec::is_empty);
        (!requests.is_null() && !is_empty).then_some(requests)
    }

    fn from_name(action: &str, breadcrumb: Option<Value>) -> Result<Self, String> {
        if action == "none" {
            return Ok(Self::None);
        }
        let Some(Value::Object(fields)) = breadcrumb else {
            return Err("\"breadcrumb\" must be an object".to_owned());
        };
        match action {
            "create" => Ok(Self::Create(Draft::new(fields)?)),
            "update" => {
                let target = Target::read(&fields)?;
                let draft = Draft::read(fields)?;
                match draft.title.is_none() && draft.tags.is_none() && draft.context.is_none() {
                    true => Err("an update needs a \"title\", \"tags\" or \"context\"".to_owned()),
                    false => Ok(Self::Update(target, draft)),
                }
            }
            "delete" => Ok(Self::Delete(Target::read(&fields)?)),
            _ => Err(format!("\"action\" must be one of {}", ACTIONS.join(", "))),
        }
    }
}

const ACTIONS: [&str; 4] = ["create", "update", "delete", "none"];

impl Target {
    fn read(fields: &Map<String, Value>) -> Result<Self, String> {
        let id = fields.get("id").and_then(Value::as_str);
        let id = id.and_then(|id| id.parse().ok());
        let version = fields.get("version").and_then(Value::as_u64);
        match (id, version) {
            (Some(id), Some(version)) => Ok(Self { id, version }),
            (None, _) => Err("\"id\" must be the ID of the breadcrumb".to_owned()),
            (Some(_), None) => {
                Err("\"version\" must be the breadcrumb's version, a whole number".to_owned())
            }
        }
    }
}

impl Draft {
    /// Reads the fields of a breadcrumb that a model wants to create. The field `context` is required.
    fn new(fields: Map<String, Value>) -> Result<Self, String> {
        let draft = Self::read(fields)?;
        match draft.context.is_some() {
            true => Ok(draft),
            false => Err("\"context\" is missing; it must be an object".to_owned()),
        }
    }

    fn read(mut fields: Map<String, Value>) -> Result<Self, String> {
        let mut text = |name: &str| match fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text).filter(|text| !text.trim().is_empty())),
            Some(Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                Err(format!("{name:?} must be a string"))
            }
        };
        let (schema_name, title) = (text("schema_name")?, text("title")?);
        let context = match fields.remove("context") {
            None | Some(Value::Null) => None,
            Some(Value::Object(mut context)) => {
                context.remove("creator");
                Some(Value::Object(context).into())
            }
            Some(Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                return Err("\"context\" must be an object".to_owned());
            }
        };
        let tags = fields.remove("tags").filter(|tags| !tags.is_null());
        Ok(Self {
            schema_name,
            title,
            tags: tags.map(parse_tags).transpose()?,
            context,
        })
    }
}

/// Parses the list of tags that a model sets on a breadcrumb, and omits empty and reserved tags.
fn parse_tags(tags: Value) -> Result<Vec<String>, String> {
    let most = Breadcrumb::MAX_TAG_BYTES;
    let tags: Vec<String> = serde_json::from_value(tags)
        .map_err(|_| "\"tags\" must be a list of strings".to_owned())?;
    if tags.len() > MAX_TAGS {
        return Err(format!("at most {MAX_TAGS} tags are allowed"));
    }
    if tags.iter().any(|tag| tag.len() > most) {
        return Err(format!("a tag may have at most {most} bytes"));
    }
    let tags = tags.into_iter();
    Ok(tags
        .filter(|tag| !tag.is_empty() && !is_reserved(tag))
        .collect())
}

/// Returns `true` if a tag is reserved, so that a model may not set it. Such a tag relates a breadcrumb to other breadcrumbs, or has a
/// meaning for the crate.
fn is_reserved(tag: &str) -> bool {
    let reserved_prefixes = [
        "parent:",
        REQUEST_TAG,
        SESSION_TAG,
        "step:",
        "turn:",
        "workspace:",
    ];
    is_reserved_tag(tag)
        || reserved_prefixes
            .iter()
            .any(|prefix| tag.starts_with(prefix))
}

/// Returns `true` if the JSON object in a model's answer is a breadcrumb to create. Such an object has a schema name, or it has a context
/// and only the fields of breadcrumbs.
fn is_breadcrumb(fields: &Map<String, Value>) -> bool {
    const KNOWN: [&str; 17] = [
        "context",
        "created_at",
        "created_by",
        "description",
        "id",
        "llm_hints",
        "owner_id",
        "schema_name",
        "semantic_version",
        "sensitivity",
        "tags",
        "title",
        "ttl",
        "updated_at",
        "updated_by",
        "version",
        "visibility",
    ];
    let known = || fields.keys().all(|name| KNOWN.contains(&&**name));
    fields.contains_key("schema_name")
        || (fields.get("context").is_some_and(Value::is_object) && known())
}

/// Returns `true` if the text of a model's answer looks like a malformed action. The text is then an error, and not prose.
fn looks_like_action(text: &str) -> bool {
    let has = |name: &str| text.contains(&format!("{name:?}"));
    let is_named = || has("breadcrumb") || ACTIONS.into_iter().any(has);
    (has("action") && is_named()) || (has("schema_name") && has("context"))
}
