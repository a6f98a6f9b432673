//! Program of a compiled template, which the renderer runs.

use serde_json::Value;

/// Piece of a compiled template: text, a value or a block.
#[derive(Debug)]
pub(super) enum Node {
    Text(String),
    Show(Term),
    If(If),
    Each(Block),
    With(Block),
}

/// Template block of `if`, `unless` or a boolean helper.
#[derive(Debug)]
pub(super) struct If {
    pub(super) test: Term,
    /// If `true`, the condition of a template block holds for the number 0 (`includeZero`).
    pub(super) includes_zero: bool,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

/// Template block of `each` or `with`, which opens a scope for its body.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) value: Term,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

/// Expression in a template that yields a value.
#[derive(Debug)]
pub(super) enum Term {
    Literal(Value),
    Path {
        start: PathStart,
        steps: Vec<String>,
    },
    Call(Call, Vec<Self>),
}

/// The value at which a path in a template starts, such as the root object or the item of `each`. Scopes are counted from the
/// innermost, which is 0.
#[derive(Clone, Copy, Debug)]
pub(super) enum PathStart {
    /// The root object of a template, whose field `context` is the filtered context.
    Root,
    /// The value of an open template scope, such as the item of `each`.
    Scope(usize),
    /// The variable `@index` in a template scope of `each`: the index of the item or field.
    Index(usize),
    /// The variable `@key` in a template scope of `each` over an object: the name of the field.
    Key(usize),
    /// The second block parameter of a template scope: the field name in `each` over an object, or the item index in `each` over
    /// a list.
    KeyOrIndex(usize),
    /// The variable `@first` in a template scope of `each`: `true` for the first item or field.
    First(usize),
    /// The variable `@last` in a template scope of `each`: `true` for the last item or field.
    Last(usize),
}

/// Helper function of the templates in `llm_hints`.
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

    /// Returns the names of all template helpers.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.into_iter().map(|(name, _)| name)
    }

    /// Returns `true` if the template helper returns a boolean, so that it can open a block like `if`.
    pub(super) fn is_boolean(self) -> bool {
        !matches!(self, Self::Lookup | Self::Len)
    }

    /// Returns the number of arguments that the template helper takes. The second value is `true` if more arguments are allowed.
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
