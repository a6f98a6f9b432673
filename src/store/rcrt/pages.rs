//! Reads of a breadcrumb list of the RCRT server, page by page, while other clients write.

use super::filter::Filter;
use super::http::Failure;
use super::read::{Reader, rows};
use super::seek::{Gallop, Seek, Step};
use super::wire::ListRow;
use crate::model::{BreadcrumbId, Timestamp};
use reqwest::Url;
use std::collections::HashSet;

/// Number of rows of the first page of a breadcrumb list.
const FIRST_PAGE: usize = 20;
/// Maximum number of rows of a page of a breadcrumb list.
const PAGE: usize = 100;

/// A breadcrumb list of the RCRT server that is read page by page.
pub(super) struct Pages<'r> {
    reader: &'r Reader,
    url: Url,
    size: usize,
    offset: usize,
    /// Wanted time and state of the search for the first list row that is not newer than the wanted time. The first returned page
    /// starts near this row. `None` if no such search is running.
    seek: Option<(Timestamp, Seek)>,
    /// If `true`, the next page does not repeat the last row of the previous page. The repeated row otherwise shows whether rows
    /// were deleted.
    without_overlap: bool,
    returned: HashSet<BreadcrumbId>,
    /// Number of pages of the list that were read.
    pages: usize,
    /// Number of rows that were read from the breadcrumb list, including duplicates and rows that cannot be parsed. A row that is
    /// too large counts as a page.
    rows_read: usize,
    /// Number of rows read from the breadcrumb list after which the search stops.
    max_rows: usize,
    /// Number of rows that the second pass over the list has read since its last page with a new row. The second pass ends when
    /// the number reaches [`FIRST_PAGE`]. `None` during the first pass.
    known_in_a_row: Option<usize>,
    ended: bool,
    /// Server time of the response with the most recently read page, or `None` if the response has no time.
    pub(super) server_time: Option<Timestamp>,
}

impl Reader {
    /// Returns the breadcrumb list of a filter, newest first, to be read page by page.
    pub(super) fn pages(&self, filter: &Filter) -> Pages<'_> {
        let mut url = self.url(&["breadcrumbs"], filter);
        url.query_pairs_mut().append_pair("include_context", "true");
        Pages::new(self, url)
    }

    /// Returns the list of all breadcrumbs, newest first, to be read page by page. The rows have versions and update times, but
    /// neither schemas nor contexts.
    pub(super) fn changes(&self) -> Pages<'_> {
        Pages::new(self, self.client.url(&["breadcrumbs"]))
    }
}

impl<'r> Pages<'r> {
    /// Creates a reader that requests a breadcrumb list of the RCRT server page by page. The query of the URL selects its rows.
    fn new(reader: &'r Reader, url: Url) -> Self {
        Self {
            reader,
            url,
            size: FIRST_PAGE,
            offset: 0,
            seek: None,
            without_overlap: false,
            returned: HashSet::new(),
            pages: 0,
            rows_read: 0,
            max_rows: reader.settings.max_scanned,
            known_in_a_row: None,
            ended: false,
            server_time: None,
        }
    }

    /// Skips the rows of the breadcrumb list that are newer than `before`, for a query with at most `limit` results. Continues
    /// where the last search of this list stopped, if the row there is newer. Later writes only push rows down, and deletions are
    /// detected.
    pub(super) fn seek(&mut self, before: Timestamp, limit: usize) {
        self.seek = Some((before, Seek::default()));
        self.size = limit.clamp(FIRST_PAGE, PAGE);
        self.offset = self.reader.offsets.of(&self.url, before);
        self.without_overlap = true;
    }

    /// Moves the read position of the list towards the row that [`seek`](Self::seek) wants, the first row that is not newer than a
    /// time. Returns `true` if the search for that row has ended at this page.
    async fn advance_seek(&mut self, rows: &[ListRow], count: usize) -> Result<bool, Failure> {
        let Some((before, mut seek)) = self.seek.take() else {
            return Ok(true);
        };
        let is_newer = |row: &ListRow| row.breadcrumb.updated_at > before;
        let first_is_newer = rows.first().is_some_and(is_newer);
        let all_are_newer = count >= self.size && rows.last().is_some_and(is_newer);
        let step = match seek.step(self.offset, first_is_newer, all_are_newer) {
            Step::Gallop(gallop) => self.gallop(gallop, before).await?,
            step @ (Step::Arrived | Step::Read(_)) => step,
        };
        if let Step::Read(offset) = step {
            self.without_overlap = true;
            // Reading starts at the top of a list that changes all the time.
            self.offset = if self.is_below_limit() { offset } else { 0 };
            self.seek = Some((before, seek)).filter(|_| self.is_below_limit());
            return Ok(false);
        }
        if let Some(first) = rows.first() {
            let newest = first.breadcrumb.updated_at;
            self.reader.offsets.record(&self.url, newest, self.offset);
        }
        Ok(true)
    }

    /// Requests selected rows of the list, one row per request, to find the first row that is not newer than `before`. Records
    /// the offset of each newer row. If the search reaches its maximum number of rows, the next search of the list starts at a
    /// recorded offset.
    async fn gallop(&mut self, mut gallop: Gallop, before: Timestamp) -> Result<Step, Failure> {
        while let Some(offset) = gallop.probe(self.size).filter(|_| self.is_below_limit()) {
            let answer = self.reader.list(&self.url_of(offset, 1)).await?;
            let (rows, _) = rows(&answer)?;
            self.rows_read += 1;
            let time = rows.first().map(|row| row.breadcrumb.updated_at);
            let newer = time.filter(|time| *time > before);
            if let Some(time) = newer {
                self.reader.offsets.record(&self.url, time, offset);
            }
            gallop.record(offset, newer.is_some());
        }
        Ok(gallop.end())
    }

    /// Returns the rows on the breadcrumb list's next page that were not returned before, or `None` at the end of the list.
    ///
    /// Concurrent writes push rows down, so a row can come twice. Deletions pull rows up, so each page starts with the last row
    /// of the previous page. If that row is unknown, the search goes back.
    ///
    /// The search ends at the maximum number of rows, even if every response is too large or no page starts with a known row.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<ListRow>>, Failure> {
        while !self.ended {
            let overlap = usize::from(self.offset > 0 && !self.without_overlap);
            let (rows, count) = match self.page(self.offset - overlap, self.size + overlap).await {
                Err(Failure::TooLarge { .. }) if self.size > 1 => {
                    self.size = (self.size / 4).max(1);
                    continue;
                }
                Err(Failure::TooLarge { .. }) if overlap > 0 => {
                    self.without_overlap = true;
                    continue;
                }
                Err(failure @ Failure::TooLarge { .. }) => {
                    self.skip(failure)?;
                    continue;
                }
                answer => answer?,
            };
            self.without_overlap = false;
            self.pages += 1;
            self.rows_read += count;
            if !self.advance_seek(&rows, count).await? {
                continue;
            }
            let pulled_up = overlap == 1
                && rows
                    .first()
                    .is_some_and(|row| !self.returned.contains(&row.breadcrumb.id));
            if pulled_up && self.is_below_limit() {
                self.offset = self.offset.saturating_sub(self.size);
                continue;
            }
            self.ended = count < self.size + overlap;
            self.offset += self.size;
            self.size = (self.size * 2).min(PAGE);
            let new_rows = self.new_rows(rows);
            if let Some(known_in_a_row) = &mut self.known_in_a_row {
                *known_in_a_row = if new_rows.is_empty() {
                    *known_in_a_row + count
                } else {
                    0
                };
                self.ended |= *known_in_a_row >= FIRST_PAGE;
            }
            return Ok(Some(new_rows));
        }
        Ok(None)
    }

    /// Starts a second pass at the top of the list, for rows that were written during the first pass. The second pass ends after
    /// enough known rows, and can read as many rows as the first. Returns `false` if a second pass is useless or done.
    pub(super) fn start_second_pass(&mut self) -> bool {
        if self.pages < 2 || self.known_in_a_row.is_some() {
            return false;
        }
        (self.offset, self.without_overlap, self.ended) = (0, false, false);
        self.known_in_a_row = Some(0);
        self.max_rows = self.rows_read + self.reader.settings.max_scanned;
        true
    }

    /// Returns the number of rows that were read from the breadcrumb list.
    pub(super) fn rows_read(&self) -> usize {
        self.rows_read
    }

    /// Returns the number of rows read from the breadcrumb list if the search has reached its maximum, or `None` if it may read
    /// more rows.
    pub(super) fn rows_at_limit(&self) -> Option<usize> {
        (!self.is_below_limit()).then_some(self.rows_read)
    }

    fn is_below_limit(&self) -> bool {
        self.rows_read < self.max_rows
    }

    /// Skips the next row of the list, which is too large.
    fn skip(&mut self, failure: Failure) -> Result<(), Failure> {
        tracing::warn!(
            offset = self.offset,
            "omitted a breadcrumb from a list of the RCRT server, because its row exceeds max_list_bytes"
        );
        self.offset += 1;
        self.pages += 1;
        self.rows_read += PAGE;
        self.without_overlap = true;
        match self.is_below_limit() {
            true => Ok(()),
            false => Err(failure),
        }
    }

    fn new_rows(&mut self, rows: Vec<ListRow>) -> Vec<ListRow> {
        let new = rows
            .into_iter()
            .filter(|row| self.returned.insert(row.breadcrumb.id));
        new.collect()
    }

    async fn page(
        &mut self,
        offset: usize,
        limit: usize,
    ) -> Result<(Vec<ListRow>, usize), Failure> {
        let answer = self.reader.list(&self.url_of(offset, limit)).await?;
        self.server_time = answer.server_time;
        rows(&answer)
    }

    fn url_of(&self, offset: usize, limit: usize) -> Url {
        let mut url = self.url.clone();
        url.query_pairs_mut()
            .append_pair("offset", &offset.to_string())
            .append_pair("limit", &limit.to_string());
        url
    }
}
