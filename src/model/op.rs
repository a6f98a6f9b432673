/// Operator that compares the nodes at a condition's path with the condition's value.
///
/// Except for [`Ne`](Self::Ne) and [`Exists`](Self::Exists), a condition holds if at least one node at the path passes.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::model::{Condition, Op};
///
/// let context = json!({"tags": ["a", "b"], "name": "adder-2", "count": 3});
/// let holds = |path: &str, op: Op, value| Condition::new(path, op, Some(value)).holds(&context);
///
/// assert!(holds("tags", Op::Contains, json!("a")));
/// assert!(holds("tags", Op::ContainsAll, json!(["a", "b"])));
/// assert!(holds("name", Op::Matches, json!("^adder-[0-9]+$")));
/// assert!(holds("count", Op::In, json!([1, 2, 3])));
/// assert!(holds("absent", Op::Ne, json!(1)));
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Op {
    /// A node at the condition's JSONPath deeply equals the condition's value. Numbers compare by value, so `1` equals `1.0`.
    Eq,
    /// No node at the condition's JSONPath equals the condition's value, or the JSONPath selects no node.
    Ne,
    /// A node at the condition's JSONPath is greater than the condition's value. Both are numbers, or both are strings, which
    /// compare by code point.
    Gt,
    /// A node at the condition's JSONPath is greater than or equal to the condition's value.
    Gte,
    /// A node at the condition's JSONPath is less than the condition's value.
    Lt,
    /// A node at the condition's JSONPath is less than or equal to the condition's value.
    Lte,
    /// The condition's value is a list, and one of its items equals a node at the condition's JSONPath.
    In,
    /// A node at the condition's JSONPath is a string with the condition's value as a substring, an array with an item that
    /// equals the value, or an object with the value as a key.
    Contains,
    /// A node at the condition's JSONPath is an array, the condition's value is a list, and at least one item of the list equals
    /// an item of the array.
    ContainsAny,
    /// A node at the condition's JSONPath is an array, the condition's value is a list, and each item of the list equals an item
    /// of the array.
    ContainsAll,
    /// A node at the condition's JSONPath is a string that starts with the condition's value.
    StartsWith,
    /// A node at the condition's JSONPath is a string that ends with the condition's value.
    EndsWith,
    /// A node at the condition's JSONPath is a string of at most 64 KiB in which the condition's value, a regular expression,
    /// finds a match. The syntax is that of the `regex` crate, which matches in linear time.
    Matches,
    /// The condition's JSONPath selects at least one node if the condition's value is `true` or missing, and no node if the value
    /// is `false`.
    Exists,
}

impl Op {
    /// All operators of conditions.
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

    /// Returns the operator's name in definitions, such as `eq` or `contains_any`.
    ///
    /// [`str::parse`] reads the operator back from this name.
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
