//! The decision whether a tool of an MCP server can be called.

/// The decision about the calls of a tool of an MCP server, made from the digests of its definitions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Admission {
    /// The server offers the definition that was accepted and that models see.
    Allowed,
    /// The server offers a definition that no person has accepted.
    Held,
    /// A person has accepted the definition that the server offers, but models of this process still see the earlier definition.
    Outdated,
    /// The server no longer lists the tool.
    Removed,
}

/// Decides about a tool from three digests: of the definition that models of this process see, of the definition that the server
/// lists now, and of the definition that was accepted last.
pub(super) fn admit(shown: &str, offered: Option<&str>, accepted: Option<&str>) -> Admission {
    match (offered, accepted) {
        (None, _) => Admission::Removed,
        (Some(offered), Some(accepted)) if offered == accepted && offered == shown => {
            Admission::Allowed
        }
        (Some(offered), Some(accepted)) if offered == accepted => Admission::Outdated,
        (Some(_), Some(_) | None) => Admission::Held,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_accepted_definition_that_models_see_is_called() {
        assert_eq!(admit("a", Some("a"), Some("a")), Admission::Allowed);
        assert_eq!(admit("a", Some("b"), Some("a")), Admission::Held);
        assert_eq!(admit("a", Some("b"), Some("b")), Admission::Outdated);
        assert_eq!(admit("a", Some("a"), Some("b")), Admission::Held);
        assert_eq!(admit("a", Some("a"), None), Admission::Held);
        assert_eq!(admit("a", None, Some("a")), Admission::Removed);
        assert_eq!(admit("a", None, None), Admission::Removed);
    }
}
