//! A template as it is rendered.

use serde_json::Value;

/// A piece of a template.
#[derive(Debug)]
pub(super) enum Node {
    Text(String),
    Show(Term),
    If(If),
    Each(Block),
    With(Block),
}

/// `if`, `unless`, and helpers that say yes or no as blocks.
#[derive(Debug)]
pub(super) struct If {
    pub(super) test: Term,
    /// Whether the number 0 counts as true.
    pub(super) zero: bool,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

/// `each` and `with`, which open a scope for their body.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) of: Term,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

/// What gives a value.
#[derive(Debug)]
pub(super) enum Term {
    Literal(Value),
    Path { from: From, steps: Vec<String> },
    Call(Call, Vec<Self>),
}

/// Where a path begins; a scope is counted from the innermost.
#[derive(Clone, Copy, Debug)]
pub(super) enum From {
    /// What holds the context.
    Root,
    /// What a scope is about.
    Scope(usize),
    /// The index, in a scope made by `each`.
    Index(usize),
    /// The name of the field, in a scope made by `each` over an object.
    Key(usize),
    /// The name of the field, or the index in a list.
    KeyOrIndex(usize),
    /// Whether it is the first of a scope made by `each`.
    First(usize),
    /// Whether it is the last.
    Last(usize),
}

/// A helper that gives a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Call {
    Lookup,
    Len,
    Eq,
    Ne,
    Gt,
    Gte,
    Lt,
    Lte,
    And,
    Or,
    Not,
}

impl Call {
    const ALL: [(&str, Self); 11] = [
        ("lookup", Self::Lookup),
        ("len", Self::Len),
        ("eq", Self::Eq),
        ("ne", Self::Ne),
        ("gt", Self::Gt),
        ("gte", Self::Gte),
        ("lt", Self::Lt),
        ("lte", Self::Lte),
        ("and", Self::And),
        ("or", Self::Or),
        ("not", Self::Not),
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find_map(|(known, call)| (known == name).then_some(call))
    }

    /// The names of all helpers.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.into_iter().map(|(name, _)| name)
    }

    /// Whether it answers yes or no, and may so stand as a block.
    pub(super) fn is_question(self) -> bool {
        !matches!(self, Self::Lookup | Self::Len)
    }

    /// How many values it takes, and whether more are fine.
    pub(super) fn arity(self) -> (usize, bool) {
        match self {
            Self::Len | Self::Not => (1, false),
            Self::And | Self::Or => (2, true),
            Self::Lookup | Self::Eq | Self::Ne | Self::Gt | Self::Gte | Self::Lt | Self::Lte => {
                (2, false)
            }
        }
    }
}
