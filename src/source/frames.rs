//! Incremental parser for `text/event-stream` bodies (server-sent events), independent of chunk boundaries and I/O.
//!
//! Follows the [HTML standard](https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation).

use std::mem;
use std::time::Duration;

/// Incremental parser of a `text/event-stream` body.
#[derive(Debug)]
pub(crate) struct Frames {
    line: Vec<u8>,
    /// Received data of the server-sent event in progress, or `None` before the first `data` field.
    data: Option<Vec<u8>>,
    name: Vec<u8>,
    id: Option<String>,
    /// If `true`, the server-sent event in progress has at least one line.
    has_lines: bool,
    after_return: bool,
    /// If `true`, a byte order mark may precede the next line of the event stream.
    is_first_line: bool,
    max_line: usize,
    max_event: usize,
}

/// One item of an event stream: an event, a frame without data, or a requested reconnection delay.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum SseItem {
    /// A server-sent event with data.
    Event(Frame),
    /// A frame of the event stream without data, for example a comment.
    Empty,
    /// Reconnection delay that the server of the event stream requests.
    Retry(Duration),
}

/// One server-sent event of a `text/event-stream` body.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Frame {
    /// Name of the server-sent event, or `message` if the server names none.
    pub(crate) name: String,
    /// Data of the server-sent event, with lines joined by a line feed.
    pub(crate) data: Vec<u8>,
    /// The event ID that the stream sent last, either in this event or in an earlier event.
    pub(crate) id: Option<String>,
}

/// Error for a line or an event of a `text/event-stream` body that is longer than its limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what} of the event stream is longer than {limit} bytes")]
pub(crate) struct TooLong {
    what: &'static str,
    limit: usize,
}

/// Maximum length of the ID of a server-sent event in bytes. A reconnect sends the ID in a header.
const MAX_ID: usize = 1 << 10;

impl Frames {
    /// Creates a parser for a new `text/event-stream` body. `max_line` limits a line, and `max_event` the data of an
    /// event, in bytes.
    pub(crate) fn new(max_line: usize, max_event: usize) -> Self {
        Self {
            line: Vec::new(),
            data: None,
            name: Vec::new(),
            id: None,
            has_lines: false,
            after_return: false,
            is_first_line: true,
            max_line,
            max_event,
        }
    }

    /// Parses a chunk of the event stream, and appends the completed items to `items`. After an error, `items` contains
    /// the items before the error.
    pub(crate) fn read(
        &mut self,
        chunk: &[u8],
        items: &mut impl Extend<SseItem>,
    ) -> Result<(), TooLong> {
        let mut rest = chunk;
        while let Some((&first, behind)) = rest.split_first() {
            // A line ends with LF, CR or CRLF, and a CRLF may be split between two chunks.
            if mem::take(&mut self.after_return) && first == b'\n' {
                rest = behind;
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, behind) = rest.split_at(end.unwrap_or(rest.len()));
            check_length("a line", self.line.len() + part.len(), self.max_line)?;
            self.line.extend_from_slice(part);
            rest = behind;
            if let Some((ending, behind)) = rest.split_first() {
                self.after_return = *ending == b'\r';
                rest = behind;
                self.end_line(items)?;
            }
        }
        Ok(())
    }

    fn end_line(&mut self, items: &mut impl Extend<SseItem>) -> Result<(), TooLong> {
        let mut line = mem::take(&mut self.line);
        if mem::take(&mut self.is_first_line) && line.starts_with("\u{FEFF}".as_bytes()) {
            line.drain(..'\u{FEFF}'.len_utf8());
        }
        if line.is_empty() {
            items.extend(self.end_frame());
        } else {
            self.has_lines = true;
            items.extend(self.field(&line)?);
        }
        // The next line reuses the buffer.
        line.clear();
        self.line = line;
        Ok(())
    }

    fn end_frame(&mut self) -> Option<SseItem> {
        let (data, name) = (self.data.take(), mem::take(&mut self.name));
        if !mem::take(&mut self.has_lines) {
            return None;
        }
        let Some(data) = data else {
            return Some(SseItem::Empty);
        };
        let name = match name.is_empty() {
            true => "message".to_owned(),
            false => String::from_utf8_lossy(&name).into_owned(),
        };
        let id = self.id.clone();
        Some(SseItem::Event(Frame { name, data, id }))
    }

    fn field(&mut self, line: &[u8]) -> Result<Option<SseItem>, TooLong> {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                let before = self.data.as_ref().map_or(0, |data| data.len() + 1);
                check_length("an event", before + value.len(), self.max_event)?;
                match &mut self.data {
                    Some(data) => {
                        data.push(b'\n');
                        data.extend_from_slice(value);
                    }
                    None => self.data = Some(value.to_vec()),
                }
            }
            b"event" => self.name = value.to_vec(),
            b"id" if !value.contains(&0) && value.len() <= MAX_ID => {
                self.id = std::str::from_utf8(value)
                    .ok()
                    .filter(|id| !id.is_empty())
                    .map(str::to_owned);
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let text = std::str::from_utf8(value).unwrap_or_default();
                let millis = text.parse().unwrap_or(u64::MAX);
                return Ok(Some(SseItem::Retry(Duration::from_millis(millis))));
            }
            // The standard ignores comments, unknown fields and invalid values.
            _ => {}
        }
        Ok(None)
    }
}

fn check_length(what: &'static str, size: usize, limit: usize) -> Result<(), TooLong> {
    match size > limit {
        true => Err(TooLong { what, limit }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
