//! What a model is shown, noted outside of the store, and written down so that two runs can be compared.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use universal_executor::agent::{ChatMessage, ChatRequest, Speaker};

/// A request of a model.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Shown {
    /// What the agent was asked, and how many results of tools it knows.
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
            // The words of the user, or the prompt of an agent in its data.
            asked: prompt(&messages[task].text())
                .unwrap_or_else(|| messages[task].text().into_owned()),
            results: messages[task..]
                .iter()
                .filter(|message| message.speaker == Speaker::Tool)
                .count(),
            messages: written(messages),
        }
    }

    /// Adds it to the file of a run, where it is on the disk from then on.
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

    /// All that a model was shown in a run, by what it was asked and knew: also more than once.
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

/// Messages as texts, without what differs from run to run: whether the outcome of a call that may be made once is known.
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

/// Returns a text without the marks of its fences, which differ from process to process.
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

/// What an agent is asked, in the message that shows it its task.
fn prompt(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("\"prompt\":")?;
    let mut texts = serde_json::Deserializer::from_str(rest.trim_start()).into_iter::<String>();
    texts.next()?.ok()
}
