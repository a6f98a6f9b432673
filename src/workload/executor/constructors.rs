//! Constructors of [`WorkloadExecutor`].

use super::form::Form;
use super::{WorkloadError, WorkloadExecutor, check_definition, definition_error};
use crate::executor::{InvalidExecutor, OrderingKey, Profile, check, check_id};
use crate::model::{
    DefinitionError, DefinitionOptions, DefinitionPath, Findings, KnownFields, SESSION_TAG,
    Severity, Subscription, Subscriptions, sorted_text,
};
use crate::services::Services;
use crate::store::BreadcrumbStore;
use crate::workflow::{Document, Workflow};
use crate::workload::entry::select_entry_of_request;
use crate::workload::sink::Sink;
use crate::workload::turn_emitter::PARENT_TAG;
use crate::workload::{Definition, FlowDefinition};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

impl WorkloadExecutor {
    /// Creates the executor of a workload for messages that match `subscriptions`. The store handle is cloned.
    ///
    /// By default, a turn may take an hour, and can write its response and the schemas that the
    /// [definition](Definition::writes) lists.
    ///
    /// # Errors
    /// Returns a [`WorkloadError`] if every trigger would fail, for example because the definition names a tool that
    /// the services do not have.
    pub fn new<B>(
        id: impl Into<String>,
        definition: Arc<dyn Definition>,
        services: &Services,
        store: &B,
        subscriptions: Subscriptions,
    ) -> Result<Self, WorkloadError>
    where
        B: BreadcrumbStore + Clone + 'static,
    {
        let store = Arc::new(store.clone());
        let form = Form::Message;
        Self::with_form(id.into(), form, definition, services, store, subscriptions)
    }

    /// Creates an executor that runs the workload `definition` for each request to the workflow with the ID `id`. A request is a
    /// `workflow.request.v1` breadcrumb with `id` in its field `workflow`. The store handle is cloned.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new).
    pub fn on_requests<B>(
        id: impl Into<String>,
        definition: Arc<dyn Definition>,
        services: &Services,
        store: &B,
    ) -> Result<Self, WorkloadError>
    where
        B: BreadcrumbStore + Clone + 'static,
    {
        let (id, store) = (id.into(), Arc::new(store.clone()));
        let subscriptions = request_subscriptions(&id)?;
        Self::with_form(
            id,
            Form::Request,
            definition,
            services,
            store,
            subscriptions,
        )
    }

    /// Creates an executor that runs a workflow for each [request](Self::REQUEST) breadcrumb that names the workflow. A run
    /// starts with the flow `main`, the flow `default` or the only flow; in a workflow without flows, with the agent `main`, the
    /// agent `default` or the only agent.
    ///
    /// # Errors
    /// Returns [`WorkloadError::Entry`] if the workflow has no such flow or agent, otherwise the errors of
    /// [`new`](Self::new).
    pub fn of_workflow<B>(
        id: impl Into<String>,
        workflow: Workflow,
        services: &Services,
        store: &B,
    ) -> Result<Self, WorkloadError>
    where
        B: BreadcrumbStore + Clone + 'static,
    {
        let id = id.into();
        let definition = flow_definition(&id, workflow, None)?;
        Self::on_requests(id, Arc::new(definition), services, store)
    }

    /// Creates the executor that a `workflow.def.v1` breadcrumb defines. `definition` is this breadcrumb or its context. The fields are
    /// `workflow_id`, `definition` (the workflow as an object, or as a string in JSON or, with the feature `yaml`, in YAML), and optionally
    /// `flow` (the only flow that a run can start with) and `subscriptions` (the triggers; defaults to [requests](Self::REQUEST)).
    ///
    /// An unknown field has no effect, and a warning names it.
    ///
    /// # Errors
    /// Returns a [`WorkloadError`] that names the invalid field or the missing service.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::workload::WorkloadExecutor;
    /// use universal_executor::{MemoryStore, Services, UniversalExecutor};
    ///
    /// let definition = json!({
    ///     "workflow_id": "echo",
    ///     "definition": {"flows": {"main": {"steps": [{"return": "${input}"}]}}},
    /// });
    /// let store = MemoryStore::default();
    /// let echo = WorkloadExecutor::from_definition(&definition, &Services::new(), &store)?;
    /// assert_eq!(echo.id(), "echo");
    /// # Ok::<(), universal_executor::workload::WorkloadError>(())
    /// ```
    pub fn from_definition<B>(
        definition: &Value,
        services: &Services,
        store: &B,
    ) -> Result<Self, WorkloadError>
    where
        B: BreadcrumbStore + Clone + 'static,
    {
        Self::from_definition_with(definition, services, store, &DefinitionOptions::default())
    }

    /// Creates the executor of a workflow definition that is read with `options`, for example in [strict](DefinitionOptions::strict) mode.
    ///
    /// # Errors
    /// Returns the errors of [`from_definition`](Self::from_definition). In strict mode, every unknown field is an
    /// error.
    pub fn from_definition_with<B>(
        definition: &Value,
        services: &Services,
        store: &B,
        options: &DefinitionOptions,
    ) -> Result<Self, WorkloadError>
    where
        B: BreadcrumbStore + Clone + 'static,
    {
        let context = definition.get("context").unwrap_or(definition);
        if let Some(error) = check_fields(context, options).first_error() {
            return Err(WorkloadError::UnknownField {
                path: error.path.clone(),
                problem: error.message.clone(),
            });
        }
        let text = |field| context.get(field).and_then(Value::as_str);
        let field = |field, expected| WorkloadError::Field { field, expected };
        let id = text("workflow_id").filter(|id| !id.is_empty());
        let id = id.ok_or(field("workflow_id", "a string"))?.to_owned();
        check_id(&id)?;
        let workflow = workflow_of(&id, context, options)?;
        let flow = match context.get("flow") {
            None | Some(Value::Null) => None,
            Some(Value::String(flow)) => Some(flow.as_str()),
            Some(_) => return Err(field("flow", "the name of a flow")),
        };
        let subscriptions = match context.get("subscriptions") {
            None | Some(Value::Null) => request_subscriptions(&id)?,
            Some(_) => {
                Subscriptions::from_json_with(context, options).map_err(subscriptions_error(&id))?
            }
        };
        let definition = Arc::new(flow_definition(&id, workflow, flow)?);
        let (form, store) = (Form::Request, Arc::new(store.clone()));
        let mut executor = Self::with_form(id, form, definition, services, store, subscriptions)?;
        executor.profile = executor.profile.definition(&sorted_text(context));
        Ok(executor)
    }

    /// Sets the trigger subscriptions of the workload executor, in place of those from its constructor or definition.
    /// The forms of input and response do not change.
    ///
    /// # Errors
    /// Returns [`WorkloadError::Invalid`] if the store does not support a trigger.
    pub fn with_subscriptions(
        mut self,
        subscriptions: Subscriptions,
    ) -> Result<Self, WorkloadError> {
        self.subscriptions = subscriptions;
        check(&self)?;
        Ok(self)
    }

    fn with_form(
        id: String,
        form: Form,
        definition: Arc<dyn Definition>,
        services: &Services,
        store: Arc<dyn BreadcrumbStore>,
        subscriptions: Subscriptions,
    ) -> Result<Self, WorkloadError> {
        let prepared = definition.prepare(services, &store);
        let prepared = prepared.map_err(|source| definition_error(&*definition, source))?;
        let is_prepared = prepared.is_some();
        let definition = prepared.unwrap_or(definition);
        let profile = profile(form, &*definition);
        let mut executor = Self {
            id,
            warnings: definition.warnings(form == Form::Message),
            definition,
            services: services.clone(),
            store,
            subscriptions,
            profile,
            form,
            sink: Sink::default(),
            streams_text: false,
        };
        check(&executor)?;
        if !is_prepared {
            check_definition(&*executor.definition, services, &executor.store)?;
        }
        executor.apply_requirements()?;
        Ok(executor)
    }

    /// Reads from the workload definition whether runs need a ledger, whether they stream text, and which schemas they may write.
    fn apply_requirements(&mut self) -> Result<(), WorkloadError> {
        let (definition, services, store) = (&*self.definition, &self.services, &self.store);
        let error = |source| definition_error(definition, source);
        let streams_text = definition.streams_text(services, store).map_err(error)?;
        let needs_a_ledger = definition.needs_a_ledger(services, store).map_err(error)?;
        let written = definition.writes(services, store).map_err(error)?;
        if needs_a_ledger && store.ledger().is_none() {
            let executor = self.id.clone();
            return Err(InvalidExecutor::NoLedger { executor }.into());
        }
        self.streams_text = streams_text;
        self.profile.responds_with = written.map(|mut written| {
            written.push(self.form.response_schema().to_owned());
            written
        });
        Ok(())
    }
}

fn profile(form: Form, definition: &dyn Definition) -> Profile {
    const HOUR: Duration = Duration::from_secs(3600);
    let profile = Profile::new(form.kind())
        .timeout(HOUR)
        .definition(&definition.meta().hash);
    match form {
        Form::Request => profile,
        Form::Message => profile.ordering(OrderingKey::TagPrefixUnless {
            prefix: SESSION_TAG.to_owned(),
            unless: PARENT_TAG.to_owned(),
        }),
    }
}

fn flow_definition(
    id: &str,
    workflow: Workflow,
    flow: Option<&str>,
) -> Result<FlowDefinition, WorkloadError> {
    let entry = select_entry_of_request(&workflow, flow);
    let definition =
        entry.and_then(|entry| FlowDefinition::starting_with(id, workflow, entry, flow));
    definition.map_err(|source| WorkloadError::Entry {
        workflow: id.to_owned(),
        source,
    })
}

/// Reads the workflow in the context of a workflow definition breadcrumb.
fn workflow_of(
    id: &str,
    context: &Value,
    options: &DefinitionOptions,
) -> Result<Workflow, WorkloadError> {
    let read = match context.get("definition") {
        Some(Value::String(text)) => {
            Document::any(text).and_then(|document| Workflow::of_document(&document, options))
        }
        Some(value @ Value::Object(_)) => Workflow::from_json_with(value, options),
        Some(_) | None => {
            return Err(WorkloadError::Field {
                field: "definition",
                expected: "an object, or a string with JSON or YAML",
            });
        }
    };
    read.map_err(|source| WorkloadError::Load {
        workflow: id.to_owned(),
        source,
    })
}

/// Checks the fields of the context of a `workflow.def.v1` breadcrumb, except for the workflow in it.
pub(crate) fn check_fields(context: &Value, options: &DefinitionOptions) -> Findings {
    let severity = match options.strict {
        true => Severity::Error,
        false => Severity::Warning,
    };
    let mut found = Findings::default();
    if let Some(object) = context.as_object() {
        let unknown = DEFINITION_FIELDS.unknown(object);
        let finding =
            |field| DEFINITION_FIELDS.finding(severity, &DefinitionPath::default(), field);
        found.extend(unknown.map(finding));
    }
    found
}

/// The known fields of the context of a `workflow.def.v1` breadcrumb.
static DEFINITION_FIELDS: KnownFields<'static> = KnownFields {
    names: &[
        "definition",
        "description",
        "flow",
        "selectors",
        "subscriptions",
        "workflow_id",
    ],
    aliases: &[
        ("entry", &["flow"]),
        ("id", &["workflow_id"]),
        ("name", &["workflow_id"]),
        ("workflow", &["definition"]),
    ],
};

/// Returns the trigger subscription for requests to a workflow.
fn request_subscriptions(id: &str) -> Result<Subscriptions, WorkloadError> {
    check_id(id)?;
    let request = Subscription::trigger(WorkloadExecutor::REQUEST);
    let request = request.matching("$.workflow", "eq", id);
    Subscriptions::new([request]).map_err(subscriptions_error(id))
}

fn subscriptions_error(id: &str) -> impl FnOnce(DefinitionError) -> WorkloadError {
    let workflow = id.to_owned();
    move |source| WorkloadError::Subscriptions { workflow, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guide::tests::assert_fields;

    #[test]
    fn the_reference_lists_every_field_of_a_stored_workflow_definition() {
        const PAGE: &str = include_str!("../../../docs/reference/workloads.md");

        assert_fields(PAGE, "Definition breadcrumb", DEFINITION_FIELDS.names);
    }
}
