use crate::executor::ExecutionContext;
use crate::model::Breadcrumb;
use crate::store::BreadcrumbStore;
use std::sync::Arc;

/// What a tool is called with beside its input. Cheap to clone, and owned, so that it can move into other tasks.
#[derive(Clone, Debug)]
pub struct ToolContext {
    context: Arc<ExecutionContext>,
    store: Arc<dyn BreadcrumbStore>,
}

/// The workspace of a request that names none.
const WORKSPACE: &str = "workspace:tools";

impl ToolContext {
    /// The context of a call because of a trigger.
    pub(super) fn new(context: &ExecutionContext, store: &Arc<dyn BreadcrumbStore>) -> Self {
        Self {
            store: context.bound_store(Arc::clone(store)),
            context: Arc::new(context.clone()),
        }
    }

    /// For unit tests of a tool: a context made by hand, and a store that writes as it is told.
    #[must_use]
    pub fn for_test(context: ExecutionContext, store: Arc<dyn BreadcrumbStore>) -> Self {
        Self {
            context: Arc::new(context),
            store,
        }
    }

    /// What the tool's context subscriptions found, under their keys.
    #[must_use]
    pub fn context(&self) -> &ExecutionContext {
        &self.context
    }

    /// The request, or whatever else triggered the tool.
    #[must_use]
    pub fn trigger(&self) -> &Breadcrumb {
        self.context.trigger()
    }

    /// The id the response answers: the request's `requestId`, else the trigger's own id.
    #[must_use]
    pub fn request_id(&self) -> String {
        request_id(self.trigger())
    }

    /// Who asked, if the request says so.
    #[must_use]
    pub fn requested_by(&self) -> Option<&str> {
        requested_by(self.trigger())
    }

    /// The workspace tag that the response carries: the request's, else `workspace:tools`.
    #[must_use]
    pub fn workspace(&self) -> &str {
        workspace(self.trigger())
    }

    /// The key that calls to the outside world should carry: the same for every attempt at this request.
    #[must_use]
    pub fn idempotency_key(&self) -> &str {
        self.context.idempotency_key()
    }

    /// A store handle bound to this run: what it writes is stamped, limited to the schemas the tool may write, and
    /// refused once the run is lost. What it writes stays if the run is tried again.
    #[must_use]
    pub fn store(&self) -> &dyn BreadcrumbStore {
        &*self.store
    }

    /// Resolves when the call is cancelled; for work the tool has spawned.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.context.cancelled()
    }
}

pub(super) fn request_id(trigger: &Breadcrumb) -> String {
    first_text(trigger, ["requestId", "request_id"])
        .map_or_else(|| trigger.id.to_string(), str::to_owned)
}

pub(super) fn requested_by(trigger: &Breadcrumb) -> Option<&str> {
    first_text(trigger, ["requestedBy", "requested_by"])
}

pub(super) fn workspace(trigger: &Breadcrumb) -> &str {
    trigger
        .tags
        .iter()
        .find(|tag| tag.starts_with("workspace:"))
        .map_or(WORKSPACE, String::as_str)
}

/// Requests are written in camel case and answered in snake case; both are read everywhere.
fn first_text<'t, const N: usize>(trigger: &'t Breadcrumb, fields: [&str; N]) -> Option<&'t str> {
    fields
        .into_iter()
        .find_map(|field| trigger.context.get(field)?.as_str())
}
