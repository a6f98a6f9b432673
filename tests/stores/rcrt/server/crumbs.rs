//! The breadcrumbs of all owners, as JSON.

use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// The fields that whoever writes may set.
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
    /// Update time and ID by schema, and of all, oldest first. A test lists thousands of breadcrumbs page by page.
    by_time: HashMap<Option<String>, Vec<(String, String)>>,
    /// The text that the vector of each breadcrumb is made from: its title and context when it was created.
    embedded: HashMap<String, String>,
    /// The versions in the history. An update of a version that is there fails after it replaced the breadcrumb.
    history: HashSet<(String, u64)>,
    /// The IDs in the order of creation, also of those that were removed.
    created: Vec<String>,
    last: i64,
    /// How many microseconds the clock of the server is ahead.
    ahead: i64,
    /// If set, the time on the server advances with the clock of tokio, from this time at this moment.
    follows: Option<(jiff::Timestamp, tokio::time::Instant)>,
}

impl Crumbs {
    /// Creates a breadcrumb, and returns its id.
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

    /// Returns the text that the vector of a breadcrumb is made from.
    pub(crate) fn embedded(&self, id: &str) -> &str {
        self.embedded.get(id).map_or("", String::as_str)
    }

    /// Puts a breadcrumb in the place of its last version.
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

    /// Replaces the fields that a patch names, in one step. Null retains a field.
    pub(crate) fn patch(&mut self, id: &str, patch: &Value) {
        if let Some(before) = self.all.get(id).cloned() {
            self.write(id, before, patch);
        }
    }

    /// Replaces a breadcrumb by the next version of what was read before, even if another client has written since. Returns
    /// `false` if the history has that version: the breadcrumb is replaced all the same.
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

    /// Changes a field behind everybody's back.
    pub(crate) fn set(&mut self, id: &str, name: &str, value: Value) {
        let mut fields = self.all[id].clone();
        fields.insert(name.to_owned(), value);
        self.replace(id, fields);
    }

    /// The breadcrumbs of every owner in the order of creation, without the first ones.
    pub(crate) fn created_after(&self, first: usize) -> impl Iterator<Item = &Map<String, Value>> {
        let created = self.created.iter().skip(first);
        created.filter_map(|id| self.all.get(id))
    }

    /// All of them, newest first, of every owner.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Map<String, Value>> {
        self.newest_of(None, 0)
    }

    /// Those of a schema, or all, without the first ones.
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

    /// Sets the clock of the server, as far ahead of that of this machine.
    pub(crate) fn set_clock(&mut self, ahead: jiff::SignedDuration) {
        self.ahead = i64::try_from(ahead.as_micros()).unwrap();
        self.last = 0;
    }

    /// Lets the time on the server advance with the clock of tokio, which a test can pause, from a time before now.
    pub(crate) fn follow_tokio(&mut self, before: jiff::SignedDuration) {
        self.follow_tokio_from(jiff::Timestamp::now() - before);
    }

    /// The same, and it is this time now.
    pub(crate) fn follow_tokio_from(&mut self, start: jiff::Timestamp) {
        self.follows = Some((start, tokio::time::Instant::now()));
    }

    /// Lets time pass: moves the clock, and moves all times to live back, because a client compares them with its own clock.
    pub(crate) fn pass(&mut self, duration: std::time::Duration) {
        self.ahead += i64::try_from(duration.as_micros()).unwrap();
        for fields in self.all.values_mut() {
            if let Some(Ok(ttl)) = fields["ttl"].as_str().map(str::parse::<jiff::Timestamp>) {
                fields["ttl"] = json!(written(ttl - duration));
            }
        }
    }

    /// What time it is on the server.
    pub(crate) fn clock(&self) -> jiff::Timestamp {
        if let Some((start, at)) = self.follows {
            return start + at.elapsed();
        }
        let now = jiff::Timestamp::now().as_microsecond();
        jiff::Timestamp::from_microsecond(now + self.ahead).unwrap()
    }

    /// A moment later than all before.
    fn now(&mut self) -> String {
        self.last = self.clock().as_microsecond().max(self.last + 1);
        written(jiff::Timestamp::from_microsecond(self.last).unwrap())
    }
}

/// The lists that have a breadcrumb.
fn lists(fields: &Map<String, Value>) -> [Option<String>; 2] {
    let schema = fields["schema_name"].as_str().unwrap_or_default();
    [None, Some(schema.to_owned())]
}

fn time(fields: &Map<String, Value>) -> String {
    fields["updated_at"].as_str().unwrap().to_owned()
}

/// A time as the server writes it.
pub(crate) fn written(time: jiff::Timestamp) -> String {
    format!("{time:.6}")
}

/// What is not lower case is stored as team and low; reads give capitals.
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
