//! Tests that rendered bytes stay the same from call to call, so that prompt caches hit.

use super::reader::read;
use super::*;

/// Returns the text before the section of a source.
fn before<'a>(text: &'a str, section: &str) -> &'a str {
    &text[..text.find(section).unwrap()]
}

#[test]
fn the_same_content_gives_the_same_bytes() {
    for format in FORMATS {
        assert_eq!(example().render(format), example().render(format));
    }
}

#[test]
fn the_text_before_the_first_changed_section_is_unchanged() {
    for (format, section) in [
        (Format::Markdown, "## history"),
        (Format::Xml, "<source key=\"history\""),
    ] {
        let (old, mut new) = (example(), example());
        new.sources[1]
            .items
            .insert(0, item("user.message.v1", 9, json!({"message": "New"})));
        new.trigger.context = json!({"message": "Another question"}).into();

        let (old, new) = (old.render(format), new.render(format));

        assert_ne!(old, new);
        assert_eq!(before(&old, section), before(&new, section));
        assert!(before(&new, section).contains("https://github.com"));
    }
}

#[test]
fn a_source_that_changes_leaves_the_bytes_of_the_others() {
    for format in FORMATS {
        let (old, mut new) = (example(), example());
        new.sources[0].items[0].context = json!({"url": "https://example.org"}).into();

        let (old, new) = (old.render(format), new.render(format));

        let marks = [&old, &new].map(|text| read(format, text).marks);
        assert_ne!(marks[0][0], marks[1][0]);
        assert_eq!(marks[0][1..], marks[1][1..]);
        let rest = |text: &str| text[text.find("history").unwrap()..].to_owned();
        assert_eq!(rest(&old), rest(&new));
    }
}

#[test]
fn fences_differ_between_sections_of_one_content_and_between_keys() {
    for format in FORMATS {
        let mut context = example();
        for key in ["page", "trigger"] {
            context.sources.push(one(key, context.trigger.clone()));
        }

        let marks = read(format, &context.render_with(format, &fences())).marks;
        let others = read(
            format,
            &context.render_with(format, &FenceKey::new([8; 32])),
        )
        .marks;

        for (at, mark) in marks.iter().enumerate() {
            assert!(!marks[at + 1..].contains(mark), "{marks:?}");
            assert!(!others.contains(mark), "{marks:?} {others:?}");
        }
    }
}

#[test]
fn a_process_has_one_key_that_is_not_the_one_of_another() {
    let context = example();

    let own = context.render(Format::Xml);

    assert_eq!(own, context.clone().render(Format::Xml));
    assert_ne!(own, context.render_with(Format::Xml, &fences()));
}
