use super::AgentError;
use crate::model::Subscriptions;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// A dangerous combination in one agent: private data, untrusted content, and a way to send data out of the system. Untrusted content can
/// make such an agent send private data away.
///
/// The crate detects the combination when an agent is created, from its tools and subscriptions:
///
/// | | tools with the permission tag | schemas |
/// |---|---|---|
/// | private data | `private` | subscribed schemas in [`Trust::private`] |
/// | untrusted content | `untrusted` | subscribed schemas in [`Trust::untrusted`] |
/// | a way to send data out | `egress` | schemas in [`Trust::outward`] that the agent may write |
///
/// One tool can have several of these tags. Only marked tools and schemas are detected, so an agent without a finding is not necessarily
/// safe.
///
/// The finding changes nothing: the agent runs. To remove it, take away one of the
/// three.
///
/// # Examples
/// ```
/// use universal_executor::agent::{Agent, ScriptedModel, Trust};
/// use universal_executor::{MemoryStore, Subscription};
///
/// let mut trust = Trust::default();
/// trust.private = vec!["customer.v1".to_owned()];
/// trust.untrusted = vec!["mail.v1".to_owned()];
/// trust.outward = vec!["agent.response.v1".to_owned()];
/// let agent = Agent::new("support", ScriptedModel::new(["Hello!"]))
///     .on(Subscription::trigger("mail.v1"))
///     .reads(Subscription::context("customer.v1").key("customer"))
///     .trust(trust)
///     .bind(&MemoryStore::default())?;
///
/// let found = agent.lethal_trifecta().ok_or("no finding")?;
/// assert_eq!(found.untrusted, [r#"schema "mail.v1""#]);
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct LethalTrifecta {
    /// The agent's sources of private data, such as `tool "crm"` or `schema "customer.v1"`. Never empty.
    pub private: Vec<String>,
    /// The agent's sources of untrusted content, in the same form as the sources of private data. Never empty.
    pub untrusted: Vec<String>,
    /// The agent's ways to send data out of the system, in the same form as the sources of private data. Never empty.
    pub outward: Vec<String>,
}

/// Trust levels of the schemas that an agent uses: the field `trust` of its definition. All lists are empty by default.
///
/// The lists mark schemas for [`LethalTrifecta`]; apart from `user.message.v1` in `untrusted`, they
/// change no run. The field names in JSON are `private`, `untrusted` and `outward`.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::agent::AgentDefinition;
///
/// let definition = AgentDefinition::from_json(&json!({
///     "agent_id": "reader", "system_prompt": "Summarise mail.",
///     "subscriptions": [{"schema_name": "mail.v1", "role": "trigger"}],
///     "trust": {"untrusted": ["mail.v1"]},
/// }))?;
/// assert_eq!(definition.trust.untrusted, ["mail.v1"]);
/// assert!(definition.trust.private.is_empty());
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Trust {
    /// Schemas of breadcrumbs with private data.
    pub private: Vec<String>,
    /// Schemas of breadcrumbs with content from strangers, such as web pages, mail or user messages. If the list contains
    /// `user.message.v1`, the agent's model receives chat messages as data.
    pub untrusted: Vec<String>,
    /// Schemas whose breadcrumbs another component sends out of the system. Writing breadcrumbs of other schemas sends no data out, because
    /// these breadcrumbs stay in the store.
    pub outward: Vec<String>,
}

impl LethalTrifecta {
    /// The permission tag with which a tool's settings declare that the tool returns private data.
    ///
    /// Set it with the setting [`permission_tags`](crate::tool::ToolSettings::permission_tags) of
    /// the tool.
    pub const PRIVATE: &'static str = "private";

    /// The permission tag with which a tool's settings declare that the tool returns content from strangers.
    ///
    /// Examples are tools that read web pages or mail.
    pub const UNTRUSTED: &'static str = "untrusted";

    /// The permission tag with which a tool's settings declare that the tool sends data out of the system.
    ///
    /// Examples are tools that send mail or call a web address that the model chooses.
    pub const EGRESS: &'static str = "egress";

    /// Returns an agent's sources of private data, sources of untrusted content, and ways to send data out of the system. Returns `None`
    /// unless the agent has all three. `is_written` returns `true` for the schemas that the agent may write. `tools` has the names and
    /// permission tags of the agent's tools.
    ///
    /// A subscription without a schema can match any schema, so it counts as a subscription to all schemas in `trust`.
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
            "the agent has private data ({private}), untrusted content ({untrusted}) and a way to send data out ({outward}), so that \
             untrusted content could make it send private data away; remove one of the three"
        )
    }
}

impl Trust {
    /// Reads the field `trust` of an agent definition.
    ///
    /// # Errors
    /// Returns [`AgentError`] for a value that is not a list of schemas.
    pub(super) fn read(definition: &Map<String, Value>) -> Result<Self, AgentError> {
        let field = "trust";
        let mut trust = Self::default();
        let fields = match definition.get(field) {
            None | Some(Value::Null) => return Ok(trust),
            Some(Value::Object(fields)) => fields,
            Some(Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                let expected = "an object";
                return Err(AgentError::Field { field, expected });
            }
        };
        for (name, schemas) in fields {
            let (field, schema_list) = match &**name {
                "private" => ("trust.private", &mut trust.private),
                "untrusted" => ("trust.untrusted", &mut trust.untrusted),
                "outward" => ("trust.outward", &mut trust.outward),
                // The check of the definition's fields rejects unknown names.
                _ => continue,
            };
            let expected = "a list of schema names";
            *schema_list =
                Vec::deserialize(schemas).map_err(|_| AgentError::Field { field, expected })?;
        }
        Ok(trust)
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
    fn a_trifecta_names_its_private_untrusted_and_outward_sources() {
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
        for source in found
            .private
            .iter()
            .chain(&found.untrusted)
            .chain(&found.outward)
        {
            assert!(found.to_string().contains(source), "{found}");
        }
    }

    #[test]
    fn schemas_that_the_agent_does_not_use_cause_no_trifecta() {
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
    fn the_trust_of_a_definition_is_read_and_errors_name_the_field() {
        let read = |trust: Value| Trust::read(json!({"trust": trust}).as_object().unwrap());

        assert_eq!(read(Value::Null).unwrap(), Trust::default());
        let trust_result = read(
            json!({"private": ["customer.v1"], "untrusted": ["page.v1", "user.message.v1"], "outward": ["mail.v1"]}),
        );
        assert_eq!(trust_result.unwrap(), trust());
        for (definition, named) in [
            (json!({"private": "customer.v1"}), "\"trust.private\""),
            (json!(["customer.v1"]), "\"trust\""),
        ] {
            let error = read(definition).unwrap_err();

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
