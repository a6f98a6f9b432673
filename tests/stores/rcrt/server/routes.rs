//! The routes of the server.

use super::crumbs::written;
use super::{Answer, MAX_BODY, Request, Server, State, token_of};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;
use uuid::Uuid;

/// Number of bytes of a new context that the server logs.
const PREVIEW: usize = 200;

impl Server {
    /// Returns the answer to a request, or `None` if the server panics, which closes the connection.
    pub(crate) async fn answer(&self, request: &Request) -> Option<Answer> {
        match &*request.method {
            "PATCH" => self.update(request, None).await,
            _ => Some(self.answer_at_once(request)),
        }
    }

    /// Updates a breadcrumb like the real server: the version check and the write are two steps, and other requests can come in between.
    pub(super) async fn update(
        &self,
        request: &Request,
        between: Option<Arc<Notify>>,
    ) -> Option<Answer> {
        let Some(owner) = self.owner_of(request) else {
            return Some(Answer::text(401, "invalid or expired token"));
        };
        let patch = match checked(request) {
            Ok(patch) => patch,
            Err(answer) => return Some(answer),
        };
        if panics(&patch) {
            return None;
        }
        let id = request.path.rsplit('/').next()?;
        let before = match self.lock().current(&owner, id, request) {
            Ok(before) => before,
            Err(answer) => return Some(answer),
        };
        match between {
            Some(go) => go.notified().await,
            None => tokio::task::yield_now().await,
        }
        let mut state = self.lock();
        if state.crumbs.get(id).is_none() {
            return Some(Answer::text(500, "database error"));
        }
        if !state.crumbs.write(id, before, &patch) {
            return Some(Answer::text(500, "duplicate key in the history"));
        }
        self.announce(&state, &Answer::json(&json!({"id": id})));
        Some(Answer::json(&json!({"ok": true})))
    }

    fn answer_at_once(&self, request: &Request) -> Answer {
        let parts: Vec<&str> = request.path.trim_matches('/').split('/').collect();
        let is_list = request.method == "GET" && parts == ["breadcrumbs"];
        let owner = self.owner_of(request);
        if owner.is_none() && !is_list && parts[0] != "auth" {
            return Answer::text(401, "invalid or expired token");
        }
        let owner = owner.unwrap_or_default();
        let mut state = self.lock();
        match (&*request.method, &*parts) {
            ("POST", ["auth", "token"]) => state.issue(&request.json()),
            ("GET", ["breadcrumbs"]) => state.list(request),
            ("GET", ["breadcrumbs", "search"]) => state.nearest(request),
            ("GET", ["breadcrumbs", id, "full"]) if state.broken.contains(*id) => {
                Answer::text(500, "database error")
            }
            ("GET", ["breadcrumbs", id, "full"]) => match state.crumbs.get(id) {
                Some(found) => Answer::json(&json!(found)),
                None => Answer::text(404, "not found"),
            },
            ("POST", ["breadcrumbs"]) => {
                let answer = state.create(&owner, request);
                self.announce(&state, &answer);
                answer
            }
            ("DELETE", ["breadcrumbs", id]) => {
                let is_own = state
                    .crumbs
                    .get(id)
                    .is_some_and(|found| found["owner_id"] == *owner);
                match is_own && state.crumbs.remove(id) {
                    true => Answer::json(&json!({"ok": true})),
                    false => Answer::text(404, "not found"),
                }
            }
            _ => Answer::text(404, "no such route"),
        }
    }

    /// Changes a breadcrumb like another client does.
    pub(crate) fn change(&self, id: &str, patch: &Value) {
        let mut state = self.lock();
        state.crumbs.patch(id, patch);
        self.announce(&state, &Answer::json(&json!({"id": id})));
    }

    /// Creates a breadcrumb like another client of an owner does, and returns its ID.
    pub(crate) fn put(&self, owner: &str, new: &Value) -> String {
        let mut state = self.lock();
        let id = state.crumbs.create(owner, new);
        self.announce(&state, &Answer::json(&json!({"id": id})));
        id
    }

    /// Creates a breadcrumb for an owner with a time that is this much ahead of the server's clock, and returns its ID.
    pub(crate) fn put_ahead(&self, owner: &str, ahead: jiff::SignedDuration) -> String {
        let mut state = self.lock();
        let id = state
            .crumbs
            .create(owner, &json!({"schema_name": "note.v1"}));
        let time = written(state.crumbs.clock() + ahead);
        state.crumbs.set(&id, "updated_at", json!(time));
        self.announce(&state, &Answer::json(&json!({"id": id})));
        id
    }

    /// Returns the owner of a request's token. Owners are UUIDs.
    pub(super) fn owner_of(&self, request: &Request) -> Option<String> {
        let token = request.header("authorization")?.strip_prefix("Bearer ")?;
        if self.lock().expired.contains(token) {
            return None;
        }
        let owner = token.split(':').nth(1)?.to_owned();
        Uuid::parse_str(&owner).ok().map(|_| owner)
    }

    /// Changes the breadcrumb of a request like another client does.
    pub(super) fn overtake(&self, request: &Request) {
        let id = request.path.rsplit('/').next().unwrap();
        self.lock().crumbs.patch(id, &json!({"title": "overtaken"}));
    }

    /// Sends a written breadcrumb to all streams of its owner.
    fn announce(&self, state: &State, answer: &Answer) {
        let Ok(written) = serde_json::from_slice::<Value>(&answer.body) else {
            return;
        };
        let Some(found) = written["id"].as_str().and_then(|id| state.crumbs.get(id)) else {
            return;
        };
        if state.stream.is_deaf {
            return;
        }
        let frame = json!({
            "type": "breadcrumb.updated", "breadcrumb_id": found["id"], "owner_id": found["owner_id"],
            "version": found["version"], "tags": found["tags"], "schema_name": found["schema_name"],
            "updated_at": found["updated_at"], "context": found["context"],
        });
        let owner = found["owner_id"].as_str().unwrap().to_owned();
        for _ in 0..state.stream.copies.max(1) {
            // Sending fails if no stream is open.
            self.frames.send((owner.clone(), frame.to_string())).ok();
        }
    }
}

impl State {
    fn issue(&mut self, asked: &Value) -> Answer {
        self.issued += 1;
        let (owner, agent) = (&asked["owner_id"], &asked["agent_id"]);
        if owner
            .as_str()
            .is_none_or(|owner| Uuid::parse_str(owner).is_err())
        {
            return Answer::text(400, "invalid owner_id format");
        }
        if agent == "nobody" {
            return Answer::text(403, "no such agent");
        }
        let token = format!("issued:{}:{}", owner.as_str().unwrap(), self.issued);
        let exp = jiff::Timestamp::now().as_second() + asked["ttl_sec"].as_i64().unwrap();
        Answer::json(
            &json!({"token": token, "owner_id": owner, "agent_id": agent, "roles": asked["roles"], "exp": exp}),
        )
    }

    fn create(&mut self, owner: &str, request: &Request) -> Answer {
        if let Some(key) = request.header("idempotency-key")
            && !self.keys.insert(key.to_owned())
        {
            return Answer::text(409, "duplicate request");
        }
        match checked(request) {
            Ok(new) => {
                let id = self.crumbs.create(owner, &new);
                Answer::json(&json!({"id": id}))
            }
            Err(answer) => answer,
        }
    }

    /// Returns an owner's breadcrumb if it has the version that the request expects.
    fn current(
        &self,
        owner: &str,
        id: &str,
        request: &Request,
    ) -> Result<Map<String, Value>, Answer> {
        let found = self.crumbs.get(id);
        let Some(found) = found.filter(|found| found["owner_id"] == *owner) else {
            return Err(Answer::text(500, "database error"));
        };
        let expected = request
            .header("if-match")
            .and_then(|text| text.trim_matches('"').parse::<u64>().ok());
        if expected.is_some_and(|expected| found["version"] != expected) {
            return Err(Answer::text(412, "version mismatch"));
        }
        Ok(found.clone())
    }

    fn list(&self, request: &Request) -> Answer {
        let number = |name: &str| request.query.get(name).and_then(|text| text.parse().ok());
        let first = number("offset").unwrap_or(0);
        let limit = number("limit").map_or(usize::MAX, |limit: usize| limit.max(1));
        let row = |found| row(found, request);
        let rows: Vec<Value> = match request.query.get("tag") {
            None => {
                let schema = request.query.get("schema_name");
                let rows = self.crumbs.newest_of(schema, first);
                rows.take(limit).map(row).collect()
            }
            Some(_) => {
                let rows = self.matching(request).skip(first);
                rows.take(limit).map(row).collect()
            }
        };
        Answer::json(&json!(rows))
    }

    /// Returns the breadcrumbs whose first versions share the most words with the text, nearest first. Equally near ones are oldest first.
    fn nearest(&self, request: &Request) -> Answer {
        let Some(text) = request.query.get("q") else {
            return Answer::json(&json!([]));
        };
        let text = words(text);
        let near = |found: &Map<String, Value>| {
            let id = found["id"].as_str().unwrap();
            cosine(&text, &words(self.crumbs.embedded(id)))
        };
        let mut rows: Vec<_> = self.matching(request).collect();
        rows.reverse();
        rows.sort_by(|a, b| near(b).total_cmp(&near(a)));
        let nn = request.query.get("nn").map_or(5, |nn| nn.parse().unwrap());
        let rows: Vec<Value> = rows
            .into_iter()
            .take(nn)
            .map(|found| row(found, request))
            .collect();
        Answer::json(&json!(rows))
    }

    fn matching<'s>(
        &'s self,
        request: &'s Request,
    ) -> impl Iterator<Item = &'s Map<String, Value>> {
        let (tag, schema) = (request.query.get("tag"), request.query.get("schema_name"));
        self.crumbs.newest_first().filter(move |found| {
            let tagged = |tag: &String| found["tags"].as_array().unwrap().contains(&json!(tag));
            tag.is_none_or(tagged) && schema.is_none_or(|schema| found["schema_name"] == **schema)
        })
    }
}

/// Returns the number of occurrences of each word in a text.
fn words(text: &str) -> HashMap<String, f64> {
    let mut counts = HashMap::new();
    for word in text.to_lowercase().split(|c: char| !c.is_alphanumeric()) {
        if !word.is_empty() {
            *counts.entry(word.to_owned()).or_default() += 1.0;
        }
    }
    counts
}

/// Returns the cosine of the angle between two vectors, or 0 if one of them is zero.
fn cosine(a: &HashMap<String, f64>, b: &HashMap<String, f64>) -> f64 {
    let length = |of: &HashMap<String, f64>| of.values().map(|n| n * n).sum::<f64>().sqrt();
    let product = a.iter().filter_map(|(word, n)| Some(n * b.get(word)?));
    let lengths = length(a) * length(b);
    if lengths == 0.0 {
        return 0.0;
    }
    product.sum::<f64>() / lengths
}

/// Returns `true` if the server panics on a patch: it cuts the text of a new context at a byte that can be within a character.
fn panics(patch: &Value) -> bool {
    let Some(context) = patch.get("context").filter(|context| !context.is_null()) else {
        return false;
    };
    let text = context.to_string();
    text.len() > PREVIEW && !text.is_char_boundary(PREVIEW)
}

/// Returns a row of a list: without hints, and with the schema name only if the context is included.
fn row(found: &Map<String, Value>, request: &Request) -> Value {
    let mut row = json!({
        "id": found["id"], "title": found["title"], "tags": found["tags"], "version": found["version"],
        "updated_at": found["updated_at"], "schema_name": null,
    });
    if request
        .query
        .get("include_context")
        .is_some_and(|yes| yes == "true")
    {
        row["schema_name"] = found["schema_name"].clone();
        row["context"] = found["context"].clone();
        for name in ["description", "semantic_version", "llm_hints"] {
            row[name] = Value::Null;
        }
    }
    row
}

/// Returns the body of a write, or the answer that refuses it.
fn checked(request: &Request) -> Result<Value, Answer> {
    if request.body.len() > MAX_BODY {
        return Err(Answer::text(413, "length limit exceeded"));
    }
    let body: Value =
        serde_json::from_slice(&request.body).map_err(|_| Answer::text(422, "not JSON"))?;
    match body.to_string().contains("\\u0000") {
        true => Err(Answer::text(500, "database error")),
        false => Ok(body),
    }
}

#[test]
fn a_known_token_is_that_of_its_owner() {
    assert_eq!(token_of("o").split(':').nth(1), Some("o"));
}
