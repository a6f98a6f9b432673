//! The link to an MCP server: a background task that keeps the connection, and the state that the tools of the server share.

use super::McpError;
use super::admission::{Admission, admit};
use super::error::opaque;
use super::handler::Handler;
use super::listed::{Listed, registered_name};
use super::records::{Accepted, Records};
use super::settings::Settings;
use super::transport::{self, Service};
use crate::backoff::full_jitter;
use crate::clock::within;
use crate::error::{BoxError, Chain};
use crate::store::BreadcrumbStore;
use rmcp::model::{PaginatedRequestParams, SubscriptionFilter};
use rmcp::service::{ClientCacheConfig, Peer, RoleClient, Subscription};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::select;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

/// Maximum number of tools that are used of one MCP server, and of pages of its list.
const MAX_TOOLS: usize = 128;

/// Interval at which the tools of a connected server are listed again, for servers that do not report changes.
const LIST_INTERVAL: Duration = Duration::from_secs(300);

/// Delay before the tools of a connected server are compared again if the records of the accepted tools cannot be read or written.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Minimum interval between two lists of the tools of a server, however often the server reports changes.
const MIN_LIST_INTERVAL: Duration = Duration::from_secs(1);

/// The tools that a server lists, by their names on the server, each with its digest.
type Listing = BTreeMap<String, (String, Listed)>;

/// The link to an MCP server. Dropping the last handle ends the connection.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
    /// The tools of the first list, each with its accepted definition.
    first: Vec<(String, String, Accepted)>,
}

struct Shared {
    settings: Settings,
    records: Records,
    handler: Handler,
    connection: watch::Sender<Connection>,
    /// The number of the last connection that a call found lost.
    lost: AtomicU64,
    lost_changed: Notify,
    digests: Mutex<Digests>,
}

/// The current connection to an MCP server.
#[derive(Clone, Debug)]
enum Connection {
    /// The connection with this number.
    Open(u64, Peer<RoleClient>),
    /// No connection, with the reason.
    Lost(Arc<str>),
}

/// Digests of the definitions of a server's tools, by the names of the tools on the server.
#[derive(Debug, Default)]
struct Digests {
    offered: BTreeMap<String, String>,
    accepted: BTreeMap<String, String>,
}

impl Link {
    /// Connects to the server, and starts the background task that keeps the connection.
    pub(super) async fn open(
        settings: Settings,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Arc<Self>, McpError> {
        let shared = Arc::new(Shared {
            records: Records::new(store, &settings.name),
            settings,
            handler: Handler::default(),
            connection: watch::Sender::new(Connection::Lost("not connected yet".into())),
            lost: AtomicU64::new(0),
            lost_changed: Notify::new(),
            digests: Mutex::default(),
        });
        let (service, listing) = shared.connect().await?;
        let accepted = shared.compare(&listing).await?;
        let names = shared.registered_names(&listing);
        let first = names.into_iter().map(|(tool, name)| {
            let accepted = accepted.get(&tool).cloned().flatten();
            (tool, name, accepted)
        });
        Ok(Arc::new(Self {
            first: first.collect(),
            task: tokio::spawn(Arc::clone(&shared).keep(service)),
            shared,
        }))
    }

    /// Returns the tools of the first list of the server: the name on the server, the registered name, and the accepted definition.
    pub(super) fn first(&self) -> &[(String, String, Accepted)] {
        &self.first
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    pub(super) fn handler(&self) -> &Handler {
        &self.shared.handler
    }

    pub(super) fn is_connected(&self) -> bool {
        match *self.shared.connection.borrow() {
            Connection::Open(..) => true,
            Connection::Lost(_) => false,
        }
    }

    /// Decides whether a tool can be called whose definition with the digest `shown` models of this process see. Reads the record of a
    /// held tool again, because a person may have accepted it.
    pub(super) async fn admission(
        &self,
        tool: &str,
        shown: Option<&str>,
    ) -> Result<Admission, McpError> {
        let admission = self.shared.digests().admit(tool, shown);
        if admission != Admission::Held {
            return Ok(admission);
        }
        let accepted = self.shared.records.accepted_digest(tool).await?;
        let mut digests = self.shared.digests();
        if let Some(accepted) = accepted {
            digests.accepted.insert(tool.to_owned(), accepted);
        }
        Ok(digests.admit(tool, shown))
    }

    /// Waits for a connection to the server that no call found lost, for at most `limit`. Returns it with its number.
    ///
    /// # Errors
    /// The reason why there is no connection.
    pub(super) async fn peer(&self, limit: Duration) -> Result<(u64, Peer<RoleClient>), Arc<str>> {
        let mut connection = self.shared.connection.subscribe();
        let mut reason: Arc<str> = "the link is closed".into();
        let open = async {
            loop {
                match &*connection.borrow_and_update() {
                    // The background task may not have noticed yet that a call lost this connection.
                    Connection::Open(number, _) if self.shared.is_lost(*number) => {
                        reason = "a call could not be sent".into();
                    }
                    Connection::Open(number, peer) => return Some((*number, peer.clone())),
                    Connection::Lost(why) => reason = Arc::clone(why),
                }
                if connection.changed().await.is_err() {
                    return None;
                }
            }
        };
        let open = within(limit, open).await.flatten();
        open.ok_or(reason)
    }

    /// Reports that a call lost the connection with this number, so that the background task connects again.
    pub(super) fn lost(&self, number: u64) {
        self.shared.lost.fetch_max(number, Ordering::Relaxed);
        self.shared.lost_changed.notify_one();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Digests {
    fn admit(&self, tool: &str, shown: Option<&str>) -> Admission {
        let offered = self.offered.get(tool).map(String::as_str);
        let accepted = self.accepted.get(tool).map(String::as_str);
        match shown {
            Some(shown) => admit(shown, offered, accepted),
            // Models see no definition of a tool that was not accepted at the start.
            None => admit("", offered, accepted),
        }
    }
}

impl Shared {
    /// Keeps the connection: connects again when it is lost, and compares the tools when they change.
    async fn keep(self: Arc<Self>, mut service: Service) {
        let mut number = 1;
        loop {
            let open = Connection::Open(number, service.peer().clone());
            self.connection.send_replace(open);
            let reason = self.watch(number, service).await;
            let server = &*self.settings.name;
            warn!(server, error = %Chain(&*reason), "the connection to an MCP server was lost");
            let lost = Connection::Lost(reason.to_string().into());
            self.connection.send_replace(lost);
            service = self.reconnect().await;
            info!(server, "connected to an MCP server again");
            number += 1;
        }
    }

    /// Watches a connection until it is lost. Returns the reason.
    async fn watch(&self, number: u64, service: Service) -> BoxError {
        let peer = service.peer().clone();
        let mut subscription = subscribe(&peer).await;
        let mut closed = pin!(service.waiting());
        let mut listed = Instant::now();
        let mut due = listed + LIST_INTERVAL;
        loop {
            select! {
                _ = &mut closed => return "the server closed the connection".into(),
                () = self.lost_changed.notified() => {
                    if self.is_lost(number) {
                        return "a call could not be sent".into();
                    }
                }
                () = self.handler.tools_changed() => due = due.min(listed + MIN_LIST_INTERVAL),
                () = next_change(&mut subscription) => due = due.min(listed + MIN_LIST_INTERVAL),
                () = sleep_until(due) => {
                    let compared = self.list_again(&peer).await;
                    listed = Instant::now();
                    due = listed + match compared {
                        Ok(()) => LIST_INTERVAL,
                        Err(error) if is_of_store(&error) => {
                            self.log_uncompared(&error);
                            RETRY_INTERVAL
                        }
                        Err(error) => return error.into(),
                    };
                }
            }
        }
    }

    /// Connects to the server again, with increasing delays between the attempts.
    async fn reconnect(&self) -> Service {
        const FIRST: Duration = Duration::from_millis(500);
        const LONGEST: Duration = Duration::from_secs(30);
        let mut attempt = 0;
        loop {
            match self.connect().await {
                Ok((service, listing)) => {
                    self.compare_at_last(&listing).await;
                    return service;
                }
                Err(error) => {
                    attempt += 1;
                    let delay = full_jitter(attempt, FIRST, LONGEST, chance()).max(FIRST / 5);
                    let server = &*self.settings.name;
                    warn!(server, error = %Chain(&error), ?delay, "cannot connect to an MCP server, will retry");
                    let lost = Connection::Lost(error.to_string().into());
                    self.connection.send_replace(lost);
                    sleep(delay).await;
                }
            }
        }
    }

    /// Compares the listed tools with the accepted ones, again and again until the store works.
    async fn compare_at_last(&self, listing: &Listing) {
        while let Err(error) = self.compare(listing).await {
            self.log_uncompared(&error);
            sleep(RETRY_INTERVAL).await;
        }
    }

    fn log_uncompared(&self, error: &McpError) {
        let (server, delay) = (&*self.settings.name, RETRY_INTERVAL);
        warn!(server, error = %Chain(error), ?delay, "cannot compare the tools of an MCP server with the accepted ones, will retry");
    }

    /// Connects to the server and lists its tools, within the timeout of the settings.
    async fn connect(&self) -> Result<(Service, Listing), McpError> {
        let timeout = self.settings.connect_timeout;
        let connected = async {
            let service = transport::open(&self.settings, self.handler.clone()).await?;
            // Each list must show the tools that the server has now, however long the server permits to cache them.
            let no_cache = ClientCacheConfig::disabled();
            service.peer().set_response_cache_config(no_cache).await;
            let listing = self.list(service.peer()).await?;
            Ok((service, listing))
        };
        let connected = within(timeout, connected).await;
        connected.unwrap_or_else(|| Err(self.timed_out()))
    }

    async fn list_again(&self, peer: &Peer<RoleClient>) -> Result<(), McpError> {
        let listing = within(self.settings.connect_timeout, self.list(peer)).await;
        let listing = listing.unwrap_or_else(|| Err(self.timed_out()))?;
        self.compare(&listing).await?;
        Ok(())
    }

    fn timed_out(&self) -> McpError {
        McpError::Timeout {
            server: self.settings.name.clone(),
            timeout: self.settings.connect_timeout,
        }
    }

    /// Lists the tools of the server, at most [`MAX_TOOLS`] tools on as many pages.
    async fn list(&self, peer: &Peer<RoleClient>) -> Result<Listing, McpError> {
        let server = &*self.settings.name;
        let mut listing = Listing::new();
        let mut cursor = None;
        for _ in 0..MAX_TOOLS {
            let page = PaginatedRequestParams::default().with_cursor(cursor.take());
            let page = peer.list_tools(Some(page)).await;
            let page = page.map_err(|error| McpError::Connect {
                server: server.to_owned(),
                source: opaque(&error),
            })?;
            for tool in page.tools {
                if listing.len() == MAX_TOOLS {
                    warn!(
                        server,
                        limit = MAX_TOOLS,
                        "an MCP server lists more tools than are used"
                    );
                    return Ok(listing);
                }
                let name = tool.name.clone().into_owned();
                if !self.settings.uses(&name) {
                    continue;
                }
                match Listed::read(tool) {
                    Ok(listed) => {
                        listing.insert(name, (listed.digest(), listed));
                    }
                    Err(reason) => {
                        warn!(
                            server,
                            tool = &*name,
                            reason,
                            "a tool of an MCP server is ignored"
                        );
                    }
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(listing);
            }
        }
        warn!(
            server,
            limit = MAX_TOOLS,
            "an MCP server lists more tools than are used"
        );
        Ok(listing)
    }

    /// Compares the listed tools with the accepted ones, and stores the digests of both. Returns the accepted definitions.
    async fn compare(&self, listing: &Listing) -> Result<BTreeMap<String, Accepted>, McpError> {
        let holds_new = self.settings.holds_new_tools;
        let accepted = self.records.compare(listing, holds_new).await?;
        let server = &*self.settings.name;
        let mut digests = self.digests();
        for (tool, (digest, _)) in listing {
            let known = accepted.get(tool).and_then(Option::as_ref);
            let is_accepted = known.is_some_and(|(accepted, _)| accepted == digest);
            if !is_accepted && digests.offered.get(tool) != Some(digest) {
                warn!(
                    server,
                    tool = &**tool,
                    "the definition of an MCP tool is not accepted, so calls of the tool are refused; see McpChanges"
                );
            }
        }
        let digest =
            |(tool, (digest, _)): (&String, &(String, Listed))| (tool.clone(), digest.clone());
        digests.offered = listing.iter().map(digest).collect();
        digests.accepted = accepted
            .iter()
            .filter_map(|(tool, accepted)| Some((tool.clone(), accepted.as_ref()?.0.clone())))
            .collect();
        Ok(accepted)
    }

    /// Returns the name of each listed tool on the server with the name under which it is registered. Omits tools without a valid and
    /// unique name.
    fn registered_names(&self, listing: &Listing) -> Vec<(String, String)> {
        let server = &*self.settings.name;
        let mut used = BTreeSet::new();
        let mut names = Vec::new();
        for tool in listing.keys() {
            let reason = match registered_name(server, tool) {
                None => "its name is too long",
                Some(name) if !used.insert(name.clone()) => "another tool has the same name",
                Some(name) => {
                    names.push((tool.clone(), name));
                    continue;
                }
            };
            warn!(
                server,
                tool = &**tool,
                reason,
                "a tool of an MCP server is ignored"
            );
        }
        names
    }

    /// Returns `true` if a call found the connection with this number lost.
    fn is_lost(&self, number: u64) -> bool {
        self.lost.load(Ordering::Relaxed) >= number
    }

    fn digests(&self) -> MutexGuard<'_, Digests> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("server", &self.settings.name)
            .finish_non_exhaustive()
    }
}

/// Returns `true` if an error comes from the store of the accepted tools, so that the connection to the server can be in order.
fn is_of_store(error: &McpError) -> bool {
    match error {
        McpError::Store { .. } | McpError::BadRecord { .. } => true,
        McpError::BadName { .. }
        | McpError::BadEndpoint { .. }
        | McpError::Start { .. }
        | McpError::Connect { .. }
        | McpError::Timeout { .. }
        | McpError::UnknownTool { .. }
        | McpError::ChangedAgain { .. } => false,
    }
}

/// Subscribes to changes of the tools, on a server of the protocol without sessions. Other servers send the changes unasked.
async fn subscribe(peer: &Peer<RoleClient>) -> Option<Subscription> {
    let info = peer.peer_info()?;
    let reports = info.capabilities.tools.as_ref()?.list_changed == Some(true);
    if !reports || info.protocol_version.has_initialize() {
        return None;
    }
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    within(Duration::from_secs(10), peer.listen(filter))
        .await?
        .ok()
}

/// Waits for the next change that a subscription reports. Never returns without a subscription.
async fn next_change(subscription: &mut Option<Subscription>) {
    if let Some(open) = subscription {
        match open.next().await {
            Ok(Some(_)) => return,
            // The periodic list replaces a subscription that has ended.
            Ok(None) | Err(_) => *subscription = None,
        }
    }
    std::future::pending().await
}

fn chance() -> f64 {
    let random = u32::try_from(RandomState::new().hash_one(()) >> 32).unwrap_or_default();
    f64::from(random) / f64::from(u32::MAX)
}
