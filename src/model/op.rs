/// How a condition compares the nodes at its path with its value.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Op {
    /// Deep equality; numbers by value.
    Eq,
    /// No node is equal, or there is none.
    Ne,
    /// Greater: two numbers, or two strings by code point.
    Gt,
    /// Greater or equal.
    Gte,
    /// Less.
    Lt,
    /// Less or equal.
    Lte,
    /// The value, a list, has an equal of the node.
    In,
    /// A string with that substring, an array with an equal, an object with that key.
    Contains,
    /// An array with an equal of some of the value, a list.
    ContainsAny,
    /// An array with an equal of each of the value, a list.
    ContainsAll,
    /// A string that begins so.
    StartsWith,
    /// A string that ends so.
    EndsWith,
    /// A string in which the regular expression (syntax of the `regex` crate, linear time) finds a match.
    Matches,
    /// The path has a node; with the value `false`: has none.
    Exists,
}

impl Op {
    /// Every operator.
    pub const ALL: [Self; 14] = [
        Self::Eq,
        Self::Ne,
        Self::Gt,
        Self::Gte,
        Self::Lt,
        Self::Lte,
        Self::In,
        Self::Contains,
        Self::ContainsAny,
        Self::ContainsAll,
        Self::StartsWith,
        Self::EndsWith,
        Self::Matches,
        Self::Exists,
    ];

    /// The name in definitions: `eq`, `contains_any`, ..
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::Ne => "ne",
            Self::Gt => "gt",
            Self::Gte => "gte",
            Self::Lt => "lt",
            Self::Lte => "lte",
            Self::In => "in",
            Self::Contains => "contains",
            Self::ContainsAny => "contains_any",
            Self::ContainsAll => "contains_all",
            Self::StartsWith => "starts_with",
            Self::EndsWith => "ends_with",
            Self::Matches => "matches",
            Self::Exists => "exists",
        }
    }
}

impl AsRef<str> for Op {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}
