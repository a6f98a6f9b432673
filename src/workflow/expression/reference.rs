use super::{Unresolved, Variables};
use crate::model::{Json, Path};
use serde_json::Value;

/// A reference in an expression: to a flow variable, or to the value at a path in the variable's value.
#[derive(Clone, Debug)]
pub(in crate::workflow) struct Reference {
    variable: String,
    /// JSONPath of the referenced value in the value of the flow variable, or `None` for the whole value.
    path: Option<Path>,
    /// If `true`, the reference resolves to null if the value is missing. If `false`, a missing value is an error.
    optional: bool,
    source: String,
}

impl Reference {
    /// Parses a reference such as `draft`, `draft.text`, `$.items[0]` or `input.note?`.
    pub(super) fn parse(source: &str) -> Result<Self, String> {
        let text = source.trim();
        let (text, optional) = match text.strip_suffix('?') {
            Some(text) => (text, true),
            None => (text, false),
        };
        let (variable, rest) = split(text)?;
        let path = match rest {
            "" => None,
            rest => Some(Path::parse(&format!("${rest}")).map_err(|error| error.to_string())?),
        };
        Ok(Self {
            variable: variable.to_owned(),
            path,
            optional,
            source: source.to_owned(),
        })
    }

    pub(super) fn variable(&self) -> &str {
        &self.variable
    }

    /// Returns the variable and path of the reference as written between the braces in the definition.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    pub(super) fn is_whole_variable(&self) -> bool {
        self.path.is_none()
    }

    /// Returns the value to which the reference resolves. The value of a whole variable is shared, and a path that can match several nodes
    /// gives a list.
    pub(super) fn resolve(&self, variables: &dyn Variables) -> Result<Json, Unresolved> {
        let found = match (variables.get(&self.variable), &self.path) {
            (None, _) => None,
            (Some(value), None) => Some(value),
            (Some(value), Some(path)) if path.is_plain() => {
                let node = path.first(&value).map_err(Unresolved::Path)?;
                node.map(|node| node.clone().into())
            }
            (Some(value), Some(path)) => {
                variables.search(path, &value)?;
                let nodes = path.nodes(&value).map_err(Unresolved::Path)?;
                Some(nodes.into_iter().cloned().collect::<Value>().into())
            }
        };
        match found {
            Some(value) => Ok(value),
            None if self.optional => Ok(Json::default()),
            None => Err(Unresolved::Missing(format!("${{{}}}", self.source))),
        }
    }
}

/// Splits a path that starts with a variable name, such as `$.draft.text`, into the name and the remaining path.
pub(super) fn split(text: &str) -> Result<(&str, &str), String> {
    let text = text.trim();
    let text = text.strip_prefix("$.").unwrap_or(text);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let (name, rest) = text.split_at(text.find(|c| !is_name(c)).unwrap_or(text.len()));
    if name.is_empty() {
        return Err("an expression starts with a variable name".to_owned());
    }
    if !(rest.is_empty() || rest.starts_with(['.', '['])) {
        let reason = "a variable name is followed by . or [, as in draft.text or items[0]";
        return Err(reason.to_owned());
    }
    Ok((name, rest))
}
