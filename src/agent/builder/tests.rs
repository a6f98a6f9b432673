mod named;

use super::*;
use crate::agent::ScriptedModel;
use crate::agent::definition::AGENT_FIELDS;
use crate::executor::InvalidExecutor;
use crate::model::{Condition, Role, Subscriptions};
use crate::store::MemoryStore;
use crate::tool::{json_tool, role};
use serde_json::json;
use std::error::Error;
use std::num::NonZeroU32;
use std::time::Duration;

fn tool(name: &str) -> impl Tool + use<> {
    json_tool(name, "Finds an order.", json!({}), |input, _| async move {
        Ok(input)
    })
}

fn plain() -> Agent {
    Agent::new("helper", ScriptedModel::new(["Hi"])).on(Subscription::trigger("user.message.v1"))
}

fn budgets() -> Budgets {
    Budgets {
        tokens: Some(10_000),
        calls: Some(20),
        seconds: None,
    }
}

fn capabilities() -> AgentCapabilities {
    AgentCapabilities {
        can_update_own: true,
        ..AgentCapabilities::default()
    }
}

fn trust() -> Trust {
    Trust {
        private: vec!["order.v1".to_owned()],
        ..Trust::default()
    }
}

fn wait() -> WaitSeconds {
    WaitSeconds {
        people: NonZeroU32::new(60).unwrap(),
        ..WaitSeconds::default()
    }
}

/// A rule for large amounts.
fn rule() -> Approval {
    Approval::when_args(Condition::new("$.amount", "gt", Some(json!(100))))
        .by(role("finance"))
        .by("ann")
        .expires_in(Duration::from_secs(3_600))
}

/// An agent with an argument for each method that sets a field.
fn full() -> Agent {
    plain()
        .instructions("Help people with their orders.")
        .reads(Subscription::context("order.v1").key("orders").recent(5))
        .tool(tool("find_order"))
        .tool(tool("refund"))
        .responds_with(["agent.response.v1", "note.v1"])
        .model("large")
        .temperature(0.5)
        .context_format(Format::Xml)
        .context_budget(ContextBudget::default().tokens(8_000).items_per_source(20))
        .capabilities(capabilities())
        .trust(trust())
        .max_turns(7)
        .budgets(budgets())
        .output_schema(json!({"type": "object"}))
        .tool_calls(ToolCalls::Breadcrumbs)
        .returns_to_user(["find_order"])
        .uses("billing", "Answers questions about invoices.")
        .hands_off_to("returns", "")
        .delegates_to("manager", "Decides complaints.")
        .output(OutputSlot::new("report", "A summary.").required())
        .reminders(2)
        .needs_approval(["refund"])
        .approval_rule("find_order", rule())
        .approved_by(["ann"])
        .wait_seconds(wait())
}

fn definition() -> Value {
    json!({
        "agent_id": "helper",
        "system_prompt": "Help people with their orders.",
        "subscriptions": [
            {"schema_name": "user.message.v1", "role": "trigger"},
            {"schema_name": "order.v1", "role": "context", "key": "orders", "fetch": {"method": "recent", "limit": 5}},
        ],
        "tools": ["find_order", "refund"],
        "responds_with": ["agent.response.v1", "note.v1"],
        "model": "large",
        "temperature": 0.5,
        "context_format": "xml",
        "context_budget": {"tokens": 8_000, "items_per_source": 20},
        "capabilities": {"can_update_own": true},
        "trust": {"private": ["order.v1"]},
        "max_turns": 7,
        "budgets": {"tokens": 10_000, "calls": 20},
        "output_schema": {"type": "object"},
        "tool_calls": "breadcrumbs",
        "return_to_user": ["find_order"],
        "use": [{"agent": "billing", "description": "Answers questions about invoices."}],
        "handoff": ["returns"],
        "delegate": [{"agent": "manager", "description": "Decides complaints."}],
        "outputs": [{"name": "report", "description": "A summary.", "required": true}],
        "reminders": 2,
        "approval": {
            "tools": ["refund", {
                "tool": "find_order", "when": [{"path": "$.amount", "op": "gt", "value": 100}],
                "by": ["role:finance", "ann"], "expires_in_seconds": 3_600,
            }],
            "by": ["ann"],
        },
        "wait_seconds": {"people": 60},
    })
}

/// The parts of an agent that a definition decides, apart from its text. A new field of `AgentDefinition` breaks this function.
fn parts(agent: &AgentExecutor) -> Vec<(&'static str, String)> {
    let AgentDefinition {
        agent_id,
        model,
        llm_config_id,
        temperature,
        system_prompt,
        subscriptions,
        context_format,
        context_budget,
        responds_with,
        creates_any_schema,
        requests_tools,
        uses_any_tool,
        capabilities,
        trust,
        tools,
        max_turns,
        budgets,
        output_schema,
        tool_calls,
        return_to_user,
        uses,
        handoff,
        delegate,
        outputs,
        reminders,
        approval,
        wait_seconds,
        warnings,
        text: _,
    } = agent.definition().clone();
    vec![
        ("agent_id", agent_id),
        ("model", format!("{model:?}")),
        ("llm_config_id", format!("{llm_config_id:?}")),
        ("temperature", format!("{temperature:?}")),
        ("system_prompt", system_prompt),
        ("subscriptions", format!("{:?}", subscriptions.as_slice())),
        ("context_format", format!("{context_format:?}")),
        ("context_budget", format!("{context_budget:?}")),
        ("responds_with", format!("{responds_with:?}")),
        (
            "rules of RCRT servers",
            format!("{creates_any_schema} {requests_tools} {uses_any_tool}"),
        ),
        ("capabilities", format!("{capabilities:?}")),
        ("trust", format!("{trust:?}")),
        ("tools", format!("{tools:?}")),
        ("max_turns", max_turns.to_string()),
        ("budgets", format!("{budgets:?}")),
        ("output_schema", format!("{output_schema:?}")),
        ("tool_calls", format!("{tool_calls:?}")),
        ("return_to_user", format!("{return_to_user:?}")),
        ("agents", format!("{uses:?} {handoff:?} {delegate:?}")),
        ("outputs", format!("{outputs:?}")),
        ("reminders", reminders.to_string()),
        ("approval", format!("{approval:?}")),
        ("wait_seconds", format!("{wait_seconds:?}")),
        ("warnings", format!("{warnings:?}")),
    ]
}

#[test]
fn the_builder_and_the_definition_make_the_same_agent() {
    let store = MemoryStore::default();
    let built = full().bind(&store).unwrap();

    let tools = ToolRegistry::default().with(tool("find_order")).unwrap();
    let tools = tools.with(tool("refund")).unwrap();
    let read = AgentDefinition::from_json(&definition()).unwrap();
    let model = Arc::new(ScriptedModel::new(["Hi"]));
    let read = AgentExecutor::with_tools(read, model, Arc::new(store), &tools).unwrap();

    for (built, read) in parts(&built).iter().zip(parts(&read)) {
        assert_eq!(*built, read);
    }
}

#[test]
fn each_method_sets_its_field() {
    let agent = full().bind(&MemoryStore::default()).unwrap();

    let set = agent.definition();
    assert_eq!(set.agent_id, "helper");
    assert_eq!(set.system_prompt, "Help people with their orders.");
    assert_eq!(set.subscriptions.as_slice().len(), 2);
    assert_eq!(set.tools, ["find_order", "refund"]);
    assert_eq!(set.responds_with, ["agent.response.v1", "note.v1"]);
    assert_eq!(set.model.as_deref(), Some("large"));
    assert_eq!(set.temperature, Some(0.5));
    assert_eq!(set.context_format, Format::Xml);
    assert_eq!(set.context_budget.fields()["tokens"], 8_000);
    assert_eq!(set.capabilities, Some(capabilities()));
    assert_eq!(set.trust, trust());
    assert_eq!(set.max_turns, 7);
    assert_eq!(set.budgets, budgets());
    assert_eq!(set.output_schema.as_ref().unwrap()["type"], "object");
    assert_eq!(set.tool_calls, ToolCalls::Breadcrumbs);
    assert_eq!(set.return_to_user, ["find_order"]);
    assert_eq!(set.uses[0].agent, "billing");
    assert_eq!(set.handoff[0].description, None);
    assert_eq!(set.delegate[0].agent, "manager");
    assert!(set.outputs[0].required);
    assert_eq!(set.reminders, 2);
    let rules = set.approval.tools.iter();
    let rules: Vec<_> = rules.map(|one| (&*one.tool, one.rule.clone())).collect();
    assert_eq!(
        rules,
        [("refund", Approval::always()), ("find_order", rule())]
    );
    assert_eq!(set.approval.by, ["ann"]);
    assert_eq!(set.wait_seconds, wait());
    assert!(set.warnings().is_empty(), "{:?}", set.warnings());
}

#[test]
fn every_field_of_a_definition_has_a_method() {
    let written = full().definition().unwrap();

    // A list of subscriptions can also be in the field `selectors`.
    let fields = AGENT_FIELDS
        .names
        .iter()
        .filter(|name| **name != "selectors");
    let missing: Vec<_> = fields.filter(|name| written.get(name).is_none()).collect();
    assert!(missing.is_empty(), "no method sets {missing:?}");
}

#[test]
fn a_definition_of_the_builder_can_be_saved_and_read() {
    let saved = full().definition().unwrap();

    let read = Subscriptions::from_json(&saved).unwrap();

    assert_eq!(read.as_slice()[1].role, Role::Context);
    assert!(AgentDefinition::from_json(&saved).is_ok());
}

#[test]
fn a_subscription_of_the_wrong_role_is_an_error_that_names_the_method() {
    let agent = plain().reads(Subscription::trigger("order.v1"));

    let error = agent.bind(&MemoryStore::default()).unwrap_err();

    let source = error.source().unwrap().to_string();
    assert!(
        source.contains(".on(..)") && source.contains("order.v1"),
        "{source}"
    );
}

#[test]
fn an_agent_without_a_trigger_is_refused() {
    let agent = Agent::new("helper", ScriptedModel::new(["Hi"]));

    let error = agent.bind(&MemoryStore::default()).unwrap_err();

    let is_expected = matches!(&error, AgentError::Invalid(InvalidExecutor::NoTrigger { executor }) if executor == "helper");
    assert!(is_expected, "{error:?}");
}

#[test]
fn the_first_bad_argument_is_reported() {
    let twice = plain().tool(tool("refund")).tool(tool("refund"));
    let error = twice.temperature(f64::NAN).definition().unwrap_err();
    assert!(
        matches!(&error, AgentError::BadTool { tool, .. } if tool == "refund"),
        "{error:?}"
    );

    let error = plain().temperature(f64::NAN).definition().unwrap_err();
    assert!(error.to_string().contains("\"temperature\""), "{error}");

    let error = plain()
        .max_turns(0)
        .bind(&MemoryStore::default())
        .unwrap_err();
    assert!(error.to_string().contains("\"max_turns\""), "{error}");
}

#[test]
fn a_rule_in_code_belongs_to_the_tool_and_not_to_the_definition() {
    let in_code = || Approval::when(|_: &Value| true);

    let error = plain()
        .tool(tool("refund"))
        .approval_rule("refund", in_code());
    let error = error.definition().unwrap_err().to_string();
    assert!(
        error.contains("\"approval\"") && error.contains("needs_approval"),
        "{error}"
    );

    let refund = json_tool("refund", "", json!({}), |input, _| async move { Ok(input) });
    let rule = in_code();
    let agent = plain().tool(refund.needs_approval(rule.clone()));
    let agent = agent.bind(&MemoryStore::default()).unwrap();
    let rules = &agent.definition().approval.tools;
    assert_eq!((rules.len(), &rules[0].rule), (1, &rule));
}

#[test]
fn a_rule_for_a_tool_that_the_agent_does_not_have_is_refused() {
    let agent = plain().tool(tool("refund")).approval_rule("pay", rule());

    let error = agent.bind(&MemoryStore::default()).unwrap_err();

    let is_expected = matches!(&error, AgentError::UnknownTool { tool, .. } if tool == "pay");
    assert!(is_expected, "{error:?}");
}

#[test]
fn the_settings_of_the_service_reach_the_agent() {
    let agent = plain()
        .profile(|profile| profile.attempts(2))
        .profile(|profile| profile.hop_limit(3))
        .bind(&MemoryStore::default())
        .unwrap();

    let profile = crate::UniversalExecutor::profile(&agent);
    assert_eq!(
        (profile.retry.attempts, profile.hop_limit, &*profile.kind),
        (2, 3, "agent")
    );
}
