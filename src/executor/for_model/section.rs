//! Text around the data in a rendered context: headings, fences and notes. Rendering joins these pieces, and a budget counts them.

use super::super::sources::MissingReason;
use super::fence::FenceKey;
use super::format::Format;
use super::line::{escaped, is_plain, push_json, quoted};
use super::{ModelItem, ModelSource};
use crate::model::Timestamp;

/// Heading of a section of a rendered context: a source with its key, or the trigger.
#[derive(Clone, Copy)]
pub(super) enum Heading<'a> {
    Source(&'a str),
    Trigger,
}

/// Number, common schema and newest update time of the items in a section of a rendered context.
#[derive(Clone, Copy, Default)]
pub(super) struct Facts<'a> {
    items: usize,
    schema: Schema<'a>,
    updated: Option<Timestamp>,
}

/// Schemas of the items in a section of a rendered context: no items, the same schema for all items, or several schemas.
#[derive(Clone, Copy, Default)]
enum Schema<'a> {
    #[default]
    NoItems,
    Common(Option<&'a str>),
    Several,
}

/// Text around the content of a section of a rendered context. The mark that delimits the content precedes `open` and, if
/// present, `end`.
pub(super) struct Frame {
    pub(super) before: String,
    pub(super) open: &'static str,
    pub(super) close: &'static str,
    pub(super) end: Option<&'static str>,
}

/// Delimiters of a list of items in a rendered context.
pub(super) const LIST_OPEN: &str = "[";
pub(super) const BEFORE_FIRST: &str = "\n";
pub(super) const BETWEEN: &str = ",\n";
pub(super) const LIST_CLOSE: &str = "\n]";

impl<'a> Facts<'a> {
    pub(super) fn of(items: &'a [ModelItem]) -> Self {
        let mut facts = Self::default();
        for item in items {
            facts.add(item);
        }
        facts
    }

    /// Returns the heading data of a section that contains values, such as the variables of a flow, instead of breadcrumbs: only
    /// the number of values.
    #[cfg(feature = "agents")]
    pub(super) fn of_values(items: usize) -> Self {
        Self {
            items,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, item: &'a ModelItem) {
        let schema = item.schema_name.as_deref();
        self.schema = match self.schema {
            Schema::NoItems => Schema::Common(schema),
            Schema::Common(same) if same == schema => Schema::Common(same),
            Schema::Common(_) | Schema::Several => Schema::Several,
        };
        self.updated = self.updated.max(Some(item.updated_at));
        self.items += 1;
    }

    pub(super) fn items(&self) -> usize {
        self.items
    }

    /// Returns the number, schema and update time of a section's items as a sentence, for example
    /// `2 items of schema page.v1, last updated 2026-11-21T20:33:40Z`.
    fn as_sentence(&self) -> String {
        let schema = match self.schema {
            Schema::Common(Some(name)) if is_plain(name) => format!(" of schema {name}"),
            Schema::Several => " of several schemas".to_owned(),
            Schema::NoItems | Schema::Common(_) => String::new(),
        };
        let updated = self.updated.map(|at| format!(", last updated {at}"));
        let noun = if self.items == 1 { "item" } else { "items" };
        format!(
            "{} {noun}{schema}{}",
            self.items,
            updated.unwrap_or_default()
        )
    }

    /// Returns the number, schema and update time of a section's items as XML attributes, for example
    /// ` items="2" schema="page.v1" updated="2026-11-21T20:33:40Z"`.
    fn as_attributes(&self) -> String {
        let schema = match self.schema {
            Schema::Common(Some(name)) if is_plain(name) => format!(" schema=\"{name}\""),
            Schema::Several => " schemas=\"several\"".to_owned(),
            Schema::NoItems | Schema::Common(_) => String::new(),
        };
        let updated = self.updated.map(|at| format!(" updated=\"{at}\""));
        format!(
            " items=\"{}\"{schema}{}",
            self.items,
            updated.unwrap_or_default()
        )
    }
}

impl Heading<'_> {
    pub(super) fn frame(self, format: Format, facts: &Facts<'_>) -> Frame {
        match format {
            Format::Markdown => {
                let name = match self {
                    Self::Source(key) => name_of(key),
                    Self::Trigger => TRIGGER.to_owned(),
                };
                Frame {
                    before: format!("\n## {name}\n{}\n```json data-", facts.as_sentence()),
                    open: "\n",
                    close: "\n```\n",
                    end: None,
                }
            }
            Format::Xml => {
                let facts = facts.as_attributes();
                let (tag, end) = match self {
                    Self::Source(key) => (
                        format!("<source key=\"{}\"{facts}>", escaped(key)),
                        ">\n</source>\n",
                    ),
                    Self::Trigger => (format!("<trigger{facts}>"), ">\n</trigger>\n"),
                };
                Frame {
                    before: format!("\n{tag}\n<data-"),
                    open: ">\n",
                    close: "\n</data-",
                    end: Some(end),
                }
            }
        }
    }

    /// Appends a whole section to a rendered context: the heading, the content and the marks that delimit the content.
    pub(super) fn push(
        self,
        format: Format,
        fences: &FenceKey,
        facts: &Facts<'_>,
        content: &str,
        out: &mut String,
    ) {
        let frame = self.frame(format, facts);
        let mark = match self {
            Self::Source(key) => fences.mark("source", key, content),
            Self::Trigger => fences.mark("trigger", "", content),
        };
        for piece in [&frame.before, &mark, frame.open, content, frame.close] {
            out.push_str(piece);
        }
        if let Some(end) = frame.end {
            out.push_str(&mark);
            out.push_str(end);
        }
    }
}

impl Frame {
    /// Returns the fixed strings around a section's content, except the marks, and the number of marks that delimit the content.
    pub(super) fn pieces(&self) -> (impl Iterator<Item = &str>, usize) {
        let pieces = [&*self.before, self.open, self.close].into_iter();
        (pieces.chain(self.end), 1 + self.end.iter().len())
    }
}

impl ModelSource {
    /// Returns `true` if a rendered context has a section for this source with `items` items. A list always has a section, and a source of
    /// one item has a section only if an item was found.
    pub(super) fn is_shown(&self, items: usize) -> bool {
        items > 0 || !self.is_one
    }

    /// Returns the text of a context source between the marks that delimit the text in a rendered context.
    pub(super) fn content(&self, format: Format) -> String {
        let mut content = String::new();
        match self.items.first() {
            Some(only) if self.is_one => push_json(&only.context, format.is_markup(), &mut content),
            Some(_) | None => {
                content.push_str(LIST_OPEN);
                for (at, item) in self.items.iter().enumerate() {
                    content.push_str(if at == 0 { BEFORE_FIRST } else { BETWEEN });
                    push_json(&item.context, format.is_markup(), &mut content);
                }
                content.push_str(LIST_CLOSE);
            }
        }
        content
    }
}

/// Section names of a rendered context for the trigger and for the notes on missing sources. A source key that equals such a name is
/// quoted.
const TRIGGER: &str = "trigger";
const MISSING: &str = "missing";

/// Returns the key of a context source for a heading or a note: quoted, unless the key is plain and not the name of another
/// section.
pub(super) fn name_of(key: &str) -> String {
    if is_plain(key) && ![TRIGGER, MISSING].contains(&key) {
        key.to_owned()
    } else {
        quoted(key)
    }
}

/// Returns the text before the first note on a missing source in a rendered context.
pub(super) fn before_notes(format: Format) -> &'static str {
    match format {
        Format::Markdown => "\n## missing\n",
        Format::Xml => "\n",
    }
}

/// Returns the note on a missing or incomplete context source, as one line.
pub(super) fn note(format: Format, key: &str, reason: &MissingReason) -> String {
    let reason = reason_text(reason);
    match format {
        Format::Markdown => format!("- {}: {reason}\n", name_of(key)),
        Format::Xml => {
            let (key, reason) = (escaped(key), escaped(&reason));
            format!("<missing key=\"{key}\">{reason}</missing>\n")
        }
    }
}

/// Returns the reason why a context source is missing or incomplete. Messages of drivers or servers must not reach a prompt, so the reason
/// omits them.
fn reason_text(reason: &MissingReason) -> String {
    match reason {
        MissingReason::Failed(error) => format!("{reason} ({})", error.code()),
        // Hints can come from a breadcrumb, so their text must not reach the model.
        MissingReason::Withheld { items, .. } => {
            format!("{items} items were withheld, because their hints cannot be used")
        }
        // Quoted values in these reasons are escaped, so the note stays on one line.
        MissingReason::Cut(_)
        | MissingReason::TooLarge { .. }
        | MissingReason::OverBudget { .. } => reason.to_string(),
    }
}
