//! Deserialization of an event from its JSON form, in one pass and without temporary copies.

use super::{Event, EventKind};
use crate::error::excerpt;
use crate::model::breadcrumb_id::BreadcrumbId;
use crate::model::json::Json;
use crate::model::nearest::nearest;
use crate::model::timestamp::Timestamp;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Frame)
    }
}

#[derive(serde::Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Type,
    BreadcrumbId,
    Version,
    SchemaName,
    Tags,
    Context,
    UpdatedAt,
    Ts,
    #[serde(other)]
    Unknown,
}

struct Frame;

impl<'de> Visitor<'de> for Frame {
    type Value = Event;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Event, A::Error> {
        let mut kind: Option<Type> = None;
        let mut breadcrumb_id: Option<Option<BreadcrumbId>> = None;
        let mut version: Option<Option<u64>> = None;
        let mut schema_name: Option<Option<String>> = None;
        let mut tags: Option<Option<Vec<String>>> = None;
        let mut context: Option<Option<Box<RawValue>>> = None;
        let mut updated_at: Option<Option<Timestamp>> = None;
        let mut ts: Option<Option<Timestamp>> = None;
        while let Some(field) = fields.next_key()? {
            let values = &mut fields;
            match field {
                Field::Type => read_once(&mut kind, "type", values)?,
                Field::BreadcrumbId => read_once(&mut breadcrumb_id, "breadcrumb_id", values)?,
                Field::Version => read_once(&mut version, "version", values)?,
                Field::SchemaName => read_once(&mut schema_name, "schema_name", values)?,
                Field::Tags => read_once(&mut tags, "tags", values)?,
                Field::Context => read_once(&mut context, "context", values)?,
                Field::UpdatedAt => read_once(&mut updated_at, "updated_at", values)?,
                Field::Ts => read_once(&mut ts, "ts", values)?,
                Field::Unknown => {
                    values.next_value::<de::IgnoredAny>()?;
                }
            }
        }
        let missing = de::Error::missing_field;
        let Type(kind) = kind.ok_or_else(|| missing("type"))?;
        let updated_at = updated_at.flatten();
        if kind == EventKind::Ping {
            return Ok(Event {
                kind,
                breadcrumb_id: BreadcrumbId::NIL,
                version: 0,
                schema_name: None,
                tags: Vec::new(),
                context: None,
                updated_at: ts.flatten().or(updated_at).ok_or_else(|| missing("ts"))?,
            });
        }
        let context = context.flatten();
        let context = context.filter(|text| text.get().len() <= Event::MAX_CONTEXT_BYTES);
        Ok(Event {
            kind,
            breadcrumb_id: breadcrumb_id
                .flatten()
                .ok_or_else(|| missing("breadcrumb_id"))?,
            version: version.flatten().ok_or_else(|| missing("version"))?,
            schema_name: schema_name.flatten(),
            tags: tags.flatten().unwrap_or_default(),
            context: context.map(Json::unchecked),
            updated_at: updated_at.ok_or_else(|| missing("updated_at"))?,
        })
    }
}

fn read_once<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    field_value: &mut Option<T>,
    name: &'static str,
    values: &mut A,
) -> Result<(), A::Error> {
    if field_value.is_some() {
        return Err(de::Error::duplicate_field(name));
    }
    *field_value = Some(values.next_value()?);
    Ok(())
}

/// Kind of event, deserialized from the field `type` of the event's JSON form.
struct Type(EventKind);

impl<'de> Deserialize<'de> for Type {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl Visitor<'_> for Name {
            type Value = Type;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Type, E> {
                EventKind::from_wire(text)
                    .map(Type)
                    .ok_or_else(|| unknown_type(text))
            }
        }

        deserializer.deserialize_str(Name)
    }
}

fn unknown_type<E: de::Error>(found: &str) -> E {
    let known = [
        "breadcrumb.created",
        "breadcrumb.updated",
        "breadcrumb.deleted",
        "ping",
    ];
    let hint =
        nearest(found, known).map_or(String::new(), |name| format!("; did you mean {name:?}?"));
    let text = excerpt(found, 64);
    E::custom(format_args!("unknown event type {text:?}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Returns a frame whose context has the given text.
    fn frame(context: &str) -> String {
        format!(
            r#"{{"type":"breadcrumb.updated","breadcrumb_id":"01890a5d-ac96-774b-bcce-b302099a8057","version":1,"tags":["a"],"schema_name":"a.v1","updated_at":"2026-11-21T20:33:40Z","context":{context}}}"#
        )
    }

    fn read(context: &str) -> Event {
        serde_json::from_str(&frame(context)).unwrap()
    }

    #[test]
    fn text_bytes_a_reader_and_a_value_give_the_same_event() {
        let text = frame(r#"{"x":[1,"\u0061"]}"#);
        let event: Event = serde_json::from_str(&text).unwrap();

        let value: Value = serde_json::from_str(&text).unwrap();
        for same in [
            serde_json::from_slice(text.as_bytes()).unwrap(),
            serde_json::from_reader(text.as_bytes()).unwrap(),
            serde_json::from_value::<Event>(value).unwrap(),
        ] {
            assert_eq!(same, event);
        }
        assert_eq!(*event.context.unwrap(), json!({"x": [1, "a"]}));
    }

    #[test]
    fn a_context_stays_text_and_is_written_as_it_was() {
        let event = read(r#"{"b":1.50,"a":[ ]}"#);

        assert!(event.context.as_ref().unwrap().unparsed_text().is_some());
        assert_eq!(json!(event)["context"], json!({"b": 1.5, "a": []}));
        assert!(
            serde_json::to_string(&event)
                .unwrap()
                .contains(r#"{"b":1.50,"a":[ ]}"#)
        );
    }

    #[test]
    fn a_null_context_is_read_as_absent_but_counts_as_a_duplicate() {
        assert_eq!(read("null").context, None);

        let twice = frame(r#"null,"context":1"#);
        let error = serde_json::from_str::<Event>(&twice).unwrap_err();
        assert!(
            error.to_string().contains("duplicate field `context`"),
            "{error}"
        );
    }

    #[test]
    fn a_context_too_large_to_travel_is_not_read() {
        for (bytes, travels) in [
            (Event::MAX_CONTEXT_BYTES, true),
            (Event::MAX_CONTEXT_BYTES + 1, false),
            (Json::MAX_BYTES + 1, false),
        ] {
            let context = format!("\"{}\"", "x".repeat(bytes - 2));
            assert_eq!(read(&context).context.is_some(), travels, "{bytes}");
        }
    }

    #[test]
    fn a_context_no_value_can_hold_reads_as_null_and_equals_only_itself() {
        let deep = "[".repeat(65) + &"]".repeat(65);
        let hidden = format!(r#"{{"a":{deep},"a":1}}"#);
        let bottomless = "[".repeat(100_000) + &"]".repeat(100_000);
        for text in ["1e400", r#"{"a":"\ud800"}"#, &deep, &hidden, &bottomless] {
            let event = read(text);
            let context = event.context.clone().unwrap();

            assert_eq!((&*context, context.size()), (&Value::Null, usize::MAX));
            assert!(context != Json::default() && context != Value::Null);
            assert!(event == read(text) && event != read("1e401"));
            assert!(
                context.canonical(usize::MAX).is_err() && context.parse::<Option<()>>().is_err()
            );
            assert!(serde_json::from_str::<Json>(text).is_err());
            assert_eq!(serde_json::to_string(&event).unwrap(), frame(text));
            assert_eq!(context.to_string(), text);
            assert_eq!(context.into_value(), Value::Null);
        }
    }

    #[test]
    fn a_valid_unchecked_context_equals_a_checked_context() {
        let text = r#"{"n":1.0,"n":2,"nul":"\u0000"}"#;
        let (unchecked, checked) = (read(text).context.unwrap(), Json::from_text(text).unwrap());

        assert_eq!(unchecked, checked);
        assert_eq!(unchecked.size(), checked.size());
        assert_eq!(
            unchecked.canonical(100).unwrap(),
            checked.canonical(100).unwrap()
        );
        assert_eq!(unchecked.parse::<Value>().unwrap(), *checked);
        assert_eq!(
            read(text).context.unwrap().into_value(),
            checked.into_value()
        );
    }
}
