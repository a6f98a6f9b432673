//! What an agent wants to have written, by its answer: `{"action": "create", "breadcrumb": {..}}`.
//!
//! `action` is `create`, `update`, `delete` or `none`; a breadcrumb without one is to be created. It may stand in prose or
//! in a fenced block. Of the breadcrumb, `schema_name`, `title`, `tags` and `context` are the model's to say, and for an
//! update or a deletion `id` and `version`. Everything else (creator, ids and versions of what is new, author,
//! visibility, expiry, hints) is dropped, as are tags that tell what a breadcrumb belongs to (`parent:`, `request:`,
//! `session:`, `step:`, `turn:` and `workspace:`) and those of the library (`ux:`).
//!
//! Reading and permitting are apart, so that the store is asked in between: [`Action::target`] says for what.

mod permit;
#[cfg(test)]
mod tests;

pub(crate) use permit::is_open;
#[cfg(feature = "workflows")]
pub(crate) use permit::is_protected;
pub(super) use permit::{Permitted, Rules};

use super::output::extract;
use crate::model::{Breadcrumb, BreadcrumbId, Json, REQUEST_TAG, SESSION_TAG, is_reserved_tag};
use crate::request::agents;
use serde_json::{Map, Value};

/// What an answer asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Nothing is to be written.
    None,
    Create(Draft),
    Update(Target, Draft),
    Delete(Target),
}

/// An existing breadcrumb, as a model names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Target {
    id: BreadcrumbId,
    version: u64,
}

/// What a model may say of a breadcrumb; absent is what it left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Draft {
    schema_name: Option<String>,
    title: Option<String>,
    tags: Option<Vec<String>>,
    /// An object.
    context: Option<Json>,
}

/// The most tags that a model may give; a response gets others besides.
pub(super) const MOST_TAGS: usize = 64;

impl Action {
    /// Reads an answer. None if it asks for nothing to be written: prose is an answer too, and so is any other JSON.
    ///
    /// # Errors
    /// Says what is wrong with an answer that is meant to be an action, for the model to mend.
    pub(super) fn read(text: &str) -> Result<Option<Self>, String> {
        let found = match extract(text) {
            Ok(found) => found.into_value(),
            Err(problem) if is_meant(text) => return Err(problem),
            Err(_) => return Ok(None),
        };
        let Value::Object(mut fields) = found else {
            return match is_meant(text) {
                true => Err("it is not one JSON object; give one action".to_owned()),
                false => Ok(None),
            };
        };
        match (fields.remove("action"), fields.remove("breadcrumb")) {
            (Some(Value::String(action)), breadcrumb)
                if breadcrumb.is_some() || ACTIONS.contains(&&*action) =>
            {
                Self::named(&action, breadcrumb).map(Some)
            }
            (_, Some(_)) => Err(format!("\"action\" must be one of {}", ACTIONS.join(", "))),
            (None, None) if is_bare(&fields) => {
                Draft::new(fields).map(|new| Some(Self::Create(new)))
            }
            (Some(_) | None, None) => Ok(None),
        }
    }

    /// The breadcrumb it would change or delete.
    pub(super) fn target(&self) -> Option<BreadcrumbId> {
        match self {
            Self::Update(target, _) | Self::Delete(target) => Some(target.id),
            Self::None | Self::Create(_) => None,
        }
    }

    /// Returns the tool requests of an answer to the user, or `None` if the list is absent or empty.
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

    fn named(action: &str, breadcrumb: Option<Value>) -> Result<Self, String> {
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
            (None, _) => Err("\"id\" must be the id of the breadcrumb".to_owned()),
            (Some(_), None) => Err("\"version\" must be its version, a whole number".to_owned()),
        }
    }
}

impl Draft {
    /// Of something that is to be created, which has to hold something.
    fn new(fields: Map<String, Value>) -> Result<Self, String> {
        let draft = Self::read(fields)?;
        match draft.context.is_some() {
            true => Ok(draft),
            false => Err("\"context\" is missing; it is an object".to_owned()),
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
            tags: tags.map(tags_of).transpose()?,
            context,
        })
    }
}

/// The tags that a model may give, without those that say where something belongs.
fn tags_of(tags: Value) -> Result<Vec<String>, String> {
    let most = Breadcrumb::MAX_TAG_BYTES;
    let tags: Vec<String> = serde_json::from_value(tags)
        .map_err(|_| "\"tags\" must be a list of strings".to_owned())?;
    if tags.len() > MOST_TAGS {
        return Err(format!("there may be {MOST_TAGS} tags at the most"));
    }
    if tags.iter().any(|tag| tag.len() > most) {
        return Err(format!("a tag may have {most} bytes at the most"));
    }
    let chosen = tags.into_iter();
    Ok(chosen
        .filter(|tag| !tag.is_empty() && !is_reserved(tag))
        .collect())
}

/// Reports whether a model may not choose a tag, because it tells what a breadcrumb belongs to or is the library's own.
fn is_reserved(tag: &str) -> bool {
    let belongs = [
        "parent:",
        REQUEST_TAG,
        SESSION_TAG,
        "step:",
        "turn:",
        "workspace:",
    ];
    is_reserved_tag(tag) || belongs.iter().any(|prefix| tag.starts_with(prefix))
}

/// Whether an object is a breadcrumb and no other answer: it names a schema, or has a context and nothing that a
/// breadcrumb has not.
fn is_bare(fields: &Map<String, Value>) -> bool {
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

/// Whether a text that is not one JSON object was meant to be an action, so that a broken one is not taken for prose.
fn is_meant(text: &str) -> bool {
    let has = |name: &str| text.contains(&format!("{name:?}"));
    let is_named = || has("breadcrumb") || ACTIONS.into_iter().any(has);
    (has("action") && is_named()) || (has("schema_name") && has("context"))
}
