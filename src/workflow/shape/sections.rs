//! What stands beside the flows of a definition.

use super::steps::FLOW;
use super::{Field, Form, Object, Way, optional, required};

pub(in crate::workflow) static WORKFLOW: Object = Object {
    name: "workflow",
    about: "A workflow: agents, tools, models and people in steps.",
    ways: &[Way {
        fields: &[&[
            optional("name", &Form::Text, "What it is called."),
            optional("description", &Form::Text, "What it is good for."),
            optional("models", &MODELS, "Models by name."),
            optional(
                "prompts",
                &Form::Named(&Form::Text),
                "Texts for agents and models by name.",
            ),
            optional(
                "schemas",
                &Form::Named(&Form::JsonSchema),
                "JSON Schemas by name.",
            ),
            optional(
                "tools",
                &TOOLS,
                "Tools that agents and steps may use, by name.",
            ),
            optional("agents", &AGENTS, "Agents by name."),
            optional("flows", &FLOWS, "Flows by name."),
            optional("policies", &POLICIES_FORM, "What holds for all of it."),
        ]],
    }],
};

pub(in crate::workflow) static MODEL: Object = Object {
    name: "model",
    about: "A model.",
    ways: &[Way {
        fields: &[&[
            optional(
                "provider",
                &Form::Text,
                "The name under which the service has registered it; the service's own choice if absent.",
            ),
            optional("model", &Form::Text, "What the provider calls it."),
            optional("temperature", &Form::Number, "How freely it answers."),
            optional(
                "max_tokens",
                &Form::Whole(1, u64::MAX),
                "How many tokens it may write at the most.",
            ),
        ]],
    }],
};

pub(in crate::workflow) static TOOL: Object = Object {
    name: "tool",
    about: "A tool that the workflow may use.",
    ways: &[Way {
        fields: &[&[
            optional(
                "tool",
                &Form::Text,
                "The name under which the service has registered it; the same name if absent.",
            ),
            optional(
                "description",
                &Form::Text,
                "What it is good for, for models.",
            ),
            optional(
                "approval",
                &Form::Flag,
                "Whether people have to agree to each call; false by default.",
            ),
        ]],
    }],
};

pub(in crate::workflow) static AGENT: Object = Object {
    name: "agent",
    about: "An agent: a model with instructions, tools and colleagues.",
    ways: &[Way {
        fields: &[&[
            optional(
                "description",
                &Form::Text,
                "What it is good for, for other agents.",
            ),
            required(
                "instruction",
                &INSTRUCTION,
                "What its author tells the model.",
            ),
            optional("model", &Form::Text, "Its model, by a name of \"models\"."),
            optional(
                "tools",
                &Form::Texts,
                "The tools it may call, by names of \"tools\".",
            ),
            optional(
                "delegate",
                &Form::Texts,
                "The agents that it may leave the rest to.",
            ),
            optional(
                "use",
                &Form::Texts,
                "The agents that it may call as it calls tools.",
            ),
            optional(
                "output",
                &Form::Text,
                "The schema of its answers, by a name of \"schemas\".",
            ),
            optional(
                "history",
                &HISTORY,
                "What of the conversation of its session it is shown: all, none, or so many of the last messages.",
            ),
            optional(
                "permissions",
                &PERMISSIONS_FORM,
                "What it may do beside calling its tools.",
            ),
        ]],
    }],
};

pub(in crate::workflow) static PROMPT: Object = Object {
    name: "prompt",
    about: "A text that stands in \"prompts\".",
    ways: &[Way {
        fields: &[&[required("prompt", &Form::Text, "Its name there.")]],
    }],
};

pub(in crate::workflow) static PERMISSIONS: Object = Object {
    name: "permissions",
    about: "What an agent may do beside calling its tools.",
    ways: &[Way {
        fields: &[&[
            optional(
                "writes",
                &Form::Texts,
                "The schemas that it may write; none by default.",
            ),
            optional(
                "approval",
                &Form::Texts,
                "Those of its tools of which each call needs people to agree.",
            ),
        ]],
    }],
};

pub(in crate::workflow) static POLICIES: Object = Object {
    name: "policies",
    about: "What holds for all of a workflow.",
    ways: &[Way {
        fields: &[&[
            optional(
                "retry",
                &RETRIES,
                "For steps that run an agent, a tool or a model and say nothing else; by default they are tried once.",
            ),
            optional(
                "timeout_seconds",
                &Form::Seconds,
                "How long such a step may take.",
            ),
            optional(
                "compaction",
                &COMPACTION_FORM,
                "How a conversation that became too long is made shorter.",
            ),
            optional(
                "guardrails",
                &GUARDRAILS_FORM,
                "Guardrails by the names under which the service has registered them.",
            ),
            optional(
                "limits",
                &LIMITS_FORM,
                "What one run may use up at the most.",
            ),
        ]],
    }],
};

/// How often something is tried: a number, or an object with the delays as well.
pub(super) static RETRIES: Form = Form::Either(&[&Form::Whole(1, 100), &RETRY_FORM]);

pub(in crate::workflow) static RETRY: Object = Object {
    name: "retry",
    about: "How often a step is tried, and how long is waited in between.",
    ways: &[Way {
        fields: &[&[
            required("attempts", &Form::Whole(1, 100), "How often at the most."),
            optional(
                "base_seconds",
                &Form::Seconds,
                "How long before the second attempt; it doubles with each further one. 1 by default.",
            ),
            optional(
                "cap_seconds",
                &Form::Seconds,
                "How long at the most; 60 by default.",
            ),
        ]],
    }],
};

/// By leaving out what is oldest, and by a summary of it.
pub(in crate::workflow) const COMPACTION_METHODS: [&str; 2] = ["truncate", "summarise"];

pub(in crate::workflow) static COMPACTION: Object = Object {
    name: "compaction",
    about: "How a conversation that became too long is made shorter.",
    ways: &[
        Way {
            fields: &[
                &[required(
                    "method",
                    &Form::Word(&[COMPACTION_METHODS[0]]),
                    "The oldest is left out.",
                )],
                &COMPACTED,
            ],
        },
        Way {
            fields: &[
                &[required(
                    "method",
                    &Form::Word(&[COMPACTION_METHODS[1]]),
                    "A model sums the oldest up.",
                )],
                &COMPACTED,
                &[optional(
                    "model",
                    &Form::Text,
                    "That model, by a name of \"models\".",
                )],
            ],
        },
    ],
};

static COMPACTED: [Field; 2] = [
    required(
        "at_tokens",
        &Form::Whole(1, u64::MAX),
        "From how many tokens on, as they are estimated.",
    ),
    optional(
        "keep",
        &Form::Whole(1, 10_000),
        "How many of the last messages stay as they are; 10 by default.",
    ),
];

pub(in crate::workflow) static GUARDRAILS: Object = Object {
    name: "guardrails",
    about: "Guardrails by name, for each place where they stand.",
    ways: &[Way {
        fields: &[&[
            optional("input", &Form::Texts, "Before a model is asked."),
            optional("output", &Form::Texts, "Before an answer is used."),
            optional("tool_call", &Form::Texts, "Before a tool is called."),
            optional(
                "tool_result",
                &Form::Texts,
                "Before a model sees what a tool said.",
            ),
        ]],
    }],
};

pub(in crate::workflow) static LIMITS: Object = Object {
    name: "limits",
    about: "What one run may use up at the most.",
    ways: &[Way {
        fields: &[&[
            optional(
                "steps",
                &Form::Whole(1, 1_000_000),
                "Steps that begin; 10,000 by default.",
            ),
            optional(
                "items",
                &Form::Whole(1, 10_000),
                "Items of one for_each; 1,000 by default.",
            ),
            optional(
                "value_bytes",
                &Form::Whole(1_024, 1 << 20),
                "Bytes of one value, as JSON; 262,144 by default.",
            ),
            optional(
                "total_bytes",
                &Form::Whole(1_024, 64 << 20),
                "Bytes of all values of a run together, as JSON; 4,194,304 by default.",
            ),
        ]],
    }],
};

static MODELS: Form = Form::Named(&MODEL_FORM);
static TOOLS: Form = Form::Named(&TOOL_FORM);
static AGENTS: Form = Form::Named(&AGENT_FORM);
static FLOWS: Form = Form::Named(&FLOW_FORM);
static MODEL_FORM: Form = Form::Object(&MODEL);
static TOOL_FORM: Form = Form::Object(&TOOL);
static AGENT_FORM: Form = Form::Object(&AGENT);
static FLOW_FORM: Form = Form::Object(&FLOW);
static PROMPT_FORM: Form = Form::Object(&PROMPT);
static PERMISSIONS_FORM: Form = Form::Object(&PERMISSIONS);
static POLICIES_FORM: Form = Form::Object(&POLICIES);
static RETRY_FORM: Form = Form::Object(&RETRY);
static COMPACTION_FORM: Form = Form::Object(&COMPACTION);
static GUARDRAILS_FORM: Form = Form::Object(&GUARDRAILS);
static LIMITS_FORM: Form = Form::Object(&LIMITS);
static INSTRUCTION: Form = Form::Either(&[&Form::Text, &PROMPT_FORM]);
static HISTORY: Form = Form::Either(&[&Form::Word(&["all", "none"]), &Form::Whole(1, 10_000)]);
