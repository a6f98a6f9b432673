use super::*;
use proptest::prelude::*;

const LIMIT: usize = 1_000;

fn parse(chunks: &[&[u8]]) -> (Vec<SseItem>, bool) {
    let (mut frames, mut items) = (Frames::new(LIMIT, LIMIT), Vec::new());
    let failed = chunks
        .iter()
        .any(|chunk| frames.read(chunk, &mut items).is_err());
    (items, failed)
}

/// Returns the data of the events in a body.
fn data(body: &[u8]) -> Vec<String> {
    let (items, failed) = parse(&[body]);
    assert!(!failed);
    let data = items.into_iter().filter_map(|items| match items {
        SseItem::Event(frame) => Some(String::from_utf8(frame.data).unwrap()),
        SseItem::Empty | SseItem::Retry(_) => None,
    });
    data.collect()
}

fn event(name: &str, data: &str, id: Option<&str>) -> SseItem {
    SseItem::Event(Frame {
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

    let (items, _) = parse(&[body]);

    let expected = [
        event("crumb", "a", Some("7")),
        event("message", "b", Some("7")),
        event("message", "c", None),
        event("message", "d", None),
    ];
    assert_eq!(items, expected);
}

#[test]
fn a_time_to_come_again_is_a_number_of_milliseconds() {
    let (items, _) = parse(&[b"retry: 1500\n\nretry: soon\n\nretry:\n\n: alive\n\n"]);

    let seconds = SseItem::Retry(Duration::from_millis(1_500));
    let expected = [
        seconds,
        SseItem::Empty,
        SseItem::Empty,
        SseItem::Empty,
        SseItem::Empty,
    ];
    assert_eq!(items, expected);
}

#[test]
fn a_byte_order_mark_before_the_first_line_is_skipped_however_it_is_cut() {
    let body = "\u{FEFF}data: a\n\n\u{FEFF}data: b\n\n".as_bytes();
    let cut: Vec<&[u8]> = body.chunks(1).collect();

    assert_eq!(data(body), ["a"]);
    assert_eq!(parse(&cut), parse(&[body]));
}

#[test]
fn a_return_and_a_line_feed_are_one_end_of_a_line_even_in_two_chunks() {
    let whole: &[u8] = b"data: one\r\ndata: two\r\n\r\n";
    let (first, second) = whole.split_at(10);

    assert_eq!(data(whole), ["one\ntwo"]);
    assert_eq!(parse(&[first, second]), parse(&[whole]));
}

#[test]
fn an_event_that_no_blank_line_ends_is_not_given() {
    assert_eq!(data(b"data: one\n\ndata: tw"), ["one"]);
}

#[test]
fn a_line_without_end_is_refused_at_the_limit() {
    let line = vec![b'x'; LIMIT];
    let before = vec![event("message", "one", None)];

    assert_eq!(parse(&[b"data: one\n\n", &line]), (before.clone(), false));
    assert_eq!(parse(&[b"data: one\n\n", &line, b"x"]), (before, true));
}

#[test]
fn an_event_of_lines_without_end_is_refused_at_the_limit() {
    let line = [b"data: ".to_vec(), vec![b'x'; LIMIT / 2], b"\n".to_vec()].concat();

    assert!(!parse(&[&line]).1);
    assert!(parse(&[&line, &line]).1);
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

        let whole = parse(&[&body]);

        prop_assert_eq!(&parse(&chunks), &whole);
        prop_assert_eq!(&parse(&bytes), &whole);
    }
}

/// Checks that a body yields the same items when it is parsed whole, byte by byte, in the given chunks, and split in
/// two at each of its first 64 bytes.
fn yields_the_same_items_in_any_chunks((body, lengths): &(crate::fuzz::Bytes, Vec<usize>)) -> bool {
    let whole = parse(&[body]);
    let bytes: Vec<_> = body.chunks(1).collect();
    assert_eq!(parse(&bytes), whole);

    let mut rest = &**body;
    let mut chunks = Vec::new();
    for length in lengths {
        let (chunk, after) = rest.split_at(rest.len().min(*length));
        chunks.push(chunk);
        rest = after;
    }
    chunks.push(rest);
    assert_eq!(parse(&chunks), whole);

    for at in 0..body.len().min(64) {
        let (first, second) = body.split_at(at);
        assert_eq!(parse(&[first, second]), whole, "cut at {at}");
    }
    for items in &whole.0 {
        if let SseItem::Event(frame) = items {
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
