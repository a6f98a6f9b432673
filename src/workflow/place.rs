use std::fmt;

/// Where in a definition something stands: `flows.main.steps[3].retry.attempts`.
///
/// Its [`parts`](Self::parts) lead to the value in the document, so that whoever read the document can say in which
/// line and column that is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Place(Vec<PlacePart>);

/// One step on the way to a [`Place`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PlacePart {
    /// The field of an object.
    Field(String),
    /// The item of a list, counted from 0.
    Item(usize),
}

impl Place {
    /// The way from the top of the document; empty for the document itself.
    #[must_use]
    pub fn parts(&self) -> &[PlacePart] {
        &self.0
    }

    pub(super) fn field(&self, name: &str) -> Self {
        self.and(PlacePart::Field(name.to_owned()))
    }

    pub(super) fn item(&self, at: usize) -> Self {
        self.and(PlacePart::Item(at))
    }

    fn and(&self, part: PlacePart) -> Self {
        let mut parts = self.0.clone();
        parts.push(part);
        Self(parts)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the definition");
        }
        for (at, part) in self.0.iter().enumerate() {
            match part {
                PlacePart::Item(item) => write!(f, "[{item}]")?,
                PlacePart::Field(name) if !is_plain(name) => {
                    write!(f, "[{:?}]", crate::error::excerpt(name, 64))?;
                }
                PlacePart::Field(name) if at == 0 => f.write_str(name)?,
                PlacePart::Field(name) => write!(f, ".{name}")?,
            }
        }
        Ok(())
    }
}

fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !name.is_empty() && name.len() <= 64 && name.chars().all(plain)
}

/// A line and a column of the text that a definition was read from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Position {
    /// The file, if it came from one.
    pub file: Option<String>,
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1.
    pub column: usize,
}

impl fmt::Display for Position {
    /// `flow.yaml:12:3`, or `line 12 column 3` without a file.
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
    fn a_place_reads_like_a_path_and_quotes_unusual_names() {
        let place = Place::default()
            .field("flows")
            .field("my flow")
            .field("steps")
            .item(3)
            .field("retry");

        assert_eq!(place.to_string(), "flows[\"my flow\"].steps[3].retry");
        assert_eq!(place.parts().len(), 5);
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
