use crate::agent::{ChatMessage, ChatRequest};
use std::collections::{BTreeMap, BTreeSet};

/// Tool names in requests to a model provider. The provider permits at most 64 letters, digits, `_` and `-` in a tool name.
///
/// Other names are replaced by unique valid names in the request, and restored in the answer.
#[derive(Debug, Default)]
pub(in crate::agent) struct Names {
    /// Map from each invalid tool name to the valid name in requests to the provider.
    there: BTreeMap<String, String>,
    /// Map from each replacement name in requests to the original tool name.
    back: BTreeMap<String, String>,
}

const MAX_BYTES: usize = 64;

impl Names {
    pub(in crate::agent) fn new(request: &ChatRequest) -> Self {
        // The conversation can contain calls of tools that the model invented or that were offered before.
        let said = request.messages.iter();
        let said = said.flat_map(ChatMessage::tool_calls);
        let said = said.map(|call| &*call.name);
        let offered = request.tools.iter().map(|tool| &*tool.name);
        let all: BTreeSet<&str> = offered.chain(said).collect();
        let count = all.len();
        let (plain, other): (Vec<_>, Vec<_>) = all.into_iter().partition(|name| is_plain(name));
        let plain: BTreeSet<&str> = plain.into_iter().collect();
        let mut names = Self::default();
        for name in other {
            let base = match name {
                "" => "_".to_owned(),
                name => name.chars().map(plain_or_underscore).collect(),
            };
            let taken = |new: &String| plain.contains(&**new) || names.back.contains_key(new);
            let new = (1..=count + 1)
                .map(|number| numbered(&base, number))
                .find(|new| !taken(new));
            if let Some(new) = new {
                names.there.insert(name.to_owned(), new.clone());
                names.back.insert(new, name.to_owned());
            }
        }
        names
    }

    /// Returns the name of a tool in requests to the provider.
    pub(in crate::agent) fn there<'a>(&'a self, name: &'a str) -> &'a str {
        self.there.get(name).map_or(name, String::as_str)
    }

    /// Returns the original tool name for a tool name in the provider's answer.
    pub(in crate::agent) fn back(&self, name: String) -> String {
        self.back.get(&name).cloned().unwrap_or(name)
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_BYTES && name.chars().all(|c| plain_or_underscore(c) == c)
}

fn plain_or_underscore(c: char) -> char {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' => c,
        _ => '_',
    }
}

/// Returns the tool name `base` with the suffix `_<number>`, truncated to the maximum length. The number 1 adds no suffix. The caller
/// tries increasing numbers until the name is unique.
fn numbered(base: &str, number: usize) -> String {
    let ending = match number {
        1 => String::new(),
        _ => format!("_{number}"),
    };
    let room = MAX_BYTES.saturating_sub(ending.len());
    let start: String = base.chars().take(room).collect();
    format!("{start}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{ToolCall, ToolSpec};
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_name_that_a_model_made_up_is_sent_in_a_form_that_is_taken() {
        let made_up = ["multi_tool_use.parallel", "", "gone.tool"];
        let calls = made_up.map(|name| ToolCall::new("c", name, json!({})));
        let request = ChatRequest::new(vec![ChatMessage::calls("", calls.to_vec())])
            .tool(ToolSpec::new("plain", "", json!({})));

        let map = Names::new(&request);

        for name in made_up {
            assert!(is_plain(map.there(name)), "{name:?}: {:?}", map.there(name));
        }
    }

    proptest! {
        #[test]
        fn every_tool_name_has_a_unique_plain_form_that_maps_back(
            names in prop::collection::btree_set("[a.é_]{0,3}|[a.]{62,66}", 0..20),
        ) {
            let request = names.iter().fold(ChatRequest::default(), |request, name| {
                request.tool(ToolSpec::new(name, "", json!({})))
            });

            let map = Names::new(&request);

            let sent: BTreeSet<_> = names.iter().map(|name| map.there(name)).collect();
            prop_assert_eq!(sent.len(), names.len());
            for name in &names {
                let there = map.there(name);
                prop_assert!(is_plain(there), "{}", there);
                prop_assert_eq!(&map.back(there.to_owned()), name);
            }
        }
    }
}
