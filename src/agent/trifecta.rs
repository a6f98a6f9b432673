use super::AgentError;
use crate::model::Subscriptions;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// One agent has private data, reads what strangers wrote, and can send things away: a text that it reads can make it
/// send away what it knows.
///
/// It is found before anything runs, in what the agent is made of:
///
/// | | tools that carry the permission tag | schemas |
/// |---|---|---|
/// | private data | `private` | subscribed ones that [`Trust::private`] names |
/// | untrusted content | `untrusted` | subscribed ones that [`Trust::untrusted`] names |
/// | a way outward | `egress` | schemas that the agent may write and [`Trust::outward`] names |
///
/// One tool can be several of these. What nobody marks is not seen: that no trifecta is found proves nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct LethalTrifecta {
    /// Where private data comes from: `tool "crm"`, `schema "customer.v1"`. Never empty.
    pub private: Vec<String>,
    /// Where untrusted content comes from. Never empty.
    pub untrusted: Vec<String>,
    /// Where things go. Never empty.
    pub outward: Vec<String>,
}

/// What the author of an agent says of the schemas it works with: the field `trust` of its definition. Nothing by default.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Trust {
    /// Schemas of private data.
    pub private: Vec<String>,
    /// Schemas of content from strangers: pages, mail, messages of users. If `user.message.v1` is one of them, the agent's model
    /// sees chat messages as data.
    pub untrusted: Vec<String>,
    /// Schemas that the agent may write and that something carries outside: breadcrumbs stay in the store, so writing one is by
    /// itself no way outward.
    pub outward: Vec<String>,
}

impl LethalTrifecta {
    /// The permission tag of a tool that gives private data.
    pub const PRIVATE: &'static str = "private";

    /// The permission tag of a tool that gives what strangers wrote.
    pub const UNTRUSTED: &'static str = "untrusted";

    /// The permission tag of a tool that sends things away.
    pub const EGRESS: &'static str = "egress";

    /// Returns the parts of the trifecta if an agent has all three. `is_written` tells which schemas it may write, and `tools` are the
    /// names and permission tags of the tools that it may call.
    ///
    /// A subscription that names no schema may bring any, so it counts as all that `trust` names.
    pub(super) fn find<'a>(
        subscriptions: &Subscriptions,
        trust: &Trust,
        is_written: impl Fn(&str) -> bool,
        tools: impl IntoIterator<Item = (&'a str, &'a [String])>,
    ) -> Option<Self> {
        let is_read = |schema: &&String| {
            let mut selectors = subscriptions.as_slice().iter().map(|one| &one.selector);
            selectors.any(|selector| selector.schema_name().is_none_or(|name| name == **schema))
        };
        let named = |schema: &String| format!("schema {schema:?}");
        let written = trust.outward.iter().filter(|schema| is_written(schema));
        let mut found = Self {
            private: trust.private.iter().filter(is_read).map(named).collect(),
            untrusted: trust.untrusted.iter().filter(is_read).map(named).collect(),
            outward: written.map(named).collect(),
        };
        for (name, tags) in tools {
            let carries = |tag: &str| tags.iter().any(|one| one == tag);
            for (tag, places) in [
                (Self::PRIVATE, &mut found.private),
                (Self::UNTRUSTED, &mut found.untrusted),
                (Self::EGRESS, &mut found.outward),
            ] {
                places.extend(carries(tag).then(|| format!("tool {name:?}")));
            }
        }
        let all = [&found.private, &found.untrusted, &found.outward];
        let has_all = all.iter().all(|places| !places.is_empty());
        has_all.then_some(found)
    }
}

impl fmt::Display for LethalTrifecta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (private, untrusted) = (self.private.join(", "), self.untrusted.join(", "));
        let outward = self.outward.join(", ");
        write!(
            f,
            "private data ({private}), untrusted content ({untrusted}) and a way outward ({outward}) meet in one agent, so \
             that what it reads could make it send away what it knows; take one of the three from it"
        )
    }
}

impl Trust {
    /// Reads the field of a definition.
    ///
    /// # Errors
    /// Returns [`AgentError`] for a value that is not a list of schemas.
    pub(super) fn read(definition: &Map<String, Value>) -> Result<Self, AgentError> {
        let field = "trust";
        let mut read = Self::default();
        let given = match definition.get(field) {
            None | Some(Value::Null) => return Ok(read),
            Some(Value::Object(given)) => given,
            Some(Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                let expected = "an object";
                return Err(AgentError::Field { field, expected });
            }
        };
        for (name, schemas) in given {
            let (field, place) = match &**name {
                "private" => ("trust.private", &mut read.private),
                "untrusted" => ("trust.untrusted", &mut read.untrusted),
                "outward" => ("trust.outward", &mut read.outward),
                // The check of the fields refuses it.
                _ => continue,
            };
            let expected = "a list of schema names";
            *place =
                Vec::deserialize(schemas).map_err(|_| AgentError::Field { field, expected })?;
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Selector, Subscription};
    use proptest::prelude::*;
    use serde_json::json;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    fn reads(schemas: &[&str]) -> Subscriptions {
        let sources = schemas
            .iter()
            .map(|&schema| Subscription::context(schema).key(schema));
        let trigger = Subscription::trigger("user.message.v1");
        Subscriptions::new(sources.chain([trigger])).unwrap()
    }

    fn trust() -> Trust {
        Trust {
            private: strings(&["customer.v1"]),
            untrusted: strings(&["page.v1", "user.message.v1"]),
            outward: strings(&["mail.v1"]),
        }
    }

    #[test]
    fn an_agent_that_has_all_three_is_told_what_they_are() {
        let tags = [
            strings(&["untrusted", "egress"]),
            strings(&["private", "disk"]),
        ];
        let tools = [("browser", &*tags[0]), ("files", &*tags[1])];

        let found = LethalTrifecta::find(
            &reads(&["customer.v1"]),
            &trust(),
            |schema| schema == "mail.v1",
            tools,
        );

        let found = found.unwrap();
        assert_eq!(found.private, ["schema \"customer.v1\"", "tool \"files\""]);
        assert_eq!(
            found.untrusted,
            ["schema \"user.message.v1\"", "tool \"browser\""]
        );
        assert_eq!(found.outward, ["schema \"mail.v1\"", "tool \"browser\""]);
        for place in found
            .private
            .iter()
            .chain(&found.untrusted)
            .chain(&found.outward)
        {
            assert!(found.to_string().contains(place), "{found}");
        }
    }

    #[test]
    fn what_an_agent_neither_reads_nor_writes_is_no_concern() {
        let all = reads(&["customer.v1"]);
        let mail = |schema: &str| schema == "mail.v1";
        let notes = |schema: &str| schema == "note.v1";

        assert!(LethalTrifecta::find(&all, &trust(), mail, []).is_some());
        assert_eq!(
            LethalTrifecta::find(&reads(&["order.v1"]), &trust(), mail, []),
            None
        );
        assert_eq!(LethalTrifecta::find(&all, &trust(), notes, []), None);
        assert_eq!(
            LethalTrifecta::find(&all, &Trust::default(), mail, []),
            None
        );
    }

    #[test]
    fn a_subscription_without_a_schema_may_bring_any() {
        let mut trigger = Subscription::trigger("any");
        trigger.selector = Selector::any().any_tags(["inbox"]);
        let any = Subscriptions::new(vec![trigger]).unwrap();

        assert!(LethalTrifecta::find(&any, &trust(), |schema| schema == "mail.v1", []).is_some());
    }

    #[test]
    fn the_trust_of_a_definition_is_read_and_what_is_wrong_with_it_is_named() {
        let read = |trust: Value| Trust::read(json!({"trust": trust}).as_object().unwrap());

        assert_eq!(read(Value::Null).unwrap(), Trust::default());
        let said = read(
            json!({"private": ["customer.v1"], "untrusted": ["page.v1", "user.message.v1"], "outward": ["mail.v1"]}),
        );
        assert_eq!(said.unwrap(), trust());
        for (given, named) in [
            (json!({"private": "customer.v1"}), "\"trust.private\""),
            (json!(["customer.v1"]), "\"trust\""),
        ] {
            let error = read(given).unwrap_err();

            assert!(error.to_string().contains(named), "{error}");
        }
    }

    proptest! {
        #[test]
        fn it_is_there_exactly_if_each_of_the_three_is(
            tools in prop::collection::vec(any::<[bool; 3]>(), 0..5),
        ) {
            let names = [LethalTrifecta::PRIVATE, LethalTrifecta::UNTRUSTED, LethalTrifecta::EGRESS];
            let tags: Vec<Vec<String>> = tools.iter().map(|has| {
                let carried = names.iter().zip(has).filter(|(_, has)| **has);
                carried.map(|(name, _)| (*name).to_owned()).collect()
            }).collect();

            let tagged = tags.iter().map(|tags| ("tool", &**tags));
            let found = LethalTrifecta::find(&reads(&[]), &Trust::default(), |_| false, tagged);

            let each = (0..3).all(|which| tools.iter().any(|has| has[which]));
            prop_assert_eq!(found.is_some(), each);
        }
    }
}
