//! Reading an event from one frame of the wire, in one pass and without copies that the event does not keep.

use super::{Event, EventKind};
use crate::error::excerpt;
use crate::model::breadcrumb::BreadcrumbId;
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
                Field::Type => once(&mut kind, "type", values)?,
                Field::BreadcrumbId => once(&mut breadcrumb_id, "breadcrumb_id", values)?,
                Field::Version => once(&mut version, "version", values)?,
                Field::SchemaName => once(&mut schema_name, "schema_name", values)?,
                Field::Tags => once(&mut tags, "tags", values)?,
                Field::Context => once(&mut context, "context", values)?,
                Field::UpdatedAt => once(&mut updated_at, "updated_at", values)?,
                Field::Ts => once(&mut ts, "ts", values)?,
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
        let travels = |text: &Box<RawValue>| text.get().len() <= Event::MAX_CONTEXT_BYTES;
        Ok(Event {
            kind,
            breadcrumb_id: breadcrumb_id
                .flatten()
                .ok_or_else(|| missing("breadcrumb_id"))?,
            version: version.flatten().ok_or_else(|| missing("version"))?,
            schema_name: schema_name.flatten(),
            tags: tags.flatten().unwrap_or_default(),
            context: context.flatten().filter(travels).map(Json::unchecked),
            updated_at: updated_at.ok_or_else(|| missing("updated_at"))?,
        })
    }
}

fn once<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    place: &mut Option<T>,
    name: &'static str,
    values: &mut A,
) -> Result<(), A::Error> {
    if place.is_some() {
        return Err(de::Error::duplicate_field(name));
    }
    *place = Some(values.next_value()?);
    Ok(())
}

/// The kind of event by its name on the wire.
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
    E::custom(format_args!("event type {text:?} is not known{hint}"))
}
