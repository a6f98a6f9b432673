use super::call::Answer;

/// A reason why the state machine of an agent run answers a tool call itself, with an error. Messages contain no call content and
/// stay below 400 bytes.
#[derive(Debug)]
pub(super) enum Refusal {
    AlreadyReported,
    Cancelled,
    Conflicting,
    ControlCharacter,
    Forgotten,
    InvalidArguments { problem: String },
    MemoryLimit,
    ResultTooLarge { limit: usize },
    Suspended,
    TooLarge { limit: usize },
    TooManyCalls { limit: usize },
    TooManyPending,
}

impl Refusal {
    pub(super) fn answer(self) -> Answer {
        let (code, message) = match self {
            Self::AlreadyReported => (
                "already_reported",
                "this tool can be called once per run, and another call has already used it".to_owned(),
            ),
            Self::Cancelled => ("cancelled", "the call was cancelled".to_owned()),
            Self::Conflicting => (
                "conflicting_call",
                "another call has the same id; call again with an id of its own".to_owned(),
            ),
            Self::ControlCharacter => (
                "invalid_call_id",
                "the call ID contains a control character; call again with an ID of printable characters".to_owned(),
            ),
            Self::Forgotten => (
                "forgotten",
                "this call was answered earlier and its answer was discarded; use the earlier answer, or call again \
                 with another ID"
                    .to_owned(),
            ),
            Self::InvalidArguments { problem } => (
                "invalid_arguments",
                format!(
                    "the arguments cannot be read ({}); call again with valid JSON",
                    truncate(&problem, 150).replace(char::is_control, " ")
                ),
            ),
            Self::MemoryLimit => (
                "too_many_calls",
                "the calls in progress use all the memory of this run; wait for their results and call again".to_owned(),
            ),
            Self::ResultTooLarge { limit } => (
                "result_too_large",
                format!(
                    "the tool was executed, but its result is larger than {limit} bytes, nests too deep or exceeds the \
                     run's memory limit; request less data"
                ),
            ),
            Self::Suspended => (
                "suspended",
                "the run waits for the answer of another call; call again after that answer arrives".to_owned(),
            ),
            Self::TooLarge { limit } => (
                "too_large",
                format!("the call is larger than {limit} bytes or nests too deep; call again with smaller arguments"),
            ),
            Self::TooManyCalls { limit } => (
                "too_many_calls",
                format!("this run has reached its limit of {limit} calls; finish without further calls"),
            ),
            Self::TooManyPending => (
                "too_many_calls",
                "too many calls are in progress; wait for their results and call again".to_owned(),
            ),
        };
        Answer::error(code, message)
    }
}

/// Truncates `text` to at most `bytes` bytes, at a character boundary.
pub(super) fn truncate(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}
