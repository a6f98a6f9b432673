//! What flows and their steps are made of.

use super::parts::{BRANCH_LIST, CASES, EMIT_FORM, ESCALATIONS, TEST_FORM, WAIT_FOR_FORM};
use super::sections::RETRIES;
use super::{Field, Form, Object, Way, optional, required};

/// How branches end together, as it is written.
pub(in crate::workflow) const JOINS: [&str; 3] = ["all", "fail_fast", "first"];

/// The most branches of one `parallel`, and cases of one `match`.
pub(in crate::workflow) const BRANCHES: usize = 64;

/// Variables that are there by themselves.
pub(in crate::workflow) const RESERVED: [&str; 8] = [
    "input",
    "last",
    "error",
    "item",
    "index",
    "iteration",
    "result",
    "matched",
];

/// The most variables of one `set`.
pub(in crate::workflow) const VARIABLES: usize = 64;

pub(super) const ANY_NUMBER: usize = usize::MAX;

pub(in crate::workflow) static FLOW: Object = Object {
    name: "flow",
    about: "Steps one after another, or a graph of steps that each begin once all have ended which they depend on.",
    ways: &[
        Way {
            fields: &[
                &FLOW_FIELDS,
                &[
                    required("steps", &STEPS, "The steps."),
                    optional("dag", &Form::Only(false), "That it is no graph."),
                ],
            ],
        },
        Way {
            fields: &[
                &FLOW_FIELDS,
                &[
                    required("steps", &NODES, "The steps."),
                    required("dag", &Form::Only(true), "That it is a graph."),
                ],
                &GRAPH_AT_ONCE,
            ],
        },
        Way {
            fields: &[
                &FLOW_FIELDS,
                &[
                    required("steps", &DEPENDENT, "The steps."),
                    optional(
                        "dag",
                        &Form::Null,
                        "It is a graph, since one of its steps depends on others.",
                    ),
                ],
                &GRAPH_AT_ONCE,
            ],
        },
    ],
};

static GRAPH_AT_ONCE: [Field; 1] = [optional(
    "at_once",
    &AT_ONCE,
    "How many steps are under way at once; 8 by default.",
)];

static AT_ONCE: Form = Form::Whole(1, 256);

static FLOW_FIELDS: [Field; 3] = [
    optional("description", &Form::Text, "What it is good for."),
    optional(
        "input",
        &Form::Text,
        "The schema of what it is given, by a name of \"schemas\".",
    ),
    optional(
        "output",
        &Form::Text,
        "The schema of what it comes to, by a name of \"schemas\".",
    ),
];

/// What every step may have.
static EVERY: [Field; 3] = [
    optional(
        "id",
        &Form::Variable,
        "Its part of the path, and the variable that takes its result.",
    ),
    optional(
        "as",
        &Form::Variable,
        "The variable that takes its result, if not the id.",
    ),
    COMMENT,
];

pub(super) const COMMENT: Field = optional("comment", &Form::Any, "For people.");

const INPUT: Field = optional(
    "input",
    &Form::Any,
    "What it is given; all that the flow was given if absent.",
);

const MODEL_INPUT: Field = optional(
    "input",
    &Form::Any,
    "The task and data of the model: a text is the task, and values of variables are fenced data; all that the flow was given if absent.",
);

/// What a step may have that a driver does.
static DRIVEN: [Field; 2] = [
    optional("retry", &RETRIES, "How often it is tried."),
    optional("timeout_seconds", &Form::Seconds, "How long it may take."),
];

static ESCALATE: [Field; 1] = [optional(
    "escalate",
    &ESCALATIONS,
    "What happens if its result is not what it should be; the first that holds takes it up.",
)];

const JOIN: Field = optional(
    "join",
    &Form::Word(&JOINS),
    "When they have ended together.",
);

/// The kinds of steps, each by the field that makes it one, which is its first.
pub(in crate::workflow) static STEP: Object = Object {
    name: "step",
    about: "A step of a flow.",
    ways: &[
        Way {
            fields: &[
                &[
                    required("agent", &Form::Text, "Runs the agent of this name."),
                    INPUT,
                ],
                &EVERY,
                &DRIVEN,
                &ESCALATE,
            ],
        },
        Way {
            fields: &[
                &[
                    required("tool", &Form::Text, "Runs the tool of this name."),
                    INPUT,
                ],
                &EVERY,
                &DRIVEN,
                &ESCALATE,
            ],
        },
        Way {
            fields: &[
                &[
                    required("model", &Form::Text, "Asks the model of this name."),
                    MODEL_INPUT,
                ],
                &ASKED,
                &EVERY,
                &DRIVEN,
                &ESCALATE,
            ],
        },
        Way {
            fields: &[
                &[
                    required(
                        "flow",
                        &Form::Text,
                        "Runs another flow, with variables of its own.",
                    ),
                    INPUT,
                ],
                &ESCALATE,
                &EVERY,
            ],
        },
        Way {
            fields: &[
                &[
                    required("parallel", &BRANCH_LIST, "Runs branches side by side."),
                    JOIN,
                ],
                &ESCALATE,
                &EVERY,
            ],
        },
        Way {
            fields: &[
                &[
                    required(
                        "for_each",
                        &Form::Any,
                        "Runs steps for each item of a list.",
                    ),
                    optional(
                        "item",
                        &Form::VariableOr("item"),
                        "The variable that has the item.",
                    ),
                    optional(
                        "at_once",
                        &AT_ONCE,
                        "How many items are under way at once; 8 by default.",
                    ),
                    JOIN,
                    required("steps", &STEPS, "What is done for each."),
                ],
                &ESCALATE,
                &EVERY,
            ],
        },
        Way {
            fields: &[
                &[
                    required("loop", &STEPS, "Repeats steps."),
                    required("max", &Form::Whole(1, 10_000), "How often at the most."),
                    optional("until", &TEST_FORM, "When no more."),
                ],
                &ESCALATE,
                &EVERY,
            ],
        },
        Way {
            fields: &[
                &[
                    required("if", &TEST_FORM, "A condition."),
                    required("then", &STEPS, "What is done if it holds."),
                    optional("else", &STEPS, "What is done if it does not."),
                ],
                &ESCALATE,
                &EVERY,
            ],
        },
        Way {
            fields: &[
                &[
                    required("match", &Form::Any, "A value."),
                    required("cases", &CASES, "The first that fits is run."),
                    optional("else", &STEPS, "What is done if none fits."),
                ],
                &ESCALATE,
                &EVERY,
            ],
        },
        Way {
            fields: &[
                &[
                    required("try", &STEPS, "Steps that may fail."),
                    required(
                        "on_failure",
                        &STEPS,
                        "What is done if one of them has failed.",
                    ),
                ],
                &ESCALATE,
                &EVERY,
            ],
        },
        Way {
            fields: &[
                &[required("set", &Form::Variables, "Sets variables.")],
                &EVERY,
            ],
        },
        Way {
            fields: &[
                &[required(
                    "wait_for",
                    &WAIT_FOR_FORM,
                    "Waits for a breadcrumb.",
                )],
                &EVERY,
                &DRIVEN,
                &ESCALATE,
            ],
        },
        Way {
            fields: &[
                &[
                    required("ask", &Form::Text, "Asks people this question."),
                    optional("of", &Form::Texts, "Who may answer; anybody if empty."),
                    optional(
                        "output",
                        &Form::Text,
                        "The schema of the answer, by a name of \"schemas\".",
                    ),
                ],
                &EVERY,
                &DRIVEN,
                &ESCALATE,
            ],
        },
        Way {
            fields: &[
                &[required("emit", &EMIT_FORM, "Writes a breadcrumb.")],
                &EVERY,
                &DRIVEN,
                &ESCALATE,
            ],
        },
        Way {
            fields: &[
                &[required("return", &Form::Any, "Ends the flow with this.")],
                &EVERY,
            ],
        },
        Way {
            fields: &[
                &[
                    required("fail", &Form::Text, "Fails with this message."),
                    optional(
                        "code",
                        &Form::Text,
                        "The code of the failure; \"failed\" by default.",
                    ),
                ],
                &EVERY,
            ],
        },
    ],
};

static ASKED: [Field; 2] = [
    optional(
        "prompt",
        &Form::Text,
        "What the model is told, by a name of \"prompts\".",
    ),
    optional(
        "output",
        &Form::Text,
        "The schema of its answer, by a name of \"schemas\".",
    ),
];

/// A step of a graph.
pub(super) static NODE: Object = Object {
    name: "node",
    about: "A step of a graph.",
    ways: &[
        Way {
            fields: &[
                &[required(
                    "agent",
                    &Form::Text,
                    "Runs the agent of this name.",
                )],
                &EVERY_NODE,
                &TIMED,
            ],
        },
        Way {
            fields: &[
                &[required("tool", &Form::Text, "Runs the tool of this name.")],
                &EVERY_NODE,
                &TIMED,
            ],
        },
        Way {
            fields: &[
                &[required(
                    "model",
                    &Form::Text,
                    "Asks the model of this name.",
                )],
                &ASKED,
                &EVERY_NODE,
                &TIMED,
            ],
        },
        Way {
            fields: &[
                &[required(
                    "flow",
                    &Form::Text,
                    "Runs another flow, with variables of its own.",
                )],
                &EVERY_NODE,
            ],
        },
    ],
};

static EVERY_NODE: [Field; 4] = [
    required(
        "id",
        &Form::Variable,
        "What others depend on, and the variable that has its result.",
    ),
    INPUT,
    optional(
        "depends_on",
        &Form::Texts,
        "The steps that have to end before, beside those whose results it uses.",
    ),
    COMMENT,
];

static TIMED: [Field; 2] = [
    optional("retry", &RETRIES, "How often it is tried."),
    optional("timeout_seconds", &Form::Seconds, "How long it may take."),
];

/// The fields of the kind of step that this field makes it; none if it makes it none.
pub(in crate::workflow) fn step_fields(field: &str) -> Vec<&'static str> {
    fields_of(&STEP, field)
}

/// The same of a step of a graph.
pub(in crate::workflow) fn node_fields(field: &str) -> Vec<&'static str> {
    fields_of(&NODE, field)
}

/// The fields that make a step of a graph one of its kinds.
pub(in crate::workflow) fn node_kinds() -> Vec<&'static str> {
    firsts(&NODE)
}

fn fields_of(object: &Object, field: &str) -> Vec<&'static str> {
    let mut ways = object.ways.iter();
    let way = ways.find(|way| way.all().next().is_some_and(|first| first.name == field));
    way.map_or_else(Vec::new, |way| way.all().map(|field| field.name).collect())
}

fn firsts(object: &Object) -> Vec<&'static str> {
    let firsts = object.ways.iter().filter_map(|way| way.all().next());
    firsts.map(|field| field.name).collect()
}

pub(super) static STEPS: Form = Form::List(&STEP_FORM, 1, ANY_NUMBER);
pub(super) static STEP_FORM: Form = Form::Object(&STEP);
static NODES: Form = Form::List(&NODE_FORM, 1, ANY_NUMBER);
static DEPENDENT: Form = Form::Dependent(&NODE_FORM);
static NODE_FORM: Form = Form::Object(&NODE);
