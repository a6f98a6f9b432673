use crate::agent::{ChatMessage, ChatRequest};
use std::collections::{BTreeMap, BTreeSet};

/// The tool names in a model request, with a valid replacement for each name that the provider would reject. The provider permits
/// at most 64 letters, digits, `_` and `-` in a tool name.
///
/// Other names are replaced by unique valid names in the request, and restored in the answer.
#[derive(Debug, Default)]
pub(in crate::agent) struct Names {
    /// Map from each invalid tool name to the valid name that replaces it in requests to the provider.
    provider_names: BTreeMap<String, String>,
    /// Map from each replacement name back to the original tool name, for tool calls in the provider's answers.
    tool_names: BTreeMap<String, String>,
}

const MAX_BYTES: usize = 64;

impl Names {
    pub(in crate::agent) fn new(request: &ChatRequest) -> Self {
        // The conversation can contain calls of tools that the model invented or that were offered before.
        let called = request.messages.iter();
        let called = called.flat_map(ChatMessage::tool_calls);
        let called = called.map(|call| &*call.name);
        let defined = request.tools.iter().map(|tool| &*tool.name);
        let all: BTreeSet<&str> = defined.chain(called).collect();
        let count = all.len();
        let (valid, invalid): (Vec<_>, Vec<_>) = all.into_iter().partition(|name| is_valid(name));
        let valid: BTreeSet<&str> = valid.into_iter().collect();
        let mut names = Self::default();
        for name in invalid {
            let base = match name {
                "" => "_".to_owned(),
                name => name.chars().map(valid_or_underscore).collect(),
            };
            let is_used = |replacement: &String| {
                valid.contains(&**replacement) || names.tool_names.contains_key(replacement)
            };
            let replacement = (1..=count + 1)
                .map(|number| numbered(&base, number))
                .find(|replacement| !is_used(replacement));
            if let Some(replacement) = replacement {
                names
                    .provider_names
                    .insert(name.to_owned(), replacement.clone());
                names.tool_names.insert(replacement, name.to_owned());
            }
        }
        names
    }

    /// Returns the name of a tool in requests to the provider.
    pub(in crate::agent) fn provider_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.provider_names.get(name).map_or(name, String::as_str)
    }

    /// Returns the original tool name for a tool name in the provider's answer.
    pub(in crate::agent) fn tool_name(&self, name: String) -> String {
        self.tool_names.get(&name).cloned().unwrap_or(name)
    }
}

fn is_valid(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_BYTES && name.chars().all(|c| valid_or_underscore(c) == c)
}

fn valid_or_underscore(c: char) -> char {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' => c,
        _ => '_',
    }
}

/// Returns the tool name `<base>_<number>`, in which `base` is truncated if the name would exceed the maximum length. The number
/// 1 adds no suffix. The caller tries increasing numbers until the name is unique.
fn numbered(base: &str, number: usize) -> String {
    let ending = match number {
        1 => String::new(),
        _ => format!("_{number}"),
    };
    let max_start = MAX_BYTES.saturating_sub(ending.len());
    let start: String = base.chars().take(max_start).collect();
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
            assert!(
                is_valid(map.provider_name(name)),
                "{name:?}: {:?}",
                map.provider_name(name)
            );
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

            let sent: BTreeSet<_> = names.iter().map(|name| map.provider_name(name)).collect();
            prop_assert_eq!(sent.len(), names.len());
            for name in &names {
                let provider_name = map.provider_name(name);
                prop_assert!(is_valid(provider_name), "{}", provider_name);
                prop_assert_eq!(&map.tool_name(provider_name.to_owned()), name);
            }
        }
    }
}
