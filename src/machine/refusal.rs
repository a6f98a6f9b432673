use super::call::Answer;

/// Why the machine answers a call itself. Texts name no content of calls, and stay below 400 bytes.
#[derive(Debug)]
pub(super) enum Refusal {
    AlreadyReported,
    Cancelled,
    Conflicting,
    ControlCharacter,
    Forgotten,
    InvalidArguments { problem: String },
    NoRoom,
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
                "this tool takes one report a run, and another call has handed one in".to_owned(),
            ),
            Self::Cancelled => ("cancelled", "the call was cancelled".to_owned()),
            Self::Conflicting => (
                "conflicting_call",
                "another call has the same id; call again with an id of its own".to_owned(),
            ),
            Self::ControlCharacter => (
                "invalid_call_id",
                "the ID of the call contains a control character; call again with an ID of printable characters".to_owned(),
            ),
            Self::Forgotten => (
                "forgotten",
                "this call was answered before and its answer is no longer kept; go by what was answered then, or \
                 call again with another id"
                    .to_owned(),
            ),
            Self::InvalidArguments { problem } => (
                "invalid_arguments",
                format!(
                    "the arguments cannot be read ({}); call again with valid JSON",
                    cut(&problem, 150).replace(char::is_control, " ")
                ),
            ),
            Self::NoRoom => (
                "too_many_calls",
                "calls under way take up all the room there is; wait for their results and call again".to_owned(),
            ),
            Self::ResultTooLarge { limit } => (
                "result_too_large",
                format!(
                    "the tool was executed, but its result is larger than {limit} bytes, nests too deep or finds no \
                     room; ask for less"
                ),
            ),
            Self::Suspended => (
                "suspended",
                "the run waits for the answer of another call; call again once that is there".to_owned(),
            ),
            Self::TooLarge { limit } => (
                "too_large",
                format!("the call is larger than {limit} bytes or nests too deep; call again with less"),
            ),
            Self::TooManyCalls { limit } => (
                "too_many_calls",
                format!("this run has made the {limit} calls it may make; end without further calls"),
            ),
            Self::TooManyPending => (
                "too_many_calls",
                "too many calls are under way; wait for their results and call again".to_owned(),
            ),
        };
        Answer::error(code, message)
    }
}

/// The beginning of a text, at most so many bytes, on the border of a character.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}
