//! Search for the first row of a breadcrumb list that is not newer than a time. Pure.
//!
//! A list is sorted newest first. While it is read, other clients add rows at the top and delete rows.

/// Number of rows that the first step of a search skips towards the end of a breadcrumb list. A first step back towards the top
/// of the list has the same length.
const STEP: usize = 100;

/// Next action of a search for a row of a breadcrumb list.
#[derive(Debug)]
pub(super) enum Step {
    /// The search has ended at the current page. The first row that is not newer than the wanted time is on this page or on one of the
    /// next pages.
    Arrived,
    /// The search must read the page at this offset.
    Read(usize),
    /// The search must request single rows farther down the list, because all rows of the current page are newer than the wanted
    /// time.
    Gallop(Gallop),
}

/// State of a search that reads pages of a breadcrumb list until a page contains a wanted row.
#[derive(Debug)]
pub(super) struct Seek {
    /// Number of rows by which the search moves back towards the top of the list if the first row of a page is not newer than the
    /// wanted time.
    back: usize,
}

impl Default for Seek {
    fn default() -> Self {
        Self { back: STEP }
    }
}

impl Seek {
    /// Returns the next action of the search after it has read the page at an offset. `first_is_newer` is `true` if the first row
    /// of the page is newer than the wanted rows, and `all_are_newer` if the page is full and all its rows are newer.
    pub(super) fn step(
        &mut self,
        offset: usize,
        first_is_newer: bool,
        all_are_newer: bool,
    ) -> Step {
        if offset > 0 && !first_is_newer {
            // Rows were deleted above, so wanted rows can be above this page.
            let back = self.back;
            self.back = back.saturating_mul(2);
            return Step::Read(offset.saturating_sub(back));
        }
        match all_are_newer {
            true => Step::Gallop(Gallop::from(offset)),
            false => Step::Arrived,
        }
    }
}

/// Exponential search in a breadcrumb list: steps of doubling size, then a binary search. Needs few requests, however long the
/// list is.
#[derive(Debug)]
pub(super) struct Gallop {
    start: usize,
    /// An offset in the breadcrumb list whose row is newer than the wanted time.
    low: usize,
    /// An offset in the breadcrumb list whose row is not newer than the wanted time, or an offset behind the end of the list.
    high: Option<usize>,
    step: usize,
}

impl Gallop {
    /// Starts the search at the offset of a row that is newer than the wanted time.
    fn from(start: usize) -> Self {
        Self {
            start,
            low: start,
            high: None,
            step: STEP,
        }
    }

    /// Returns the offset in the breadcrumb list of the next row that the search must read. `None` if a page of this size at
    /// [`low`](Self::low) has the first row that is not newer.
    pub(super) fn probe(&self, size: usize) -> Option<usize> {
        match self.high {
            None => Some(self.low.saturating_add(self.step)),
            Some(high) => {
                let distance = high - self.low;
                (distance >= size.max(2)).then(|| self.low + distance / 2)
            }
        }
    }

    /// Records whether the row at an offset in the breadcrumb list is newer than the wanted time.
    pub(super) fn record(&mut self, offset: usize, is_newer: bool) {
        match (is_newer, self.high) {
            (true, None) => {
                self.low = offset;
                self.step = self.step.saturating_mul(2);
            }
            (true, Some(_)) => self.low = offset,
            (false, _) => self.high = Some(offset),
        }
    }

    /// Returns the next action after the exponential search: to read the page that it found, or to end the whole search if that
    /// page is the start page. A page that is smaller than the distance to the wanted row is followed by the next page, and not
    /// read again.
    pub(super) fn end(&self) -> Step {
        match self.low == self.start {
            true => Step::Arrived,
            false => Step::Read(self.low),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Seeks in a list of `rows` rows. The first `newer` rows are newer than the wanted rows. Returns the offset and the number of
    /// requests.
    fn seek(rows: usize, newer: usize, from: usize, size: usize) -> (usize, usize) {
        let is_newer = |offset: usize| offset < newer.min(rows);
        let (mut seek, mut offset, mut requests) = (Seek::default(), from, 0);
        loop {
            requests += 1;
            assert!(requests < 1_000, "does not end");
            let is_full = offset + size <= rows;
            let mut step = seek.step(
                offset,
                is_newer(offset),
                is_full && is_newer(offset + size - 1),
            );
            if let Step::Gallop(mut gallop) = step {
                while let Some(probe) = gallop.probe(size) {
                    requests += 1;
                    gallop.record(probe, is_newer(probe));
                }
                step = gallop.end();
            }
            match step {
                Step::Read(next) => offset = next,
                Step::Arrived | Step::Gallop(_) => return (offset, requests),
            }
        }
    }

    proptest! {
        #[test]
        fn a_search_ends_after_few_requests_at_a_page_near_the_first_wanted_row(
            rows in 0_usize..12_000,
            newer in 0_usize..12_000,
            from in 0_usize..12_000,
            size in 1_usize..=100,
        ) {
            let newer = newer.min(rows);
            let (offset, requests) = seek(rows, newer, from, size);

            prop_assert!(offset <= newer, "no wanted row is above the page");
            prop_assert!(newer - offset <= size.max(STEP), "the wanted rows are near: {offset}");
            prop_assert!(offset == 0 || offset < newer, "a newer row is known");
            prop_assert!(requests <= 80, "{requests}");
        }
    }

    #[test]
    fn the_first_wanted_row_is_found_at_every_offset_with_pages_of_every_size() {
        for newer in 0..=350 {
            for size in 1..=100 {
                let (offset, requests) = seek(400, newer, 0, size);

                assert!(offset <= newer && newer - offset <= size, "{newer} {size}");
                assert!(requests < 40, "{newer} {size}: {requests}");
            }
        }
    }
}
