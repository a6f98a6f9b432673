//! The breadcrumbs of all owners as JSON.

use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// The fields that a client may set.
const WRITABLE: [&str; 10] = [
    "title",
    "context",
    "tags",
    "schema_name",
    "description",
    "semantic_version",
    "llm_hints",
    "visibility",
    "sensitivity",
    "ttl",
];

#[derive(Default)]
pub(crate) struct Crumbs {
    all: HashMap<String, Map<String, Value>>,
    /// Update time and ID, by schema and for all schemas, oldest first. The index is needed because a test lists thousands of breadcrumbs.
    by_time: HashMap<Option<String>, Vec<(String, String)>>,
    /// The text behind each breadcrumb's vector: its title and context at its creation.
    embedded: HashMap<String, String>,
    /// The versions in the history. An update to a version that is already in the history fails after it has replaced the breadcrumb.
    history: HashSet<(String, u64)>,
    /// The IDs in the order of creation, including removed breadcrumbs.
    created: Vec<String>,
    last: i64,
    /// Number of microseconds by which the server's clock is ahead.
    ahead: i64,
    /// If set, the server's time follows tokio's clock: the first value is the server's time at the second.
    follows: Option<(jiff::Timestamp, tokio::time::Instant)>,
}

impl Crumbs {
    /// Creates a breadcrumb and returns its ID.
    pub(crate) fn create(&mut self, owner: &str, new: &Value) -> String {
        let (id, now) = (Uuid::now_v7().to_string(), self.now());
        let mut fields = Map::new();
        for name in WRITABLE {
            let value = new.get(name).cloned().unwrap_or_default();
            fields.insert(name.to_owned(), as_kept(name, value));
        }
        for (name, value) in [
            ("id", json!(id)),
            ("owner_id", json!(owner)),
            ("version", json!(1)),
            ("created_at", json!(now)),
            ("updated_at", json!(now)),
            ("created_by", json!("the-agent")),
            ("updated_by", json!("the-agent")),
            ("checksum", json!("c")),
            ("size_bytes", json!(1)),
            ("embedding", json!([0.5])),
        ] {
            fields.insert(name.to_owned(), value);
        }
        let text = format!("{} {}", fields["title"], fields["context"]);
        self.embedded.insert(id.clone(), text);
        self.history.insert((id.clone(), 1));
        self.replace(&id, fields);
        self.created.push(id.clone());
        id
    }

    /// Returns the text behind a breadcrumb's vector.
    pub(crate) fn embedded(&self, id: &str) -> &str {
        self.embedded.get(id).map_or("", String::as_str)
    }

    /// Replaces the last version of a breadcrumb.
    fn replace(&mut self, id: &str, fields: Map<String, Value>) {
        if let Some(last) = self.all.remove(id) {
            self.unlist(id, &last);
        }
        for schema in lists(&fields) {
            let list = self.by_time.entry(schema).or_default();
            let entry = (time(&fields), id.to_owned());
            list.insert(list.partition_point(|other| *other < entry), entry);
        }
        self.all.insert(id.to_owned(), fields);
    }

    fn unlist(&mut self, id: &str, fields: &Map<String, Value>) {
        for schema in lists(fields) {
            let list = self.by_time.entry(schema).or_default();
            list.retain(|(_, other)| other != id);
        }
    }

    /// Replaces the fields in a patch, in one step. `null` leaves a field unchanged.
    pub(crate) fn patch(&mut self, id: &str, patch: &Value) {
        if let Some(before) = self.all.get(id).cloned() {
            self.write(id, before, patch);
        }
    }

    /// Replaces a breadcrumb by the next version of an earlier read, even if another client has written since. Returns `false` if the
    /// history already has that version. The breadcrumb is replaced anyway.
    pub(crate) fn write(&mut self, id: &str, before: Map<String, Value>, patch: &Value) -> bool {
        let now = self.now();
        let mut fields = before;
        for name in WRITABLE {
            if let Some(value) = patch.get(name).filter(|value| !value.is_null()) {
                fields.insert(name.to_owned(), as_kept(name, value.clone()));
            }
        }
        let version = fields["version"].as_u64().unwrap() + 1;
        fields.insert("version".to_owned(), json!(version));
        fields.insert("updated_at".to_owned(), json!(now));
        self.replace(id, fields);
        self.history.insert((id.to_owned(), version))
    }

    pub(crate) fn remove(&mut self, id: &str) -> bool {
        let removed = self.all.remove(id);
        self.embedded.remove(id);
        if let Some(fields) = &removed {
            self.unlist(id, fields);
        }
        removed.is_some()
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Map<String, Value>> {
        self.all.get(id)
    }

    /// Changes a field without a new version.
    pub(crate) fn set(&mut self, id: &str, name: &str, value: Value) {
        let mut fields = self.all[id].clone();
        fields.insert(name.to_owned(), value);
        self.replace(id, fields);
    }

    /// Returns the breadcrumbs of all owners in the order of creation, without the first `first`.
    pub(crate) fn created_after(&self, first: usize) -> impl Iterator<Item = &Map<String, Value>> {
        let created = self.created.iter().skip(first);
        created.filter_map(|id| self.all.get(id))
    }

    /// Returns the breadcrumbs of all owners, newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Map<String, Value>> {
        self.newest_of(None, 0)
    }

    /// Returns the breadcrumbs of a schema or of all schemas, newest first, without the first `first`.
    pub(crate) fn newest_of(
        &self,
        schema: Option<&String>,
        first: usize,
    ) -> impl Iterator<Item = &Map<String, Value>> + use<'_> {
        let list = self.by_time.get(&schema.cloned());
        let list = list.map(Vec::as_slice).unwrap_or_default();
        let rest = &list[..list.len().saturating_sub(first)];
        rest.iter().rev().map(|(_, id)| &self.all[id])
    }

    /// Sets the server's clock to this time ahead of the machine's clock.
    pub(crate) fn set_clock(&mut self, ahead: jiff::SignedDuration) {
        self.ahead = i64::try_from(ahead.as_micros()).unwrap();
        self.last = 0;
    }

    /// Lets the server's time follow tokio's clock, which a test can pause. The start is this much before the current time.
    pub(crate) fn follow_tokio(&mut self, before: jiff::SignedDuration) {
        self.follow_tokio_from(jiff::Timestamp::now() - before);
    }

    /// Lets the server's time follow tokio's clock, with this time as the current time.
    pub(crate) fn follow_tokio_from(&mut self, start: jiff::Timestamp) {
        self.follows = Some((start, tokio::time::Instant::now()));
    }

    /// Advances the server's clock, and moves all expiry times back, because a client compares them with its own clock.
    pub(crate) fn pass(&mut self, duration: std::time::Duration) {
        self.ahead += i64::try_from(duration.as_micros()).unwrap();
        for fields in self.all.values_mut() {
            if let Some(Ok(ttl)) = fields["ttl"].as_str().map(str::parse::<jiff::Timestamp>) {
                fields["ttl"] = json!(written(ttl - duration));
            }
        }
    }

    /// Returns the server's current time.
    pub(crate) fn clock(&self) -> jiff::Timestamp {
        if let Some((start, at)) = self.follows {
            return start + at.elapsed();
        }
        let now = jiff::Timestamp::now().as_microsecond();
        jiff::Timestamp::from_microsecond(now + self.ahead).unwrap()
    }

    /// Returns a time that is later than all earlier results.
    fn now(&mut self) -> String {
        self.last = self.clock().as_microsecond().max(self.last + 1);
        written(jiff::Timestamp::from_microsecond(self.last).unwrap())
    }
}

/// Returns the lists that contain a breadcrumb.
fn lists(fields: &Map<String, Value>) -> [Option<String>; 2] {
    let schema = fields["schema_name"].as_str().unwrap_or_default();
    [None, Some(schema.to_owned())]
}

fn time(fields: &Map<String, Value>) -> String {
    fields["updated_at"].as_str().unwrap().to_owned()
}

/// Formats a time like the server.
pub(crate) fn written(time: jiff::Timestamp) -> String {
    format!("{time:.6}")
}

/// Returns a value as the server stores it: an unknown visibility or sensitivity becomes the default, and known values are capitalised.
fn as_kept(name: &str, value: Value) -> Value {
    let known: &[&str] = match name {
        "visibility" => &["Team", "Public", "Private"],
        "sensitivity" => &["Low", "Pii", "Secret"],
        "tags" if value.is_null() => return json!([]),
        "title" if value.is_null() => return json!(""),
        _ => return value,
    };
    let found = known.iter().find(|known| value == known.to_lowercase());
    json!(found.unwrap_or(&known[0]))
}
