//! Reading: one breadcrumb whole, or a list page by page. What belongs to another owner is not there.

use super::Settings;
use super::filter::Filter;
use super::foreign::Foreign;
use super::http::{Failure, Link};
use super::wire::{self, Row};
use crate::clock::wall_micros;
use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use futures::{StreamExt as _, stream};
use reqwest::Url;
use std::collections::HashSet;
use std::sync::Arc;

/// How many bytes are read of one breadcrumb.
const MAX_FULL: usize = 8 << 20;

/// How many rows a list is asked for at a time.
const FIRST_PAGE: usize = 20;
const PAGE: usize = 100;

/// How many breadcrumbs are read whole at a time.
const AT_ONCE: usize = 8;

/// What is there under an id.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart at once, and most are of this owner"
)]
pub(super) enum Look {
    Own(Breadcrumb),
    Foreign,
    Gone,
}

/// What all handles on the store of an owner share.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) link: Link,
    pub(super) owner: Arc<str>,
    pub(super) settings: Settings,
    foreign: Arc<Foreign>,
}

impl Reader {
    pub(super) fn new(link: Link, owner: Arc<str>, settings: Settings) -> Self {
        Self {
            link,
            owner,
            settings,
            foreign: Arc::default(),
        }
    }

    /// A breadcrumb as the server has it now; none if there is none of this owner.
    pub(super) async fn full(&self, id: BreadcrumbId) -> Result<Option<Breadcrumb>, Failure> {
        match self.look(id).await? {
            Look::Own(full) => Ok(Some(full)),
            Look::Foreign | Look::Gone => Ok(None),
        }
    }

    /// The same, and whether it is there and belongs to another owner.
    pub(super) async fn look(&self, id: BreadcrumbId) -> Result<Look, Failure> {
        let url = self.link.url(&["breadcrumbs", &id.to_string(), "full"]);
        let text = match self.link.get(&url, MAX_FULL).await {
            Err(failure) if failure.status() == Some(404) => return Ok(Look::Gone),
            answer => answer?,
        };
        // The words of the parser may quote what it read.
        let full = wire::full(&text).map_err(|_| {
            Failure::Unreadable(format!("breadcrumb {id} is nothing this crate keeps").into())
        })?;
        // The server writes UUIDs in lower case, whatever it was given.
        let is_own = |owner: &str| owner.eq_ignore_ascii_case(&self.owner);
        if !full.owner_id.as_deref().is_some_and(is_own) {
            self.foreign.note(id);
            return Ok(Look::Foreign);
        }
        let now = Timestamp::from_micros(wall_micros());
        let lives = full.id == id && full.ttl.is_none_or(|ttl| ttl > now);
        Ok(if lives { Look::Own(full) } else { Look::Gone })
    }

    /// The same of several, in their order. Those that are not there or cannot be read are left out.
    pub(super) async fn fulls(
        &self,
        ids: impl IntoIterator<Item = BreadcrumbId>,
    ) -> Result<Vec<Breadcrumb>, Failure> {
        let ids: Vec<BreadcrumbId> = ids
            .into_iter()
            .filter(|id| !self.foreign.knows(*id))
            .collect();
        let reads = ids
            .into_iter()
            .map(|id| async move { (id, self.full(id).await) });
        let mut answers = stream::iter(reads).buffered(AT_ONCE);
        let mut found = Vec::new();
        while let Some((id, answer)) = answers.next().await {
            match answer {
                Ok(full) => found.extend(full),
                Err(failure @ (Failure::Unreadable(_) | Failure::TooLarge { .. })) => {
                    tracing::warn!(%id, %failure, "a breadcrumb is left out");
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(found)
    }

    /// The breadcrumbs of a list, nearest to a text first.
    pub(super) async fn nearest(
        &self,
        filter: &Filter,
        text: &str,
        nn: usize,
    ) -> Result<(Vec<Row>, usize), Failure> {
        let mut url = self.url(&["breadcrumbs", "search"], filter);
        url.query_pairs_mut()
            .append_pair("q", text)
            .append_pair("nn", &nn.to_string());
        self.rows(&url).await
    }

    /// A list, newest first, to be read page by page.
    pub(super) fn list(&self, filter: &Filter) -> Pages<'_> {
        Pages {
            reader: self,
            url: self.url(&["breadcrumbs"], filter),
            size: FIRST_PAGE,
            offset: 0,
            alone: false,
            seen: HashSet::new(),
            looked_at: 0,
            ended: false,
        }
    }

    fn url(&self, path: &[&str], filter: &Filter) -> Url {
        let mut url = self.link.url(path);
        let mut query = url.query_pairs_mut();
        query.append_pair("include_context", "true");
        if let Some(schema) = &filter.schema {
            query.append_pair("schema_name", schema);
        }
        if let Some(tag) = &filter.tag {
            query.append_pair("tag", tag);
        }
        drop(query);
        url
    }

    async fn rows(&self, url: &Url) -> Result<(Vec<Row>, usize), Failure> {
        let text = self.link.get(url, self.settings.max_list_bytes).await?;
        wire::rows(&text).map_err(|_| Failure::Unreadable("it is no list of breadcrumbs".into()))
    }
}

/// A list while it is read.
pub(super) struct Pages<'r> {
    reader: &'r Reader,
    url: Url,
    size: usize,
    offset: usize,
    /// Whether the next row is asked for without the one before it, which would make the answer too large.
    alone: bool,
    seen: HashSet<BreadcrumbId>,
    /// How many rows were read, those included that others had pushed down and those that cannot be read. One that is too
    /// large counts as a page.
    pub(super) looked_at: usize,
    ended: bool,
}

impl Pages<'_> {
    /// The rows of the next page that were not there before; none at the end. What is written meanwhile pushes rows down,
    /// which then come twice; what is deleted pulls them up, so each page begins with a row that has to be known.
    ///
    /// A server whose every answer is too large, or that never shows a row that is known, ends it after as many rows as may
    /// be looked at.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Row>>, Failure> {
        while !self.ended {
            let overlap = usize::from(self.offset > 0 && !self.alone);
            let (rows, count) = match self.page(self.offset - overlap, self.size + overlap).await {
                Err(Failure::TooLarge { .. }) if self.size > 1 => {
                    self.size = (self.size / 4).max(1);
                    continue;
                }
                Err(Failure::TooLarge { .. }) if overlap > 0 => {
                    self.alone = true;
                    continue;
                }
                Err(failure @ Failure::TooLarge { .. }) => {
                    tracing::warn!("a row of a list is too large and is left out");
                    (self.offset, self.looked_at) = (self.offset + 1, self.looked_at + PAGE);
                    if self.has_looked_at_all() {
                        return Err(failure);
                    }
                    self.alone = true;
                    continue;
                }
                answer => answer?,
            };
            self.alone = false;
            self.looked_at += count;
            let pulled_up = overlap == 1
                && rows
                    .first()
                    .is_some_and(|row| !self.seen.contains(&row.breadcrumb.id));
            if pulled_up && !self.has_looked_at_all() {
                self.offset = self.offset.saturating_sub(self.size);
                continue;
            }
            self.ended = count < self.size + overlap;
            self.offset += self.size;
            self.size = (self.size * 2).min(PAGE);
            return Ok(Some(self.fresh(rows)));
        }
        Ok(None)
    }

    /// The rows that came to the top since the list was begun.
    pub(super) async fn newer(&mut self) -> Result<Vec<Row>, Failure> {
        let mut newer = Vec::new();
        let mut offset = 0;
        loop {
            let (rows, count) = match self.page(offset, self.size).await {
                Err(Failure::TooLarge { .. }) if self.size > 1 => {
                    self.size = (self.size / 4).max(1);
                    continue;
                }
                answer => answer?,
            };
            self.looked_at += count;
            offset += self.size;
            let fresh = self.fresh(rows);
            let is_last = fresh.is_empty() || count < self.size;
            newer.extend(fresh);
            if is_last || self.looked_at >= 2 * self.reader.settings.max_looked_at {
                return Ok(newer);
            }
        }
    }

    fn has_looked_at_all(&self) -> bool {
        self.looked_at >= self.reader.settings.max_looked_at
    }

    /// Whether more than one page was read.
    pub(super) fn took_time(&self) -> bool {
        self.offset > FIRST_PAGE
    }

    fn fresh(&mut self, rows: Vec<Row>) -> Vec<Row> {
        let new = rows
            .into_iter()
            .filter(|row| self.seen.insert(row.breadcrumb.id));
        new.collect()
    }

    async fn page(&self, offset: usize, limit: usize) -> Result<(Vec<Row>, usize), Failure> {
        let mut url = self.url.clone();
        url.query_pairs_mut()
            .append_pair("offset", &offset.to_string())
            .append_pair("limit", &limit.to_string());
        self.reader.rows(&url).await
    }
}
