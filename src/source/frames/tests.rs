use super::*;
use proptest::prelude::*;

const LIMIT: usize = 1_000;

fn hear(chunks: &[&[u8]]) -> (Vec<Heard>, bool) {
    let (mut frames, mut heard) = (Frames::new(LIMIT, LIMIT), Vec::new());
    let failed = chunks
        .iter()
        .any(|chunk| frames.read(chunk, &mut heard).is_err());
    (heard, failed)
}

/// Returns the data of the events in a body.
fn data(body: &[u8]) -> Vec<String> {
    let (heard, failed) = hear(&[body]);
    assert!(!failed);
    let data = heard.into_iter().filter_map(|heard| match heard {
        Heard::Event(frame) => Some(String::from_utf8(frame.data).unwrap()),
        Heard::Nothing | Heard::Retry(_) => None,
    });
    data.collect()
}

fn event(name: &str, data: &str, id: Option<&str>) -> Heard {
    Heard::Event(Frame {
        name: name.to_owned(),
        data: data.as_bytes().to_vec(),
        id: id.map(str::to_owned),
    })
}

#[test]
fn comments_other_fields_and_every_kind_of_line_end_are_understood() {
    let body =
        b": hello\n\ndata: one\r\n\r\nother: x\rdata:two\r\rdata: a\ndata:  b\n\n\n\ndata\n\n";

    assert_eq!(data(body), ["one", "two", "a\n b", ""]);
}

#[test]
fn an_event_has_its_name_and_the_last_id_of_the_stream() {
    let body = b"event: crumb\nid: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\nid: 1\0\ndata: d\n\n";

    let (heard, _) = hear(&[body]);

    let wanted = [
        event("crumb", "a", Some("7")),
        event("message", "b", Some("7")),
        event("message", "c", None),
        event("message", "d", None),
    ];
    assert_eq!(heard, wanted);
}

#[test]
fn a_time_to_come_again_is_a_number_of_milliseconds() {
    let (heard, _) = hear(&[b"retry: 1500\n\nretry: soon\n\nretry:\n\n: alive\n\n"]);

    let seconds = Heard::Retry(Duration::from_millis(1_500));
    let wanted = [
        seconds,
        Heard::Nothing,
        Heard::Nothing,
        Heard::Nothing,
        Heard::Nothing,
    ];
    assert_eq!(heard, wanted);
}

#[test]
fn a_byte_order_mark_before_the_first_line_is_skipped_however_it_is_cut() {
    let body = "\u{FEFF}data: a\n\n\u{FEFF}data: b\n\n".as_bytes();
    let cut: Vec<&[u8]> = body.chunks(1).collect();

    assert_eq!(data(body), ["a"]);
    assert_eq!(hear(&cut), hear(&[body]));
}

#[test]
fn a_return_and_a_line_feed_are_one_end_of_a_line_even_in_two_chunks() {
    let whole: &[u8] = b"data: one\r\ndata: two\r\n\r\n";
    let (first, second) = whole.split_at(10);

    assert_eq!(data(whole), ["one\ntwo"]);
    assert_eq!(hear(&[first, second]), hear(&[whole]));
}

#[test]
fn an_event_that_no_blank_line_ends_is_not_given() {
    assert_eq!(data(b"data: one\n\ndata: tw"), ["one"]);
}

#[test]
fn a_line_without_end_is_refused_at_the_limit() {
    let line = vec![b'x'; LIMIT];
    let before = vec![event("message", "one", None)];

    assert_eq!(hear(&[b"data: one\n\n", &line]), (before.clone(), false));
    assert_eq!(hear(&[b"data: one\n\n", &line, b"x"]), (before, true));
}

#[test]
fn an_event_of_lines_without_end_is_refused_at_the_limit() {
    let line = [b"data: ".to_vec(), vec![b'x'; LIMIT / 2], b"\n".to_vec()].concat();

    assert!(!hear(&[&line]).1);
    assert!(hear(&[&line, &line]).1);
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "data: ",
            "data:",
            "data",
            "id: 4",
            "event: x",
            "retry: 10",
            "\r",
            "\n",
            "\r\n",
            "\n\n",
            ":",
            "ü",
            "{}",
            "\u{FEFF}",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..6),
        Just(vec![b'x'; LIMIT / 3]),
    ];
    prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(crate::fuzz::config())]

    #[test]
    fn arbitrary_bytes_yield_the_same_items_in_any_chunks(
        body in body(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let chunks: Vec<_> = cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
        let bytes: Vec<_> = body.chunks(1).collect();

        let whole = hear(&[&body]);

        prop_assert_eq!(&hear(&chunks), &whole);
        prop_assert_eq!(&hear(&bytes), &whole);
    }
}

/// Checks that a body yields the same items when it is parsed whole, byte by byte, in the given chunks, and split in
/// two at each of its first 64 bytes.
fn yields_the_same_items_in_any_chunks((body, lengths): &(crate::fuzz::Bytes, Vec<usize>)) -> bool {
    let whole = hear(&[body]);
    let bytes: Vec<_> = body.chunks(1).collect();
    assert_eq!(hear(&bytes), whole);

    let mut rest = &**body;
    let mut chunks = Vec::new();
    for length in lengths {
        let (chunk, after) = rest.split_at(rest.len().min(*length));
        chunks.push(chunk);
        rest = after;
    }
    chunks.push(rest);
    assert_eq!(hear(&chunks), whole);

    for at in 0..body.len().min(64) {
        let (first, second) = body.split_at(at);
        assert_eq!(hear(&[first, second]), whole, "cut at {at}");
    }
    for heard in &whole.0 {
        if let Heard::Event(frame) = heard {
            assert!(frame.data.len() <= LIMIT && !frame.data.contains(&b'\r'));
        }
    }
    !whole.0.is_empty() && !whole.1
}

#[test]
fn an_event_stream_yields_the_same_items_in_any_chunks() {
    crate::fuzz::structured(
        crate::fuzz::event_stream,
        yields_the_same_items_in_any_chunks,
    );
}
