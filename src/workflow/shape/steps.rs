//! What flows and their steps are made of.

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

const ANY_NUMBER: usize = usize::MAX;

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

const COMMENT: Field = optional("comment", &Form::Any, "For people.");

const INPUT: Field = optional(
    "input",
    &Form::Any,
    "What it is given; all that the flow was given if absent.",
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
                    INPUT,
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

pub(in crate::workflow) static BRANCH: Object = Object {
    name: "branch",
    about: "Steps with an input of their own.",
    ways: &[Way {
        fields: &[&[
            optional("id", &Form::Variable, "Its part of the path."),
            optional(
                "input",
                &Form::Any,
                "What its steps are given; what the flow was given if absent.",
            ),
            required("steps", &STEPS, "The steps."),
            COMMENT,
        ]],
    }],
};

pub(in crate::workflow) static CASE: Object = Object {
    name: "case",
    about: "What is done if the value of a match fits.",
    ways: &[
        Way {
            fields: &[&[
                required("is", &Form::Any, "The value has to be this."),
                required("then", &STEPS, "What is done."),
            ]],
        },
        Way {
            fields: &[&[
                optional(
                    "path",
                    &Form::Text,
                    "Where in the value; all of it if absent.",
                ),
                required("op", &Form::Op, "An operator, as in subscriptions."),
                optional("value", &Form::Any, "What it compares with."),
                required("then", &STEPS, "What is done."),
            ]],
        },
    ],
};

pub(in crate::workflow) static TEST: Object = Object {
    name: "condition",
    about: "Something that holds of the variables, or does not.",
    ways: &[
        Way {
            fields: &[&[
                required(
                    "path",
                    &Form::Text,
                    "A variable, or what is at a JSONPath in it.",
                ),
                required("op", &Form::Op, "An operator, as in subscriptions."),
                optional("value", &Form::Any, "What it compares with."),
            ]],
        },
        Way {
            fields: &[&[required("all", &TESTS, "All of these hold.")]],
        },
        Way {
            fields: &[&[required("any", &TESTS, "One of these holds.")]],
        },
        Way {
            fields: &[&[required("not", &TEST_FORM, "This does not hold.")]],
        },
    ],
};

pub(in crate::workflow) static ESCALATION: Object = Object {
    name: "escalation",
    about: "What happens if the result of a step is not what it should be.",
    ways: &[
        Way {
            fields: &[
                &WHEN,
                &[required("return", &Form::Any, "The flow ends with this.")],
            ],
        },
        Way {
            fields: &[
                &WHEN,
                &[required(
                    "continue",
                    &Form::Any,
                    "The step has this result instead.",
                )],
            ],
        },
        Way {
            fields: &[
                &WHEN,
                &[required(
                    "abort",
                    &Form::Text,
                    "The step fails with this message.",
                )],
            ],
        },
        Way {
            fields: &[
                &WHEN,
                &[required(
                    "steps",
                    &STEPS,
                    "These are run, and the step has their result.",
                )],
            ],
        },
    ],
};

static WHEN: [Field; 1] = [required("when", &TEST_FORM, "A condition on \"result\".")];

pub(in crate::workflow) static WAIT_FOR: Object = Object {
    name: "wait_for",
    about: "The breadcrumb that is waited for, as in a subscription.",
    ways: &[Way {
        fields: &[&[
            required("schema_name", &Form::SchemaName, "Its schema."),
            optional("any_tags", &Form::Texts, "It has one of these tags."),
            optional("all_tags", &Form::Texts, "It has all of these tags."),
            optional(
                "context_match",
                &CONDITIONS,
                "All of these hold of its context.",
            ),
        ]],
    }],
};

pub(in crate::workflow) static CONDITION: Object = Object {
    name: "context_match",
    about: "A condition on the context of a breadcrumb.",
    ways: &[Way {
        fields: &[&[
            required("path", &Form::Text, "A JSONPath."),
            required("op", &Form::Op, "An operator, as in subscriptions."),
            optional("value", &Form::Any, "What it compares with."),
        ]],
    }],
};

pub(in crate::workflow) static EMIT: Object = Object {
    name: "emit",
    about: "A breadcrumb to write.",
    ways: &[Way {
        fields: &[&[
            required("schema_name", &Form::SchemaName, "Its schema."),
            optional("title", &Form::Text, "Its title."),
            optional("tags", &Form::Texts, "Its tags."),
            optional("context", &Form::Context, "Its context; empty if absent."),
        ]],
    }],
};

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

static STEPS: Form = Form::List(&STEP_FORM, 1, ANY_NUMBER);
static STEP_FORM: Form = Form::Object(&STEP);
static NODES: Form = Form::List(&NODE_FORM, 1, ANY_NUMBER);
static DEPENDENT: Form = Form::Dependent(&NODE_FORM);
static NODE_FORM: Form = Form::Object(&NODE);
/// A single step is a branch as well.
static BRANCH_LIST: Form = Form::List(&BRANCH_FORM, 1, BRANCHES);
static BRANCH_FORM: Form = Form::Either(&[&STEP_FORM, &BRANCH_STEPS]);
static BRANCH_STEPS: Form = Form::Object(&BRANCH);
static CASES: Form = Form::List(&CASE_FORM, 1, BRANCHES);
static CASE_FORM: Form = Form::Object(&CASE);
static TESTS: Form = Form::List(&TEST_FORM, 0, ANY_NUMBER);
static TEST_FORM: Form = Form::Object(&TEST);
static ESCALATIONS: Form = Form::List(&ESCALATION_FORM, 0, ANY_NUMBER);
static ESCALATION_FORM: Form = Form::Object(&ESCALATION);
static WAIT_FOR_FORM: Form = Form::Object(&WAIT_FOR);
static CONDITIONS: Form = Form::List(&CONDITION_FORM, 0, ANY_NUMBER);
static CONDITION_FORM: Form = Form::Object(&CONDITION);
static EMIT_FORM: Form = Form::Object(&EMIT);
