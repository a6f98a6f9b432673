//! Descriptions of JSON and text formats, from which fuzz tests generate inputs such as workflow definitions and model answers.

use super::json::{any_json, bad, text};
use super::known::{COUNTS, KEYS};
use super::tape::Tape;

/// One part of a format from which fuzz tests generate inputs. [`write`](Self::write) sometimes writes a fragment that is known
/// to break parsers instead.
#[derive(Debug)]
pub(crate) enum Shape {
    /// JSON of any type, in a fuzz test's input.
    Any,
    /// One word from this list, chosen at random and written as a JSON string into a fuzz test's input.
    Word(&'static [&'static str]),
    /// One string from this list, chosen at random and written without quotes into a fuzz test's input.
    Raw(&'static [&'static str]),
    /// A JSON list whose items have this shape, normally with at least one item.
    List(&'static Self),
    /// A JSON object with these fields, each with its own shape. A name that ends with `!` is always written, without the `!`. Other names
    /// are written in one of three objects.
    Object(&'static [(&'static str, &'static Self)]),
    /// A JSON object with some of these field names, where all field values have this shape.
    Named(&'static [&'static str], &'static Self),
    /// JSON of one of these shapes, in a fuzz test's input. The first shape must not contain itself.
    Either(&'static [&'static Self]),
    /// A string that a function writes into the fuzz test's input.
    Generated(fn(&mut Tape, &mut String)),
}

impl Shape {
    /// Writes one generated JSON text of this shape, as input of a fuzz test.
    pub(crate) fn write(&self, tape: &mut Tape, out: &mut String) {
        if tape.is_bad() {
            return bad(tape, out);
        }
        match self {
            Self::Any => any_json(tape, out),
            Self::Word(words) => text(tape, words, out),
            Self::Raw(texts) => out.push_str(tape.word(texts)),
            Self::List(item) => list(item, tape, out),
            Self::Object(fields) => object(fields, tape, out),
            Self::Named(names, value) => named(names, value, tape, out),
            Self::Either(shapes) => tape.pick(shapes).write(tape, out),
            Self::Generated(make) => make(tape, out),
        }
    }

    /// Returns one generated JSON text of this shape, as input of a fuzz test.
    pub(crate) fn text(&self, tape: &mut Tape) -> String {
        let mut out = String::new();
        self.write(tape, &mut out);
        out
    }
}

fn list(item: &Shape, tape: &mut Tape, out: &mut String) {
    out.push('[');
    let items = *tape.pick(&[1, 2, 1, 3, 0]);
    let mut last = out.len();
    for number in 0..items {
        if number > 0 {
            out.push(',');
        }
        last = out.len();
        item.write(tape, out);
    }
    // Repeats the last item up to a known length.
    let size = out.len() - last;
    if items > 0 && tape.is_bad() && size < 1_000 {
        let (name, count) = *tape.pick(&COUNTS);
        tape.note(name);
        let again = format!(",{}", &out[last..]);
        out.extend(std::iter::repeat_n(&*again, count - items));
    }
    out.push(']');
}

fn object(fields: &[(&'static str, &Shape)], tape: &mut Tape, out: &mut String) {
    let mut object = Fields::open(out);
    for (name, shape) in fields {
        let (name, always) = match name.strip_suffix('!') {
            Some(name) => (name, true),
            None => (*name, false),
        };
        if always || tape.once_in(3) {
            object.field(name, shape, tape);
            if tape.is_bad() {
                object.field(name, shape, tape);
            }
        }
    }
    object.close(tape);
}

fn named(names: &[&'static str], value: &Shape, tape: &mut Tape, out: &mut String) {
    let mut object = Fields::open(out);
    for name in names {
        if tape.below(3) < 2 {
            object.field(name, value, tape);
        }
    }
    object.close(tape);
}

/// The fields of a JSON object that is being written into a fuzz test's input.
struct Fields<'o> {
    out: &'o mut String,
    is_empty: bool,
}

impl<'o> Fields<'o> {
    fn open(out: &'o mut String) -> Self {
        out.push('{');
        Self {
            out,
            is_empty: true,
        }
    }

    fn field(&mut self, name: &'static str, value: &Shape, tape: &mut Tape) {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(',');
        }
        text(tape, &[name], self.out);
        self.out.push(':');
        value.write(tape, self.out);
    }

    fn close(mut self, tape: &mut Tape) {
        if tape.is_bad() {
            let key = *tape.pick(&KEYS);
            tape.note(key);
            self.field(key, &Shape::Any, tape);
        }
        self.out.push('}');
    }
}
