use crate::error::excerpt;
use crate::model::{Breadcrumb, DefinitionPath, Position};
use crate::workflow::{Document, WorkflowLoadError};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::path::Path;

/// A definition to check: the text of a file, or a breadcrumb.
///
/// A source borrows its text, or owns it if a `String` is passed. The name appears in
/// [`Checked::source`](super::Checked::source).
#[derive(Clone, Debug)]
pub struct CheckSource<'s> {
    name: Cow<'s, str>,
    content: Content<'s>,
}

#[derive(Clone, Debug)]
enum Content<'s> {
    Json(Cow<'s, str>),
    #[cfg(feature = "yaml")]
    Yaml(Cow<'s, str>),
    Record(Value),
}

/// The parsed source of a definition to check: the text of a file, or a breadcrumb.
pub(super) enum Parsed<'p> {
    Text(Document<'p>),
    Record(&'p Value),
}

impl<'s> CheckSource<'s> {
    /// Creates a source to check from the JSON text of a definition, such as an agent definition. The source is checked in strict
    /// mode. The name identifies the source in reports.
    ///
    /// ```
    /// use universal_executor::check::{Check, CheckSource, Kind};
    ///
    /// let broken = Check::new().one(&CheckSource::json("broken.json", "{"));
    /// assert_eq!(broken.kind, Kind::Unknown);
    /// assert_eq!(broken.findings.len(), 1);
    /// ```
    #[must_use]
    pub fn json(name: impl Into<Cow<'s, str>>, text: impl Into<Cow<'s, str>>) -> Self {
        Self {
            name: name.into(),
            content: Content::Json(text.into()),
        }
    }

    /// Creates a source to check from the YAML text of a definition, such as an agent definition. The source is checked in strict
    /// mode. The name identifies the source in reports.
    #[cfg(feature = "yaml")]
    #[must_use]
    pub fn yaml(name: impl Into<Cow<'s, str>>, text: impl Into<Cow<'s, str>>) -> Self {
        Self {
            name: name.into(),
            content: Content::Yaml(text.into()),
        }
    }

    /// Creates a source to check from the path and the text of a definition file. The source is checked in strict mode. Returns
    /// `None` for an unknown file extension.
    ///
    /// The extension determines the format: `.json` or, with the feature `yaml`, `.yaml` or `.yml`. The source does not read the file.
    ///
    /// # Examples
    /// ```
    /// use std::path::Path;
    /// use universal_executor::check::CheckSource;
    ///
    /// let source = CheckSource::file(Path::new("helper.json"), "{}").ok_or("unknown format")?;
    /// assert_eq!(source.name(), "helper.json");
    /// assert!(CheckSource::file(Path::new("notes.txt"), "").is_none());
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn file(path: &Path, text: impl Into<Cow<'s, str>>) -> Option<Self> {
        let name = path.display().to_string();
        match path.extension()?.to_str()? {
            "json" => Some(Self::json(name, text)),
            #[cfg(feature = "yaml")]
            "yaml" | "yml" => Some(Self::yaml(name, text)),
            _ => None,
        }
    }

    /// Creates a source from a breadcrumb of a store or a server. The source is checked without strict mode.
    ///
    /// The name is the title, at most 80 bytes of it, and the ID. The schema of the breadcrumb
    /// decides the [`Kind`](super::Kind). Findings have no line and column.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::check::{Check, CheckSource, Kind};
    /// use universal_executor::{Breadcrumb, NewBreadcrumb};
    ///
    /// let definition = json!({
    ///     "name": "sum",
    ///     "subscriptions": [{"schema_name": "order.v1", "role": "trigger"}],
    /// });
    /// let new = NewBreadcrumb::new("tool.v1").title("Sum").context(definition);
    /// let breadcrumb: Breadcrumb = new.into();
    ///
    /// let checked = Check::new().one(&CheckSource::record(&breadcrumb));
    /// assert_eq!(checked.kind, Kind::Tool);
    /// assert_eq!(checked.id.as_deref(), Some("sum"));
    /// ```
    #[must_use]
    pub fn record(breadcrumb: &Breadcrumb) -> Self {
        let hints = breadcrumb.llm_hints.as_deref();
        let title = excerpt(&breadcrumb.title, 80);
        Self {
            name: format!("{title} ({})", breadcrumb.id).into(),
            content: Content::Record(json!({
                "schema_name": breadcrumb.schema_name,
                "tags": breadcrumb.tags,
                "context": &*breadcrumb.context,
                "llm_hints": hints,
            })),
        }
    }

    /// Returns the name of the definition's source for the output of a check, such as a file path, or the title and ID of a
    /// breadcrumb.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_file(&self) -> bool {
        !matches!(self.content, Content::Record(_))
    }

    pub(super) fn read(&self) -> Result<Parsed<'_>, WorkflowLoadError> {
        match &self.content {
            Content::Json(text) => Document::json(text).map(Parsed::Text),
            #[cfg(feature = "yaml")]
            Content::Yaml(text) => Document::yaml(text).map(Parsed::Text),
            Content::Record(value) => Ok(Parsed::Record(value)),
        }
    }
}

impl Parsed<'_> {
    pub(super) fn value(&self) -> Cow<'_, Value> {
        match self {
            Self::Text(document) => document.value(),
            Self::Record(value) => Cow::Borrowed(value),
        }
    }

    /// Returns the line and column of the value at a definition path, or `None` if the source is a breadcrumb.
    pub(super) fn locate(&self, path: &DefinitionPath) -> Option<Position> {
        match self {
            Self::Text(document) => document.locate(path),
            Self::Record(_) => None,
        }
    }
}
