//! Records of model requests outside the store, in a form that can be compared between runs.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use universal_executor::agent::{ChatMessage, ChatRequest, Speaker};

/// A request of a model.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Shown {
    /// The question to the agent, and the number of tool results that it has received for it.
    pub(crate) asked: String,
    pub(crate) results: usize,
    pub(crate) messages: Vec<String>,
}

impl Shown {
    pub(crate) fn of(request: &ChatRequest) -> Self {
        let messages = &request.messages;
        let task = messages
            .iter()
            .rposition(|message| message.speaker == Speaker::User);
        let task = task.unwrap();
        Self {
            // The user's words, or the prompt of an agent in its data.
            asked: prompt(&messages[task].text())
                .unwrap_or_else(|| messages[task].text().into_owned()),
            results: messages[task..]
                .iter()
                .filter(|message| message.speaker == Speaker::Tool)
                .count(),
            messages: written(messages),
        }
    }

    /// Adds the request to the file of a run and flushes it to the disk.
    pub(crate) fn note(&self, folder: &Path) {
        let file = File::options()
            .create(true)
            .append(true)
            .open(folder.join("shown"));
        let mut file = file.unwrap();
        let mut line = serde_json::to_vec(self).unwrap();
        line.push(b'\n');
        file.write_all(&line).unwrap();
        file.sync_data().unwrap();
    }

    /// Returns all model requests of a run by question and number of results. A repeated request occurs several times.
    pub(crate) fn read(folder: &Path) -> BTreeMap<(String, usize), Vec<Vec<String>>> {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for line in std::fs::read_to_string(folder.join("shown"))
            .unwrap()
            .lines()
        {
            let shown: Self = serde_json::from_str(line).unwrap();
            let key = (shown.asked, shown.results);
            all.entry(key).or_default().push(shown.messages);
        }
        all
    }
}

/// Returns messages as text, without the parts that differ between runs: the result of a call that may run at most once.
pub(crate) fn written(messages: &[ChatMessage]) -> Vec<String> {
    let one = |message: &ChatMessage| {
        let calls = message.tool_calls().into_iter();
        let calls: Vec<_> = calls
            .map(|call| format!("{} {} {}", call.id, call.name, call.arguments.text()))
            .collect();
        let of = message.call_id().unwrap_or_default();
        let text = match prompt(&message.text()) {
            Some(prompt) => prompt,
            None if of.contains("most") => "*".to_owned(),
            None => without_marks(&message.text()),
        };
        format!("{:?} {of} {text} {calls:?}", message.speaker)
    };
    messages.iter().map(one).collect()
}

/// Returns a text without the markers of its fences, which differ from process to process.
fn without_marks(text: &str) -> String {
    const DIGITS: usize = 16;
    let parts: Vec<_> = text.split("data-").collect();
    let mark = |part: &str| {
        part.get(..DIGITS)
            .is_some_and(|mark| mark.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let rest = parts
        .iter()
        .enumerate()
        .map(|(at, part)| match at > 0 && mark(part) {
            true => part.get(DIGITS..).unwrap_or_default(),
            false => part,
        });
    rest.collect::<Vec<_>>().join("data-")
}

/// Returns the prompt in a message that contains an agent's task, or `None` for any other message.
fn prompt(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("\"prompt\":")?;
    let mut texts = serde_json::Deserializer::from_str(rest.trim_start()).into_iter::<String>();
    texts.next()?.ok()
}
