//! What steps are made of beside their own fields: branches, cases, conditions and what is told.

use super::steps::{ANY_NUMBER, BRANCHES, COMMENT, STEP_FORM, STEPS};
use super::{Field, Form, Object, Way, optional, required};

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

/// A single step is a branch as well.
pub(super) static BRANCH_FORM: Form = Form::Either(&[&STEP_FORM, &BRANCH_STEPS]);
pub(super) static BRANCH_STEPS: Form = Form::Object(&BRANCH);
pub(super) static CASE_FORM: Form = Form::Object(&CASE);
pub(super) static CASES: Form = Form::List(&CASE_FORM, 1, BRANCHES);
pub(super) static TESTS: Form = Form::List(&TEST_FORM, 0, ANY_NUMBER);
pub(super) static TEST_FORM: Form = Form::Object(&TEST);
pub(super) static ESCALATIONS: Form = Form::List(&ESCALATION_FORM, 0, ANY_NUMBER);
pub(super) static ESCALATION_FORM: Form = Form::Object(&ESCALATION);
pub(super) static WAIT_FOR_FORM: Form = Form::Object(&WAIT_FOR);
pub(super) static CONDITIONS: Form = Form::List(&CONDITION_FORM, 0, ANY_NUMBER);
pub(super) static CONDITION_FORM: Form = Form::Object(&CONDITION);
pub(super) static EMIT_FORM: Form = Form::Object(&EMIT);
pub(super) static BRANCH_LIST: Form = Form::List(&BRANCH_FORM, 1, BRANCHES);
