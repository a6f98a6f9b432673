//! The lines of `text/event-stream`, as much of them as chat completions use: `data` fields, comments, blank lines.

use crate::agent::ModelError;

/// Takes a body apart into the data of its events, however it is cut into chunks.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_return: bool,
}

impl EventReader {
    /// The longest line and the longest event, in bytes: 1 MiB.
    pub(super) const MAX_BYTES: usize = 1 << 20;

    /// Reads the next chunk, and gives the data of each event that it ends. What was ended before an error is kept.
    pub(super) fn read(
        &mut self,
        chunk: &[u8],
        events: &mut impl Extend<Vec<u8>>,
    ) -> Result<(), ModelError> {
        for &byte in chunk {
            // A line ends with LF, CR or CRLF, and CRLF is one end even if a chunk parts it.
            let is_second_half = std::mem::take(&mut self.after_return) && byte == b'\n';
            match byte {
                _ if is_second_half => {}
                b'\n' => self.end_line(events)?,
                b'\r' => {
                    self.after_return = true;
                    self.end_line(events)?;
                }
                _ => {
                    within(self.line.len() + 1)?;
                    self.line.push(byte);
                }
            }
        }
        Ok(())
    }

    fn end_line(&mut self, events: &mut impl Extend<Vec<u8>>) -> Result<(), ModelError> {
        if self.line.is_empty() {
            let data = std::mem::take(&mut self.data);
            if std::mem::take(&mut self.has_data) {
                events.extend([data]);
            }
            return Ok(());
        }
        if let Some(value) = self.line.strip_prefix(b"data:") {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            within(self.data.len() + value.len() + 1)?;
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value);
            self.has_data = true;
        }
        self.line.clear();
        Ok(())
    }
}

fn within(size: usize) -> Result<(), ModelError> {
    if size > EventReader::MAX_BYTES {
        return Err(ModelError::TooLarge {
            what: "an event of the answer in bytes",
            limit: EventReader::MAX_BYTES,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(chunks: &[&[u8]]) -> (Vec<String>, bool) {
        let (mut reader, mut found) = (EventReader::default(), Vec::new());
        let failed = chunks
            .iter()
            .any(|chunk| reader.read(chunk, &mut found).is_err());
        let texts = found
            .iter()
            .map(|data| String::from_utf8_lossy(data).into_owned());
        (texts.collect(), failed)
    }

    #[test]
    fn comments_other_fields_and_every_kind_of_line_end_are_understood() {
        let body = b": hello\n\ndata: one\r\n\r\nevent: x\rid: 7\rdata:two\r\rdata: a\ndata:  b\n\n\n\ndata\n\n";

        assert_eq!(
            events(&[body]),
            (vec!["one".into(), "two".into(), "a\n b".into()], false)
        );
    }

    #[test]
    fn a_return_and_a_line_feed_are_one_end_of_a_line_even_in_two_chunks() {
        let whole: &[u8] = b"data: one\r\ndata: two\r\n\r\n";
        let (first, second) = whole.split_at(10);

        assert_eq!(events(&[whole]), (vec!["one\ntwo".into()], false));
        assert_eq!(events(&[first, second]), (vec!["one\ntwo".into()], false));
    }

    #[test]
    fn an_event_that_no_blank_line_ends_is_not_given() {
        assert_eq!(
            events(&[b"data: one\n\ndata: tw"]),
            (vec!["one".into()], false)
        );
    }

    #[test]
    fn a_line_without_end_is_refused_at_the_limit() {
        let line = vec![b'x'; EventReader::MAX_BYTES];

        assert_eq!(
            events(&[b"data: one\n\n", &line]),
            (vec!["one".into()], false)
        );
        assert_eq!(
            events(&[b"data: one\n\n", &line, b"x"]),
            (vec!["one".into()], true)
        );
    }

    #[test]
    fn an_event_of_lines_without_end_is_refused_at_the_limit() {
        let line = [b"data: ".to_vec(), vec![b'x'; 1 << 19], b"\n".to_vec()].concat();

        assert!(!events(&[&line]).1);
        assert!(events(&[&line, &line]).1);
    }

    fn body() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            prop::sample::select(vec![
                "data: ", "data:", "data", "\r", "\n", "\r\n", "\n\n", ":", "[DONE]", "ü", "{}"
            ])
            .prop_map(|text| text.as_bytes().to_vec()),
            prop::collection::vec(any::<u8>(), 0..6),
        ];
        prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_chunks_give_the_same_events(
            body in body(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
            cuts.extend([0, body.len()]);
            cuts.sort_unstable();
            let chunks: Vec<_> = cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
            let bytes: Vec<_> = body.chunks(1).collect();

            let whole = events(&[&body]);

            prop_assert_eq!(&events(&chunks), &whole);
            prop_assert_eq!(&events(&bytes), &whole);
        }
    }
}
