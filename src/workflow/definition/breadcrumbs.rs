//! Compiler of the `emit` and `wait_for` steps of a workflow definition.

use crate::model::{Condition, DefinitionPath};
use crate::workflow::ast::TaskForm;
use crate::workflow::error::{LoadProblem, WorkflowLoadError};
use crate::workflow::event_form::EventForm;
use crate::workflow::expression::Expression;
use crate::workflow::syntax::{Emit, Event, EventCondition, Written};
use serde_json::Value;

/// Returns the object in a required field of a step of a workflow definition.
fn object<'v>(step: &Written<'v>, field: &str) -> Result<Written<'v>, WorkflowLoadError> {
    let missing = || WorkflowLoadError::missing(step.path.field(field), "an object");
    step.field(field).ok_or_else(missing)
}

/// Compiles a `wait_for` step: a selector as in a subscription, with variables in tags and values.
pub(super) fn wait_for(step: &Written<'_>) -> Result<TaskForm, WorkflowLoadError> {
    let event = object(step, "wait_for")?;
    check_schema_name(&event.read::<Event>()?.schema_name, &event.path)?;
    let conditions = event.list("context_match")?;
    let conditions = conditions.iter().map(event_condition);
    let conditions = conditions.collect::<Result<Vec<_>, _>>()?;
    let (conditions, known): (Vec<_>, Vec<_>) = conditions.into_iter().unzip();
    let mut fields = event.fields_of::<Event>();
    if !known.is_empty() {
        fields.insert("context_match".to_owned(), known.into());
    }
    let expression = Expression::compile(&fields.into(), &event.path)?;
    let form = EventForm::new(expression, conditions);
    let event = form.map_err(|error| {
        let location = event.path.field("context_match");
        WorkflowLoadError::new(location, LoadProblem::Condition(error))
    })?;
    Ok(TaskForm::WaitFor { event })
}

/// Compiles one condition of a `wait_for` step. The first value is the compiled condition, or `None` for a condition with variables.
/// The second value contains the condition's fields as written in the definition.
fn event_condition(written: &Written<'_>) -> Result<(Option<Condition>, Value), WorkflowLoadError> {
    let condition: EventCondition = written.read()?;
    let fields = Value::Object(written.fields_of::<EventCondition>());
    let resolved = Expression::compile(&fields, &written.path)?;
    let checked = Condition::new(condition.path, condition.op, condition.value);
    if let Some(error) = checked.error() {
        let location = written.path.field(error.field());
        let problem = LoadProblem::Condition(error.clone());
        return Err(WorkflowLoadError::new(location, problem));
    }
    let is_fixed = matches!(&resolved, Expression::Literal(literal) if **literal == fields);
    Ok((is_fixed.then_some(checked), fields))
}

/// Compiles an `emit` step: a breadcrumb with variables in title, tags and context.
pub(super) fn emit(step: &Written<'_>) -> Result<TaskForm, WorkflowLoadError> {
    let written = object(step, "emit")?;
    let emit: Emit = written.read()?;
    check_schema_name(&emit.schema_name, &written.path)?;
    if let Some(context) = &emit.context
        && !(context.is_object() || context.is_string())
    {
        let location = written.path.field("context");
        return Err(WorkflowLoadError::shape(location, "an object", context));
    }
    let fields = written.fields_of::<Emit>();
    Ok(TaskForm::Emit {
        breadcrumb: Expression::compile(&fields.into(), &written.path)?,
    })
}

/// Refuses variables in the schema name of an `emit` or `wait_for` step. A definition thus lists all schemas that its flows read and write.
fn check_schema_name(schema: &str, location: &DefinitionPath) -> Result<(), WorkflowLoadError> {
    if schema.contains("${") {
        let reason = "a schema name cannot contain variables; write the name itself";
        return Err(WorkflowLoadError::fields(
            location.field("schema_name"),
            reason,
        ));
    }
    Ok(())
}
