use crate::workflow::error::LoadError;
use crate::workflow::fields::Fields;

/// What a step does, by the field that makes it one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Agent,
    Tool,
    Model,
    Flow,
    Parallel,
    ForEach,
    Loop,
    If,
    Match,
    Try,
    Set,
    WaitFor,
    Ask,
    Emit,
    Return,
    Fail,
}

/// What every step may have.
const EVERY: [&str; 3] = ["id", "as", "comment"];
/// What a step may have that the driver does.
const DRIVEN: [&str; 3] = ["retry", "timeout_seconds", "escalate"];

impl Kind {
    const ALL: [Self; 16] = [
        Self::Agent,
        Self::Tool,
        Self::Model,
        Self::Flow,
        Self::Parallel,
        Self::ForEach,
        Self::Loop,
        Self::If,
        Self::Match,
        Self::Try,
        Self::Set,
        Self::WaitFor,
        Self::Ask,
        Self::Emit,
        Self::Return,
        Self::Fail,
    ];

    /// The kind of a step that has no fields but those that go with it.
    pub(super) fn of(fields: &Fields<'_>) -> Result<Self, LoadError> {
        let names = Self::ALL.map(Self::field);
        if !Self::is_step(fields) {
            // An unknown field may be a kind that is misspelt, so that is said first.
            fields.only(&[&names[..], &EVERY, &DRIVEN].concat())?;
        }
        let name = fields.only_one_of(&names)?;
        let kind = Self::ALL.into_iter().find(|kind| kind.field() == name);
        let kind = kind.unwrap_or(Self::Fail);
        kind.check_fields(fields)?;
        Ok(kind)
    }

    /// Whether an object has a field that makes it a step.
    pub(super) fn is_step(fields: &Fields<'_>) -> bool {
        Self::ALL.iter().any(|kind| fields.has(kind.field()))
    }

    fn check_fields(self, fields: &Fields<'_>) -> Result<(), LoadError> {
        let driven: &[&str] = if self.is_driven() { &DRIVEN } else { &[] };
        fields.only(&[&[self.field()][..], self.beside(), &EVERY, driven].concat())
    }

    const fn field(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Tool => "tool",
            Self::Model => "model",
            Self::Flow => "flow",
            Self::Parallel => "parallel",
            Self::ForEach => "for_each",
            Self::Loop => "loop",
            Self::If => "if",
            Self::Match => "match",
            Self::Try => "try",
            Self::Set => "set",
            Self::WaitFor => "wait_for",
            Self::Ask => "ask",
            Self::Emit => "emit",
            Self::Return => "return",
            Self::Fail => "fail",
        }
    }

    /// The fields that go with it alone.
    const fn beside(self) -> &'static [&'static str] {
        match self {
            Self::Agent | Self::Tool => &["input"],
            Self::Model => &["input", "prompt", "output"],
            Self::Flow => &["input", "escalate"],
            Self::Parallel => &["join", "escalate"],
            Self::ForEach => &["item", "at_once", "join", "steps", "escalate"],
            Self::Loop => &["max", "until", "escalate"],
            Self::If => &["then", "else", "escalate"],
            Self::Match => &["cases", "else", "escalate"],
            Self::Try => &["on_failure", "escalate"],
            Self::Ask => &["of", "output"],
            Self::Fail => &["code"],
            Self::Set | Self::WaitFor | Self::Emit | Self::Return => &[],
        }
    }

    const fn is_driven(self) -> bool {
        match self {
            Self::Agent | Self::Tool | Self::Model | Self::WaitFor | Self::Ask | Self::Emit => true,
            Self::Flow
            | Self::Parallel
            | Self::ForEach
            | Self::Loop
            | Self::If
            | Self::Match
            | Self::Try
            | Self::Set
            | Self::Return
            | Self::Fail => false,
        }
    }
}
