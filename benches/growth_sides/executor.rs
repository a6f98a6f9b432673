//! Executor that fetches context by tag and answers with one breadcrumb.

use serde_json::{Value, json};
use tokio::sync::watch;
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, ExecutionContext, NewBreadcrumb, Response, Subscription,
    Subscriptions, UniversalExecutor, async_trait,
};

const REQUEST: &str = "request.v1";
const ANSWER: &str = "answer.v1";
const TEXT: &str = "input of a tool call, at the usual length of a question in one sentence";

/// Number of users of the requests.
const USERS: usize = 100;

/// Returns the request with a number.
pub(crate) fn request(number: usize) -> NewBreadcrumb {
    NewBreadcrumb::new(REQUEST)
        .tag(format!("user:{}", number % USERS))
        .context(json!({"n": number, "input": TEXT}))
}

/// Work of the executor on a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Work {
    /// Ends the run without an answer, to fill a store.
    Fill,
    /// Fetches the five newest requests of one user, and answers.
    Answer,
}

pub(crate) struct Answers<S> {
    store: S,
    subscriptions: Subscriptions,
    work: Work,
    count: watch::Sender<usize>,
}

impl<S> Answers<S> {
    /// Creates the executor. `count` receives the number of handled requests.
    pub(crate) fn new(store: S, work: Work, count: watch::Sender<usize>) -> Self {
        let trigger = Subscription::trigger(REQUEST);
        let sources = match work {
            Work::Fill => None,
            Work::Answer => Some(
                Subscription::context(REQUEST)
                    .all_tags(["user:7"])
                    .key("recent")
                    .recent(5),
            ),
        };
        Self {
            store,
            subscriptions: Subscriptions::new([trigger].into_iter().chain(sources)).unwrap(),
            work,
            count,
        }
    }
}

#[async_trait]
impl<S: BreadcrumbStore> UniversalExecutor for Answers<S> {
    fn id(&self) -> &str {
        "answers"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, _: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!({"output": TEXT}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        self.count.send_modify(|count| *count += 1);
        Ok(match self.work {
            Work::Fill => Response::none(),
            Work::Answer => Response::create(NewBreadcrumb::new(ANSWER).context(output)),
        })
    }
}
