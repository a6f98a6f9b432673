//! Executors of the workers. They record their executions, and fail as their triggers request.

use crate::BoxError;
use crate::oracle::{Attempt, Job, Oracle, Record, Trigger};
use crate::payer::Payer;
use crate::settings::{On, Settings};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use universal_executor::executor::{OrderingKey, RetryPolicy};
use universal_executor::model::EventKind;
use universal_executor::{
    Breadcrumb, BreadcrumbStore, ExecutionContext, Failure, NewBreadcrumb, Patch, Profile,
    Response, Selector, Subscription, Subscriptions, UniversalExecutor, Wake, permanent, suspend,
};

/// Payload of a trigger.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Order {
    /// Number of the trigger.
    pub n: u64,
    /// Requested job.
    pub job: Job,
    /// Duration of the job, in milliseconds.
    pub work: u64,
    /// If `true`, the trigger belongs to another tenant, and no worker must see it.
    #[serde(default)]
    pub canary: bool,
}

impl Order {
    /// Creates an order for the workers' tenant.
    pub const fn new(n: u64, job: Job, work: u64) -> Self {
        Self {
            n,
            job,
            work,
            canary: false,
        }
    }

    /// Returns `true` if a breadcrumb belongs to another tenant.
    fn is_canary(breadcrumb: &Breadcrumb) -> bool {
        let order = breadcrumb.context.parse::<Self>();
        order.is_ok_and(|order| order.canary)
    }
}

/// Payload of an answer: the attempt that wrote it. The library stamps none of these fields.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Answer {
    /// Answered trigger.
    #[serde(flatten)]
    pub trigger: Trigger,
    /// Number of the attempt.
    pub attempt: u32,
    /// ID of the process.
    pub pid: u32,
    /// If `true`, this is the answer to a failed run.
    #[serde(default)]
    pub failed: bool,
}

/// Role of an executor.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Role {
    /// Answers jobs, one at a time for each ordering key.
    Clerk,
    /// Has effects that must happen at most once.
    Pager,
    /// Answers the questions of the clerk.
    Helper,
    /// Passes a breadcrumb to [`Pong`](Self::Pong).
    Ping,
    /// Passes the breadcrumb back to [`Ping`](Self::Ping).
    Pong,
    /// Makes payments that a person approved: the agent [`Payer`].
    Payer,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 6] = [
        Self::Clerk,
        Self::Pager,
        Self::Helper,
        Self::Ping,
        Self::Pong,
        Self::Payer,
    ];

    /// Returns the executor ID.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Clerk => "clerk",
            Self::Pager => "pager",
            Self::Helper => "helper",
            Self::Ping => "ping",
            Self::Pong => "pong",
            Self::Payer => Payer::ID,
        }
    }

    /// Returns the schema of the answer that each run creates, or `None` if the runs create no answers.
    pub const fn answers(self) -> Option<&'static str> {
        match self {
            Self::Clerk => Some("answer.v1"),
            Self::Pager => Some("paged.v1"),
            Self::Helper => Some("reply.v1"),
            Self::Ping | Self::Pong | Self::Payer => None,
        }
    }

    /// Returns `true` if a worker has an executor of this role. Two roles are in one worker only, so no other worker compensates
    /// for a lost event. With NATS, each event goes to one of the workers, so all workers have all roles.
    pub fn runs_in(self, slot: &str, on: On) -> bool {
        match self {
            Self::Clerk | Self::Ping | Self::Pong | Self::Payer => true,
            Self::Pager => slot == "pointed-0" || on == On::Nats,
            Self::Helper => slot == "killed-0" || on == On::Nats,
        }
    }

    /// Returns the subscriptions. An older version of the clerk matches plain jobs only.
    fn subscriptions(self, is_old: bool) -> Vec<Subscription> {
        match self {
            Self::Clerk if is_old => {
                vec![Subscription::trigger("job.v1").matching("$.job", "eq", json!(Job::Plain))]
            }
            // The context has earlier jobs with the same ordering key, so the trigger schema is also a context source.
            Self::Clerk => vec![
                Subscription::context("job.v1")
                    .key("before")
                    .recent(3)
                    .scope(["lane:"]),
                Subscription::trigger("job.v1"),
            ],
            Self::Pager => vec![Subscription::trigger("page.v1")],
            Self::Helper => vec![Subscription::trigger("question.v1")],
            Self::Payer => vec![Subscription::trigger("payment.v1")],
            Self::Ping | Self::Pong => vec![
                Subscription::trigger("loop.v1")
                    .all_tags([format!("turn:{}", self.id())])
                    .on([EventKind::Created, EventKind::Updated]),
            ],
        }
    }

    fn profile(self, settings: &Settings) -> Profile {
        let mut policy = RetryPolicy::default();
        policy.base = Duration::from_millis(100);
        policy.cap = Duration::from_millis(500);
        let profile = Profile::new("torture")
            .lease(settings.lease())
            .timeout(Duration::from_millis(2_500))
            .retry(policy);
        match self {
            Self::Clerk => profile.ordering(OrderingKey::tag("lane:")),
            Self::Pager => profile.at_most_once(),
            Self::Helper | Self::Ping | Self::Pong | Self::Payer => profile,
        }
    }
}

/// Creates the executor of a role on a store, in its newest or an older version.
pub fn executor(
    role: Role,
    store: Arc<dyn BreadcrumbStore>,
    oracle: Arc<Oracle>,
    settings: &Settings,
    is_old: bool,
) -> Result<Arc<dyn UniversalExecutor>, BoxError> {
    let subscriptions = Subscriptions::new(role.subscriptions(is_old))?;
    let profile = role.profile(settings);
    if role == Role::Payer {
        let payer = Payer::new(store, oracle, subscriptions, settings, profile)?;
        return Ok(Arc::new(payer));
    }
    Ok(Arc::new(Member {
        role,
        store,
        oracle,
        subscriptions,
        profile,
    }))
}

/// An executor whose triggers decide its behaviour.
#[derive(Debug)]
struct Member {
    role: Role,
    store: Arc<dyn BreadcrumbStore>,
    oracle: Arc<Oracle>,
    subscriptions: Subscriptions,
    profile: Profile,
}

impl Member {
    /// Records a leak if the trigger or the context has data of another tenant.
    fn check_for_canaries(
        &self,
        trigger: Trigger,
        breadcrumb: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<(), BoxError> {
        let mut items = context.sources().iter().flat_map(|source| &source.items);
        if Order::is_canary(breadcrumb) || items.any(|item| Order::is_canary(item)) {
            let executor = self.role.id().to_owned();
            self.oracle.note(&Record::Leaked { executor, trigger })?;
        }
        Ok(())
    }

    async fn work(&self, trigger: Trigger, context: &ExecutionContext) -> Result<(), BoxError> {
        match self.role {
            Role::Clerk => work(context).await,
            Role::Pager => {
                self.oracle.note(&Record::Effect { trigger })?;
                tokio::time::sleep(Duration::from_millis(30)).await;
                Ok(())
            }
            Role::Helper | Role::Ping | Role::Pong | Role::Payer => {
                tokio::time::sleep(Duration::from_millis(5)).await;
                Ok(())
            }
        }
    }
}

/// Executes the job of the clerk's trigger.
async fn work(context: &ExecutionContext) -> Result<(), BoxError> {
    let order: Order = context.trigger().context.parse()?;
    let is_first = context.attempt() == 1;
    let time = match order.job {
        Job::Flaky if is_first => return Err("a transient error on purpose".into()),
        // Unwinds like a panic, but without a message on standard error.
        Job::Panics if is_first => std::panic::resume_unwind(Box::new("on purpose")),
        Job::Hangs if is_first => Duration::from_secs(600),
        Job::Asks if context.resumed().is_none() => return Err(ask(&order)),
        Job::Refused => return Err(permanent("a permanent error on purpose")),
        Job::Poison => std::process::abort(),
        Job::Long => Duration::from_millis(1_200),
        Job::Plain
        | Job::Two
        | Job::Flaky
        | Job::Panics
        | Job::Hangs
        | Job::Asks
        | Job::Once
        | Job::Loop
        | Job::Approved
        | Job::Forged => Duration::from_millis(order.work),
    };
    tokio::time::sleep(time).await;
    Ok(())
}

fn ask(order: &Order) -> BoxError {
    let tag = format!("n:{}", order.n);
    let question = NewBreadcrumb::new("question.v1")
        .tag(tag.clone())
        .context(json!(order));
    let reply = Selector::schema("reply.v1").all_tags([tag]);
    suspend(Wake::on(reply), json!({"asked": order.n})).writing(Response::create(question))
}

#[async_trait]
impl UniversalExecutor for Member {
    fn id(&self) -> &str {
        self.role.id()
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &*self.store
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn execute(
        &self,
        breadcrumb: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        let trigger = Trigger::of(breadcrumb);
        let (attempt, pid) = (context.attempt(), std::process::id());
        let executing = Executing::start(&self.oracle, self.role, trigger, attempt)?;
        self.check_for_canaries(trigger, breadcrumb, context)?;
        let worked = self.work(trigger, context).await;
        executing.end();
        worked?;
        Ok(json!(Answer {
            trigger,
            attempt,
            pid,
            failed: false,
        }))
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        let Some(schema) = self.role.answers() else {
            let next = if self.role == Role::Ping {
                Role::Pong
            } else {
                Role::Ping
            };
            // A patch without a context gets no stamp, so only the ledger knows the length of the chain.
            let patch = Patch::new().tags([format!("turn:{}", next.id())]);
            return Ok(Response::update(trigger.id, trigger.version, patch));
        };
        let answer = answer(schema, trigger).context(output.clone());
        let order: Option<Order> = trigger.context.parse().ok();
        let response = Response::create(answer);
        Ok(match order.map(|order| order.job) {
            Some(Job::Two) => response.and_create(NewBreadcrumb::new("second.v1").context(output)),
            Some(_) | None => response,
        })
    }

    /// Answers a failed run of the helper, because its requester waits.
    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        if self.role != Role::Helper {
            return Ok(Response::none());
        }
        let failed = Answer {
            trigger: Trigger::of(trigger),
            attempt: failure.attempts,
            pid: std::process::id(),
            failed: true,
        };
        let reply = answer("reply.v1", trigger).context(json!(failed));
        Ok(Response::create(reply))
    }
}

/// Creates an answer with the number tag of its trigger, by which the requester waits.
fn answer(schema: &str, trigger: &Breadcrumb) -> NewBreadcrumb {
    let number = trigger.tags.iter().filter(|tag| tag.starts_with("n:"));
    NewBreadcrumb::new(schema).tags(number.cloned())
}

/// Records the start of an attempt, and its end when dropped, unless the process is killed.
pub struct Executing<'o> {
    is_over: bool,
    oracle: &'o Oracle,
    attempt: Attempt,
}

impl<'o> Executing<'o> {
    /// Records the start of an attempt in this process.
    pub fn start(
        oracle: &'o Oracle,
        role: Role,
        trigger: Trigger,
        attempt: u32,
    ) -> Result<Self, BoxError> {
        let attempt = Attempt {
            executor: role.id().to_owned(),
            trigger,
            attempt,
            pid: std::process::id(),
        };
        oracle.note(&Record::Started(attempt.clone()))?;
        Ok(Self {
            is_over: false,
            oracle,
            attempt,
        })
    }

    /// Marks the attempt as returned, not dropped.
    pub fn end(mut self) {
        self.is_over = true;
    }
}

impl Drop for Executing<'_> {
    fn drop(&mut self) {
        let attempt = self.attempt.clone();
        let record = if self.is_over || std::thread::panicking() {
            Record::Ended(attempt)
        } else {
            Record::Dropped(attempt)
        };
        if let Err(error) = self.oracle.note(&record) {
            crate::say(format_args!("cannot write to the oracle file: {error}"));
        }
    }
}
