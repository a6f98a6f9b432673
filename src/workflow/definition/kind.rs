use crate::workflow::error::WorkflowLoadError;
use crate::workflow::fields::Fields;
use crate::workflow::shape;

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
    pub(super) fn of(fields: &Fields<'_>) -> Result<Self, WorkflowLoadError> {
        let names = Self::ALL.map(Self::field);
        if !Self::is_step(fields) {
            // An unknown field may be a kind that is misspelt, so that is said first.
            fields.only(&shape::STEP.names())?;
        }
        let name = fields.only_one_of(&names)?;
        let kind = Self::ALL.into_iter().find(|kind| kind.field() == name);
        let kind = kind.unwrap_or(Self::Fail);
        Self::refuse_those_of_others(name, fields)?;
        fields.only(&shape::step_fields(name))?;
        Ok(kind)
    }

    /// Refuses a field that only other kinds of steps have: `retry` of a `loop`.
    fn refuse_those_of_others(name: &str, fields: &Fields<'_>) -> Result<(), WorkflowLoadError> {
        let (own, all) = (shape::step_fields(name), shape::STEP.names());
        let of_others = |field: &&str| fields.has(field) && !own.contains(field);
        let Some(field) = all.into_iter().find(of_others) else {
            return Ok(());
        };
        let kinds = Self::ALL.map(Self::field).into_iter();
        let kinds = kinds.filter(|kind| shape::step_fields(kind).contains(&field));
        let kinds: Vec<&str> = kinds.collect();
        let kinds = kinds.join(", ");
        let reason = format!("there is no such field beside {name:?}; it goes with {kinds}");
        Err(WorkflowLoadError::fields(
            fields.place().field(field),
            reason,
        ))
    }

    /// Whether an object has a field that makes it a step.
    pub(super) fn is_step(fields: &Fields<'_>) -> bool {
        Self::ALL.iter().any(|kind| fields.has(kind.field()))
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
}
