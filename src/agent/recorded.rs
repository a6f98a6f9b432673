use super::model::Collector;
use super::{ChatEvent, ChatModel, ChatRequest, ChatResponse, ModelError};
use crate::error::{BoxError, excerpt};
use crate::model::parse_as;
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A [`ChatModel`] for tests that records the answers of another model in a file, or replays the answers in such a file.
///
/// Each line of the file is a JSON object with the key, which is a hash of the request, the request and the response. Only
/// answers are recorded; errors pass through. The file contains no credentials, because requests have none, but it contains the
/// full text of all messages.
///
/// In replay, a request must equal a recorded request. A request that was recorded several times gets its answers in the recorded order.
///
/// Use it for tests with answers of a real model: record once, commit the file, and replay it in
/// CI. Each change of a prompt, of a tool or of the data in a request needs a new recording. The
/// marks around data must not change between runs, so give the agent a fixed
/// [`fence_key`](super::Agent::fence_key).
///
/// ```
/// use std::sync::Arc;
/// use universal_executor::agent::{ChatMessage, ChatModel, ChatRequest, RecordedModel, ScriptedModel};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let path = std::env::temp_dir().join(format!("recorded-{}.jsonl", std::process::id()));
/// let request = ChatRequest::new(vec![ChatMessage::user("I am Ann")]);
/// let real = Arc::new(ScriptedModel::new(["Hello, Ann!"])); // a model that costs money
/// RecordedModel::record(real, &path)?.chat(&request).await?;
///
/// let replayed = RecordedModel::replay(&path)?.chat(&request).await?;
/// assert_eq!(replayed.text(), "Hello, Ann!");
/// # std::fs::remove_file(path)?;
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct RecordedModel {
    mode: Mode,
}

enum Mode {
    Record {
        model: Arc<dyn ChatModel>,
        tape: Arc<Tape>,
    },
    Replay(Mutex<HashMap<String, Recorded>>),
}

/// A recorded model request with its responses.
struct Recorded {
    request: BTreeMap<String, String>,
    /// The recorded model answers to the request that have not been replayed yet.
    responses: VecDeque<ChatResponse>,
    /// The number of times that the replay received this model request.
    replayed: usize,
}

#[derive(Deserialize, Serialize)]
struct Line<R, A> {
    key: String,
    request: R,
    response: A,
}

impl RecordedModel {
    /// Maximum size of a recording file for a replay: 64 MiB, in bytes.
    ///
    /// A larger file is [`ModelError::Recording`] of [`replay`](Self::replay).
    pub const MAX_BYTES: u64 = 64 << 20;

    /// Creates a model that sends each request to another model and appends the answer to a file. Creates the file if it does not exist.
    ///
    /// The file grows: remove it to record again. Several processes may append to one file. A
    /// failure to write a recorded answer fails the request with [`ModelError::Recording`].
    ///
    /// # Errors
    /// [`ModelError::Recording`] if the file cannot be opened.
    pub fn record(model: Arc<dyn ChatModel>, path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref().to_owned();
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = Mutex::new(file.map_err(|error| recording_error(&path, error))?);
        let tape = Arc::new(Tape { file, path });
        Ok(Self {
            mode: Mode::Record { model, tape },
        })
    }

    /// Creates a model that replays the recorded answers in a file, without another model. A request that is not in the file fails with
    /// [`ModelError::NotRecorded`].
    ///
    /// The whole file is read into memory here; later changes of the file have no effect. Use one
    /// model for a whole test, because each recorded answer is replayed once.
    ///
    /// # Errors
    /// [`ModelError::Recording`] if the file cannot be read, is larger than [`Self::MAX_BYTES`], or has a line that is not a
    /// recording.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::{ModelError, RecordedModel};
    ///
    /// let error = RecordedModel::replay("/does/not/exist.jsonl").unwrap_err();
    /// assert!(matches!(error, ModelError::Recording { .. }));
    /// ```
    pub fn replay(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref();
        let size = fs::metadata(path)
            .map_err(|error| recording_error(path, error))?
            .len();
        if size > Self::MAX_BYTES {
            let limit = Self::MAX_BYTES;
            return Err(recording_error(
                path,
                format!("the file has {size} bytes; the maximum is {limit} bytes"),
            ));
        }
        let text = fs::read_to_string(path).map_err(|error| recording_error(path, error))?;
        let mut recorded: HashMap<String, Recorded> = HashMap::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let line: Line<ChatRequest, ChatResponse> =
                parse_as(line.as_bytes()).map_err(|error| recording_error(path, error))?;
            let request = leaves(&line.request).map_err(|error| recording_error(path, error))?;
            // The key in the file is ignored, so that a request can be edited without computing its hash.
            let entry = recorded.entry(key(&request)).or_insert(Recorded {
                request,
                responses: VecDeque::new(),
                replayed: 0,
            });
            entry.responses.push_back(line.response);
        }
        Ok(Self {
            mode: Mode::Replay(Mutex::new(recorded)),
        })
    }
}

#[async_trait]
impl ChatModel for RecordedModel {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        match &self.mode {
            Mode::Record { model, tape } => {
                let response = model.chat(request).await?;
                tape.append(request, &response)?;
                Ok(response)
            }
            Mode::Replay(recorded) => next_response(recorded, request),
        }
    }

    /// Streams the answer of the recorded model, or a recorded answer. In recording mode the answer is written at the end of the stream, so
    /// a stream that is dropped before its end is not recorded.
    async fn stream(
        &self,
        request: &ChatRequest,
    ) -> Result<BoxStream<'static, Result<ChatEvent, ModelError>>, ModelError> {
        let (model, tape) = match &self.mode {
            Mode::Record { model, tape } => (model, Arc::clone(tape)),
            Mode::Replay(recorded) => {
                let events = next_response(recorded, request)?.into_events();
                return Ok(stream::iter(events.into_iter().map(Ok)).boxed());
            }
        };
        let events = model.stream(request).await?;
        let (request, mut collector) = (request.clone(), Collector::default());
        let recorded = events.map(move |event| {
            let event = event?;
            collector.push(event.clone())?;
            if let ChatEvent::End(_) = event {
                tape.append(&request, &std::mem::take(&mut collector).finish()?)?;
            }
            Ok(event)
        });
        Ok(recorded.boxed())
    }
}

impl fmt::Debug for RecordedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match &self.mode {
            Mode::Record { .. } => "record",
            Mode::Replay(_) => "replay",
        };
        f.debug_struct("RecordedModel")
            .field("mode", &mode)
            .finish_non_exhaustive()
    }
}

/// The file to which a recording appends model requests and answers.
struct Tape {
    file: Mutex<File>,
    path: PathBuf,
}

impl Tape {
    fn append(&self, request: &ChatRequest, response: &ChatResponse) -> Result<(), ModelError> {
        self.write(request, response)
            .map_err(|error| recording_error(&self.path, error))
    }

    fn write(&self, request: &ChatRequest, response: &ChatResponse) -> Result<(), BoxError> {
        let key = key(&leaves(request)?);
        let mut line = serde_json::to_vec(&Line {
            key,
            request,
            response,
        })?;
        line.push(b'\n');
        // One write, so that two processes that append do not mix their lines.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(file.write_all(&line)?)
    }
}

fn recording_error(path: &Path, error: impl Into<BoxError>) -> ModelError {
    ModelError::Recording {
        path: path.to_owned(),
        source: error.into(),
    }
}

fn next_response(
    recorded: &Mutex<HashMap<String, Recorded>>,
    request: &ChatRequest,
) -> Result<ChatResponse, ModelError> {
    let request = leaves(request).map_err(|error| ModelError::NotRecorded {
        difference: error.to_string(),
    })?;
    let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(entry) = recorded.get_mut(&key(&request)) {
        let difference = format!(
            "the request was recorded {} times and all its answers have been replayed",
            entry.replayed
        );
        entry.replayed += 1;
        let response = entry.responses.pop_front();
        return response.ok_or(ModelError::NotRecorded { difference });
    }
    let nearest = recorded
        .values()
        .map(|entry| differences(&request, &entry.request))
        .min_by_key(|found| (found.len(), found.first().cloned()));
    let difference = match nearest {
        None => "the recording is empty".to_owned(),
        Some(found) => {
            let more = found.len().saturating_sub(MAX_SHOWN);
            let shown = found.into_iter().take(MAX_SHOWN).collect::<Vec<_>>();
            match more {
                0 => shown.join("; "),
                _ => format!("{}; and {more} more", shown.join("; ")),
            }
        }
    };
    Err(ModelError::NotRecorded { difference })
}

/// Maximum number of differences that an error lists between a model request and a recorded request.
const MAX_SHOWN: usize = 3;

/// Returns the differences between two model requests, one sentence for each.
fn differences(
    requested: &BTreeMap<String, String>,
    recorded: &BTreeMap<String, String>,
) -> Vec<String> {
    const EXCERPT_LENGTH: usize = 120;
    let absent = "nothing".to_owned();
    let paths: std::collections::BTreeSet<_> = requested.keys().chain(recorded.keys()).collect();
    let differs = paths.into_iter().filter_map(|path| {
        let (requested_value, recorded_value) = (requested.get(path), recorded.get(path));
        if requested_value == recorded_value {
            return None;
        }
        let (requested_value, recorded_value) = (
            requested_value.unwrap_or(&absent),
            recorded_value.unwrap_or(&absent),
        );
        let (requested_value, recorded_value) = (
            excerpt(requested_value, EXCERPT_LENGTH),
            excerpt(recorded_value, EXCERPT_LENGTH),
        );
        Some(format!(
            "{path} is {requested_value}, but {recorded_value} was recorded"
        ))
    });
    differs.collect()
}

/// Returns a map from the location of each value in a model request, such as `messages[0].speaker`, to the value's JSON text. The
/// map does not depend on the order of keys, which other crates can change by the features of serde_json.
fn leaves(request: &ChatRequest) -> Result<BTreeMap<String, String>, serde_json::Error> {
    let value = serde_json::to_value(request)?;
    let mut found = BTreeMap::new();
    let mut open = vec![(String::new(), &value)];
    while let Some((path, value)) = open.pop() {
        match value {
            Value::Array(items) if !items.is_empty() => {
                let items = items.iter().enumerate();
                open.extend(items.map(|(at, item)| (format!("{path}[{at}]"), item)));
            }
            Value::Object(fields) if !fields.is_empty() => {
                let dot = if path.is_empty() { "" } else { "." };
                let fields = fields.iter();
                open.extend(
                    fields.map(|(name, field)| match name.contains(['.', '[', '"']) {
                        true => (format!("{path}{dot}{name:?}"), field),
                        false => (format!("{path}{dot}{name}"), field),
                    }),
                );
            }
            Value::Array(_)
            | Value::Object(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_) => {
                found.insert(path, value.to_string());
            }
        }
    }
    Ok(found)
}

fn key(leaves: &BTreeMap<String, String>) -> String {
    let mut hash = Sha256::new();
    for (path, value) in leaves {
        for part in [path, value] {
            // Quotes separate the parts, so that no two lists have the same hash input.
            let quoted = Value::String(part.clone()).to_string();
            hash.update(quoted);
        }
    }
    format!("{:x}", hash.finalize())
}

#[cfg(test)]
mod tests;
