//! Reads of one breadcrumb or of breadcrumb lists from the RCRT server. Breadcrumbs of other owners count as missing.

use super::Settings;
use super::filter::Filter;
use super::foreign::ForeignIds;
use super::http::{Answer, Failure, ServerClient};
use super::offsets::Offsets;
use super::token_check::TokenCheck;
use super::wire::{self, ListRow};
use crate::clock::wall_micros;
use crate::error::Chain;
use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use reqwest::Url;
use std::future::ready;
use std::sync::Arc;

/// Maximum size of the server's response with one breadcrumb (8 MiB).
const MAX_FULL: usize = 8 << 20;

/// Maximum number of concurrent reads of breadcrumbs from the RCRT server.
const AT_ONCE: usize = 8;

/// Result of a read of one breadcrumb from the RCRT server.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart at once, and most are of this owner"
)]
pub(super) enum BreadcrumbRead {
    Own(Breadcrumb),
    Foreign,
    Missing,
}

/// State shared by all handles on the RCRT store of an owner.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) client: ServerClient,
    pub(super) owner: Arc<str>,
    pub(super) settings: Settings,
    foreign: Arc<ForeignIds>,
    pub(super) offsets: Arc<Offsets>,
    token_check: Arc<TokenCheck>,
}

impl Reader {
    pub(super) fn new(client: ServerClient, owner: Arc<str>, settings: Settings) -> Self {
        Self {
            client,
            owner,
            settings,
            foreign: Arc::default(),
            offsets: Arc::default(),
            token_check: Arc::default(),
        }
    }

    /// Returns the current version of a breadcrumb, or `None` if it is missing or belongs to another owner.
    pub(super) async fn full(&self, id: BreadcrumbId) -> Result<Option<Breadcrumb>, Failure> {
        match self.read(id).await? {
            BreadcrumbRead::Own(full) => Ok(Some(full)),
            BreadcrumbRead::Foreign | BreadcrumbRead::Missing => Ok(None),
        }
    }

    /// Reads a breadcrumb from the RCRT server, or reports that it is missing or belongs to another owner. [`full`](Self::full)
    /// does not distinguish these two cases.
    pub(super) async fn read(&self, id: BreadcrumbId) -> Result<BreadcrumbRead, Failure> {
        let url = self.client.url(&["breadcrumbs", &id.to_string(), "full"]);
        let answer = match self.client.get(&url, MAX_FULL).await {
            Err(failure) if failure.status() == Some(404) => return Ok(BreadcrumbRead::Missing),
            answer => answer?,
        };
        // The error of the parser may quote the breadcrumb, so it must not appear in logs.
        let full = wire::full(&answer.text)
            .map_err(|_| Failure::Unreadable(format!("cannot parse breadcrumb {id}").into()))?;
        // The server returns UUIDs in lower case, even if the owner was set in upper case.
        let is_own = |owner: &str| owner.eq_ignore_ascii_case(&self.owner);
        if !full.owner_id.as_deref().is_some_and(is_own) {
            self.foreign.record(id);
            return Ok(BreadcrumbRead::Foreign);
        }
        let now = Timestamp::from_micros(wall_micros());
        let lives = full.id == id && full.ttl.is_none_or(|ttl| ttl > now);
        Ok(if lives {
            BreadcrumbRead::Own(full)
        } else {
            BreadcrumbRead::Missing
        })
    }

    /// Returns the current versions of several breadcrumbs in the order of `ids`, without breadcrumbs that are missing or cannot be
    /// parsed.
    pub(super) async fn read_all(
        &self,
        ids: impl IntoIterator<Item = BreadcrumbId>,
    ) -> Result<Vec<Breadcrumb>, Failure> {
        let ids = ids.into_iter().collect();
        self.stream_all(ids).try_collect().await
    }

    /// Returns the current versions of several breadcrumbs as a stream, like [`read_all`](Self::read_all). The stream holds only a few
    /// breadcrumbs at a time.
    pub(super) fn stream_all(
        &self,
        ids: Vec<BreadcrumbId>,
    ) -> impl Stream<Item = Result<Breadcrumb, Failure>> + Send {
        let found = self.read_each(ids);
        found.filter_map(|(_, answer)| ready(answer.transpose()))
    }

    /// Reads several breadcrumbs with all their fields by their IDs, and returns them as a stream in the order of `ids`. Skips an
    /// ID if the cache lists it as a breadcrumb of another owner. The result is `None` for a breadcrumb that is missing, belongs
    /// to another owner or cannot be parsed.
    pub(super) fn read_each(
        &self,
        ids: Vec<BreadcrumbId>,
    ) -> impl Stream<Item = (BreadcrumbId, Result<Option<Breadcrumb>, Failure>)> + Send {
        let own = ids.into_iter().filter(|id| !self.foreign.contains(*id));
        let reads = stream::iter(own).map(move |id| async move { (id, self.full(id).await) });
        reads.buffered(AT_ONCE).map(|(id, answer)| match answer {
            Err(failure @ (Failure::Unreadable(_) | Failure::TooLarge { .. })) => {
                tracing::warn!(%id, failure = %Chain(&failure), "omitted a breadcrumb from a query result, because the server's response for the breadcrumb cannot be read");
                (id, Ok(None))
            }
            answer => (id, answer),
        })
    }

    /// Returns the rows of a breadcrumb list that are most similar to a text, at most `nn`, the most similar row first. Also
    /// returns the number of rows in the server's response, including rows that cannot be parsed.
    pub(super) async fn nearest(
        &self,
        filter: &Filter,
        text: &str,
        nn: usize,
    ) -> Result<(Vec<ListRow>, usize), Failure> {
        let mut url = self.url(&["breadcrumbs", "search"], filter);
        url.query_pairs_mut()
            .append_pair("include_context", "true")
            .append_pair("q", text)
            .append_pair("nn", &nn.to_string());
        let answer = self.list(&url).await?;
        rows(&answer)
    }

    /// Sends a request for a breadcrumb list to the RCRT server.
    pub(super) async fn list(&self, url: &Url) -> Result<Answer, Failure> {
        self.client.get(url, self.settings.max_list_bytes).await
    }

    pub(super) fn url(&self, path: &[&str], filter: &Filter) -> Url {
        let mut url = self.client.url(path);
        let mut query = url.query_pairs_mut();
        if let Some(schema) = &filter.schema {
            query.append_pair("schema_name", schema);
        }
        if let Some(tag) = &filter.tag {
            query.append_pair("tag", tag);
        }
        drop(query);
        url
    }

    /// Returns an error if the RCRT server refuses the API token. Sends at most one request per minute, and otherwise returns the
    /// outcome of the last one. Any other failure of the request is ignored, because the search itself succeeded.
    pub(super) async fn check_token(&self) -> Result<(), Failure> {
        if !self.token_check.start() {
            return self.token_check.last();
        }
        // The server checks the token before it searches for the ID.
        let failure = self.read(BreadcrumbId::NIL).await.err();
        self.token_check.record(failure)
    }
}

/// Parses the breadcrumbs of a list response of the RCRT server. Also returns the number of rows in the server's response,
/// including rows that cannot be parsed.
pub(super) fn rows(answer: &Answer) -> Result<(Vec<ListRow>, usize), Failure> {
    wire::rows(&answer.text)
        .map_err(|_| Failure::Unreadable("the response is not a JSON list of breadcrumbs".into()))
}
