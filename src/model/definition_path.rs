use serde::{Serialize, Serializer};
use std::fmt;

/// Path of a value in a definition, for example `flows.main.steps[3].retry.attempts`.
///
/// A loader that knows the text of the definition can follow the [`parts`](Self::parts) to find the line and the column of the value.
///
/// [`DefinitionError::path`](super::DefinitionError::path) and [`Finding`](super::Finding) return
/// it.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::Subscriptions;
/// use universal_executor::model::DefinitionPathPart;
///
/// let definition = json!({"subscriptions": [{"schema_name": "order.v1", "role": "triger"}]});
/// let error = Subscriptions::from_json(&definition).unwrap_err();
/// let path = error.path(&definition);
///
/// assert_eq!(path.to_string(), "subscriptions[0].role");
/// assert_eq!(path.parts()[1], DefinitionPathPart::Item(0));
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DefinitionPath(Vec<DefinitionPathPart>);

/// One part of a [`DefinitionPath`]: a field name or an item index.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DefinitionPathPart {
    /// A path part that selects the field with this name in an object of the definition.
    Field(String),
    /// An item of a list in the definition, by its index from 0.
    Item(usize),
}

impl DefinitionPath {
    /// Returns the parts of a definition path, from the root of the definition. Empty for the definition itself.
    #[must_use]
    pub fn parts(&self) -> &[DefinitionPathPart] {
        &self.0
    }

    pub(crate) fn field(&self, name: &str) -> Self {
        self.with_part(DefinitionPathPart::Field(name.to_owned()))
    }

    pub(crate) fn item(&self, at: usize) -> Self {
        self.with_part(DefinitionPathPart::Item(at))
    }

    /// Returns this definition path followed by a path in text form, for example `context_match[0].path`.
    /// [`DefinitionError::field`](super::DefinitionError::field) returns paths in this form.
    pub(crate) fn join(&self, written: &str) -> Self {
        let mut joined = self.clone();
        for name in written.split('.').filter(|name| !name.is_empty()) {
            let (name, item) = match name
                .strip_suffix(']')
                .and_then(|name| name.rsplit_once('['))
            {
                Some((before, number)) => match number.parse() {
                    Ok(item) => (before, Some(item)),
                    Err(_) => (name, None),
                },
                None => (name, None),
            };
            joined = joined.field(name);
            if let Some(item) = item {
                joined = joined.item(item);
            }
        }
        joined
    }

    /// Returns the definition path `outer` followed by this path.
    #[cfg(any(feature = "workflows", test))]
    pub(crate) fn below(&self, outer: &Self) -> Self {
        Self(outer.0.iter().chain(&self.0).cloned().collect())
    }

    fn with_part(&self, part: DefinitionPathPart) -> Self {
        let mut parts = self.0.clone();
        parts.push(part);
        Self(parts)
    }
}

impl fmt::Display for DefinitionPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the definition");
        }
        for (at, part) in self.0.iter().enumerate() {
            match part {
                DefinitionPathPart::Item(item) => write!(f, "[{item}]")?,
                DefinitionPathPart::Field(name) if !is_plain(name) => {
                    write!(f, "[{:?}]", crate::error::excerpt(name, 64))?;
                }
                DefinitionPathPart::Field(name) if at == 0 => f.write_str(name)?,
                DefinitionPathPart::Field(name) => write!(f, ".{name}")?,
            }
        }
        Ok(())
    }
}

impl Serialize for DefinitionPath {
    /// Serializes the definition path as a string in its [`Display`](fmt::Display) form. An empty path becomes an empty string.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.is_empty() {
            true => serializer.serialize_str(""),
            false => serializer.collect_str(self),
        }
    }
}

fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !name.is_empty() && name.len() <= 64 && name.chars().all(plain)
}

/// Line and column in the text of a definition.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Position {
    /// The path of the definition file, or `None` for a text that is not from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line number in the text of the definition, counted from 1.
    pub line: usize,
    /// The column in the definition text, counted from 1.
    pub column: usize,
}

impl fmt::Display for Position {
    /// Writes the position in a definition text, as `flow.yaml:12:3`, or as `line 12 column 3` without a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = (self.line, self.column);
        match &self.file {
            Some(file) => write!(f, "{file}:{line}:{column}"),
            None => write!(f, "line {line} column {column}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_prints_its_parts_and_quotes_unusual_names() {
        let path = DefinitionPath::default()
            .field("flows")
            .field("my flow")
            .field("steps")
            .item(3)
            .field("retry");

        assert_eq!(path.to_string(), "flows[\"my flow\"].steps[3].retry");
        assert_eq!(path.parts().len(), 5);
    }

    #[test]
    fn a_written_path_becomes_its_parts() {
        let path = DefinitionPath::default().field("selectors").item(1);

        let joined = path.join("context_match[0].path");

        assert_eq!(joined.to_string(), "selectors[1].context_match[0].path");
        assert_eq!(joined.parts().len(), 5);
        assert_eq!(path.join(""), path);
        assert_eq!(path.join("odd[x]").parts().len(), 3);
        assert_eq!(
            joined
                .below(&DefinitionPath::default().field("context"))
                .to_string(),
            "context.selectors[1].context_match[0].path"
        );
    }

    #[test]
    fn a_position_names_the_file_if_there_is_one() {
        let mut position = Position {
            file: Some("flow.yaml".to_owned()),
            line: 12,
            column: 3,
        };
        assert_eq!(position.to_string(), "flow.yaml:12:3");

        position.file = None;
        assert_eq!(position.to_string(), "line 12 column 3");
    }
}
