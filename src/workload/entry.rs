use crate::error::{Retry, excerpt};
use crate::model::nearest;
use crate::workflow::Workflow;

/// The flow or agent that a run of a workload definition starts with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Entry {
    /// The name of the flow that a run starts with.
    Flow(String),
    /// The name of the agent that a run starts with.
    Agent(String),
}

/// Choice of the flow or agent that starts a run if neither the caller nor the workload definition names one.
///
/// [`FlowDefinition::with_entry`](super::FlowDefinition::with_entry) has an example.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum EntryPolicy {
    /// Selects none of several flows or agents: fails with [`EntryError::Ambiguous`], so that the caller names one.
    #[default]
    Ask,
    /// Selects the flow with the alphabetically first name, otherwise the agent with the first name. A definition has
    /// no other order.
    First,
}

/// Error returned when the flow or agent that starts a run cannot be determined.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// No flow or agent of the workflow has the requested name.
    #[error("unknown flow or agent {name:?}{}; known: {candidates}", nearest.as_ref().map_or(String::new(), |name| format!("; did you mean {name:?}?")))]
    Unknown {
        /// The requested flow or agent name, at most 80 bytes of it.
        name: String,
        /// The most similar name of a flow or agent, if there is one.
        nearest: Option<String>,
        /// The names of all flows and agents of the workflow, separated by commas.
        candidates: String,
    },
    /// Several flows or agents can start a run, and none is selected or named `main` or `default`.
    #[error(
        "several flows or agents can start a run, and none is named \"main\"; rename one to \"main\", or select one with \
         FlowDefinition::with_entry, with a workload reference such as \"writer#review\", or with the field \"flow\" of the \
         workflow.def.v1 definition; candidates: {candidates}"
    )]
    Ambiguous {
        /// The names of the flows and agents that can start the run, separated by commas.
        candidates: String,
    },
    /// The workflow definition has no flows and no agents.
    #[error("the workflow definition has neither flows nor agents; add one")]
    Empty,
}

impl EntryError {
    /// Returns [`Retry::Never`]: the workflow definition or the requested name has to change.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        Retry::Never
    }
}

/// Selects the flow or agent that starts a run of a workflow: the one that the caller names, otherwise a default. The
/// default is the first existing one in this order: the flow `main`, the flow `default`, the agent `main`, the agent
/// `default`, the only flow, the only agent of a workflow without flows, and last the flow or agent that `policy`
/// selects. A name of both a flow and an agent means the flow.
///
/// # Errors
/// Returns an [`EntryError`] with the known names.
pub(crate) fn select_entry(
    workflow: &Workflow,
    named: Option<&str>,
    policy: EntryPolicy,
) -> Result<Entry, EntryError> {
    let flows: Vec<&str> = workflow.flows().map(|flow| flow.name).collect();
    let agents: Vec<&str> = workflow.agents.keys().map(String::as_str).collect();
    let flow = |name: &str| flows.contains(&name).then(|| Entry::Flow(name.to_owned()));
    let agent = |name: &str| {
        agents
            .contains(&name)
            .then(|| Entry::Agent(name.to_owned()))
    };
    let candidates = || {
        flows
            .iter()
            .chain(&agents)
            .copied()
            .collect::<Vec<_>>()
            .join(", ")
    };
    if let Some(name) = named {
        return flow(name)
            .or_else(|| agent(name))
            .ok_or_else(|| EntryError::Unknown {
                name: excerpt(name, 80).into_owned(),
                nearest: nearest(name, flows.iter().chain(&agents).copied()).map(str::to_owned),
                candidates: candidates(),
            });
    }
    let known = flow("main").or_else(|| flow("default"));
    let known = known.or_else(|| agent("main")).or_else(|| agent("default"));
    if let Some(known) = known {
        return Ok(known);
    }
    match (flows.as_slice(), agents.as_slice(), policy) {
        ([], [], _) => Err(EntryError::Empty),
        ([only], _, _) => Ok(Entry::Flow((*only).to_owned())),
        ([], [only], _) => Ok(Entry::Agent((*only).to_owned())),
        ([first, ..], _, EntryPolicy::First) => Ok(Entry::Flow((*first).to_owned())),
        ([], [first, ..], EntryPolicy::First) => Ok(Entry::Agent((*first).to_owned())),
        (_, _, EntryPolicy::Ask) => Err(EntryError::Ambiguous {
            candidates: candidates(),
        }),
    }
}

/// Selects the flow or agent that a workflow request starts: the one that the request names, otherwise a default. The
/// default is the flow `main`, the flow `default` or the only flow, and an agent only in a workflow without flows.
///
/// # Errors
/// Returns the errors of [`select_entry`].
pub(crate) fn select_entry_of_request(
    workflow: &Workflow,
    named: Option<&str>,
) -> Result<Entry, EntryError> {
    let flows: Vec<&str> = workflow.flows().map(|flow| flow.name).collect();
    if flows.is_empty() || named.is_some() {
        return select_entry(workflow, named, EntryPolicy::Ask);
    }
    let known = |name: &str| flows.iter().find(|flow| **flow == name);
    match (known("main").or_else(|| known("default")), flows.as_slice()) {
        (Some(flow), _) | (None, [flow]) => Ok(Entry::Flow((*flow).to_owned())),
        (None, _) => Err(EntryError::Ambiguous {
            candidates: flows.join(", "),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value, json};

    fn workflow(flows: &[&str], agents: &[&str]) -> Workflow {
        let all = |names: &[&str], value: &Value| -> Value {
            let named = names.iter().map(|name| ((*name).to_owned(), value.clone()));
            named.collect::<Map<_, _>>().into()
        };
        let definition = json!({
            "flows": all(flows, &json!({"steps": [{"return": 1}]})),
            "agents": all(agents, &json!({"instruction": "Help."})),
        });
        Workflow::from_json(&definition).unwrap()
    }

    #[test]
    fn the_entry_of_a_run_is_selected_by_a_fixed_precedence() {
        let flow = |name: &str| Some(Entry::Flow(name.to_owned()));
        let agent = |name: &str| Some(Entry::Agent(name.to_owned()));
        let (ask, first) = (EntryPolicy::Ask, EntryPolicy::First);
        let table = [
            (
                vec!["default", "main"],
                vec!["main"],
                None,
                ask,
                flow("main"),
            ),
            (
                vec!["default", "x"],
                vec!["main"],
                None,
                ask,
                flow("default"),
            ),
            (
                vec!["x", "y"],
                vec!["default", "main"],
                None,
                ask,
                agent("main"),
            ),
            (vec!["x", "y"], vec!["default"], None, ask, agent("default")),
            (vec!["x"], vec!["a", "b"], None, ask, flow("x")),
            (vec![], vec!["a"], None, ask, agent("a")),
            (vec!["x", "y"], vec!["a"], None, ask, None),
            (vec![], vec!["a", "b"], None, ask, None),
            (vec!["y", "x"], vec!["a"], None, first, flow("x")),
            (vec![], vec!["b", "a"], None, first, agent("a")),
            (vec!["main", "x"], vec![], Some("x"), ask, flow("x")),
            (vec!["main"], vec!["a"], Some("a"), first, agent("a")),
            (vec!["main"], vec!["a"], Some("c"), first, None),
        ];
        for (flows, agents, named, policy, expected) in table {
            let found = select_entry(&workflow(&flows, &agents), named, policy);

            assert_eq!(
                found.ok(),
                expected,
                "{flows:?} {agents:?} {named:?} {policy:?}"
            );
        }
    }

    #[test]
    fn a_request_begins_with_a_flow_if_there_is_any() {
        let flow = |name: &str| Some(Entry::Flow(name.to_owned()));
        let agent = |name: &str| Some(Entry::Agent(name.to_owned()));
        let table = [
            (vec!["review"], vec!["main"], None, flow("review")),
            (vec!["default", "main"], vec!["main"], None, flow("main")),
            (vec!["default", "x"], vec!["main"], None, flow("default")),
            (vec!["x", "y"], vec!["main"], None, None),
            (vec!["x", "y"], vec!["main"], Some("y"), flow("y")),
            (vec![], vec!["main", "a"], None, agent("main")),
            (vec![], vec!["a"], None, agent("a")),
        ];
        for (flows, agents, named, expected) in table {
            let found = select_entry_of_request(&workflow(&flows, &agents), named);

            assert_eq!(found.ok(), expected, "{flows:?} {agents:?} {named:?}");
        }
    }

    #[test]
    fn an_unknown_entry_is_an_error_that_lists_the_known_entries() {
        let error = select_entry(
            &workflow(&["review"], &["critic"]),
            Some("reviev"),
            EntryPolicy::Ask,
        );
        let none = select_entry(&workflow(&["x", "y"], &[]), None, EntryPolicy::Ask);

        let message =
            "unknown flow or agent \"reviev\"; did you mean \"review\"?; known: review, critic";
        assert_eq!(error.unwrap_err().to_string(), message);
        assert!(none.unwrap_err().to_string().ends_with("candidates: x, y"));
    }
}
