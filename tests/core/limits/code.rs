//! Constants, fields and capacities in the source of the crate, read as text.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Calls whose argument is a capacity.
const CALLS: [&str; 9] = [
    ".buffer_unordered(",
    ".buffered(",
    "Semaphore::new(",
    "broadcast::Sender::new(",
    "broadcast::channel(",
    "mpsc::channel(",
    "mpsc::channel::<()>(",
    "sync_channel(",
    "unbounded_channel(",
];

/// Ends of the names of structs with settings.
const SETTINGS: [&str; 8] = [
    "Budget", "Builder", "Config", "Limits", "Options", "Policy", "Profile", "Settings",
];

/// Words in the name of a constant that limits a number.
const WORDS: [&str; 9] = [
    "BATCH", "INBOX", "LARGEST", "LIMIT", "LONGEST", "MAX", "MOST", "ONCE", "WAITING",
];

/// A file of the crate, without tests and comments.
struct File {
    path: String,
    text: String,
}

/// All files of the crate.
pub(super) struct Code(Vec<File>);

struct Constant<'t> {
    name: &'t str,
    kind: &'t str,
    value: &'t str,
}

impl Code {
    pub(super) fn read() -> Self {
        let mut files = Vec::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut open = vec![root.join("src")];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root).unwrap().to_str().unwrap();
                let is_test = ["/tests", "/conformance", "src/fuzz", "src/model/strategies"]
                    .iter()
                    .any(|part| name.contains(part));
                if is_test {
                    continue;
                }
                match path.is_dir() {
                    true => open.push(path),
                    false => files.push(File::read(name, &path)),
                }
            }
        }
        Self(files)
    }

    /// Returns the value of a constant, or of a field in a struct with default values.
    pub(super) fn value(&self, file: &str, name: &str) -> Option<Option<u128>> {
        let file = self.0.iter().find(|known| known.path == file)?;
        match name.split_once('.') {
            Some((owner, field)) => self.initial(file, owner, field),
            None => self.constant(file, name).map(Some),
        }
    }

    /// Returns the file and name of each constant that limits a number, and of each numeric field in a settings struct.
    pub(super) fn limits(&self) -> BTreeSet<String> {
        let mut limits = BTreeSet::new();
        for file in &self.0 {
            for constant in file.constants() {
                let is_limit = constant.name.split('_').any(|word| WORDS.contains(&word));
                if is_limit && is_integer(constant.kind) {
                    limits.insert(format!("{} {}", file.path, constant.name));
                }
            }
            for (owner, field) in file.fields() {
                if self.initial(file, owner, field).is_some() {
                    limits.insert(format!("{} {owner}.{field}", file.path));
                }
            }
        }
        limits
    }

    /// Returns the file and argument of each call that sets a capacity. The capacities 0 and 1 are excluded.
    pub(super) fn capacities(&self) -> BTreeSet<(String, String)> {
        let mut found = BTreeSet::new();
        for file in &self.0 {
            for call in CALLS {
                for (at, _) in file.text.match_indices(call) {
                    let argument = until_closed(&file.text[at + call.len()..]);
                    if !["0", "1"].contains(&argument) {
                        found.insert((file.path.clone(), argument.to_owned()));
                    }
                }
            }
        }
        found
    }

    /// Returns `true` if at least one file contains a text.
    pub(super) fn contains(&self, text: &str) -> bool {
        self.0.iter().any(|file| file.text.contains(text))
    }

    fn constant(&self, file: &File, name: &str) -> Option<u128> {
        let mut constants = file.constants();
        constants.retain(|constant| constant.name == name);
        match &constants[..] {
            [constant] => self.evaluate(file, constant.value),
            _ => None,
        }
    }

    /// Returns the value of a field in the `Default` of its struct, or otherwise in a literal of the file.
    fn initial(&self, file: &File, owner: &str, field: &str) -> Option<Option<u128>> {
        let default = format!("impl Default for {owner} {{");
        let default = file.text.split_once(&default);
        let default = default.and_then(|(_, rest)| Some(rest.split_once("\n}")?.0));
        let of_default = default.and_then(|text| self.only_value(file, text, field));
        if of_default.is_some() || !file.text.contains(&format!("{owner} {{")) {
            return of_default;
        }
        self.only_value(file, &file.text, field)
    }

    /// Returns the value of a field if all literals in a text have the same value.
    fn only_value(&self, file: &File, text: &str, field: &str) -> Option<Option<u128>> {
        let prefix = format!("{field}: ");
        let values = text.lines().filter_map(|line| {
            let value = line.trim().strip_prefix(&prefix)?.strip_suffix(',')?;
            match value {
                "None" => Some(None),
                _ => self.evaluate(file, value).map(Some),
            }
        });
        let values: BTreeSet<Option<u128>> = values.collect();
        match values.len() {
            1 => values.first().copied(),
            _ => None,
        }
    }

    fn evaluate(&self, file: &File, text: &str) -> Option<u128> {
        let mut rest = text;
        let value = self.shifted(file, &mut rest)?;
        rest.trim().is_empty().then_some(value)
    }

    fn shifted(&self, file: &File, rest: &mut &str) -> Option<u128> {
        let mut value = self.sum(file, rest)?;
        while take(rest, "<<") {
            value <<= u32::try_from(self.sum(file, rest)?).ok()?;
        }
        Some(value)
    }

    fn sum(&self, file: &File, rest: &mut &str) -> Option<u128> {
        let mut value = self.product(file, rest)?;
        loop {
            if take(rest, "+") {
                value += self.product(file, rest)?;
            } else if take(rest, "-") {
                value = value.checked_sub(self.product(file, rest)?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn product(&self, file: &File, rest: &mut &str) -> Option<u128> {
        let mut value = self.atom(file, rest)?;
        loop {
            if take(rest, "*") {
                value *= self.atom(file, rest)?;
            } else if take(rest, "/") {
                value = value.checked_div(self.atom(file, rest)?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn atom(&self, file: &File, rest: &mut &str) -> Option<u128> {
        if take(rest, "(") {
            let value = self.shifted(file, rest)?;
            return take(rest, ")").then_some(value);
        }
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        *rest = after;
        if word.starts_with(|letter: char| letter.is_ascii_digit()) {
            return word.replace('_', "").parse().ok();
        }
        let unit = match word {
            "Duration::from_secs" => 1,
            "Duration::from_hours" => 60 * 60,
            _ => return self.named(file, word),
        };
        Some(unit * self.atom(file, rest)?)
    }

    /// Returns the value of a constant with a path such as `MAX`, `Self::MAX` or `Json::MAX_BYTES`.
    fn named(&self, file: &File, path: &str) -> Option<u128> {
        let (owner, name) = path.rsplit_once("::").unwrap_or(("Self", path));
        if owner == "Self" && file.constants().iter().any(|known| known.name == name) {
            return self.constant(file, name);
        }
        let owned = format!("impl {owner} {{");
        let mut values = self.0.iter().filter_map(|other| {
            let fits = owner == "Self" || other.text.contains(&owned);
            fits.then(|| self.constant(other, name)).flatten()
        });
        let value = values.next()?;
        values.all(|other| other == value).then_some(value)
    }
}

impl File {
    fn read(name: &str, path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        Self {
            path: name.to_owned(),
            text: lines.flat_map(|line| [line, "\n"]).collect(),
        }
    }

    fn constants(&self) -> Vec<Constant<'_>> {
        let declarations = self.text.match_indices("const ").filter_map(|(at, word)| {
            let declaration = self.text[at + word.len()..].split_once(';')?.0;
            let (name, rest) = declaration.split_once(": ")?;
            let (kind, value) = rest.split_once(" =")?;
            let is_name = name.chars().all(|letter| {
                letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_'
            });
            let value = value.trim();
            is_name.then_some(Constant { name, kind, value })
        });
        declarations.collect()
    }

    /// Returns the struct and name of each numeric field in a settings struct.
    fn fields(&self) -> Vec<(&str, &str)> {
        let mut fields = Vec::new();
        for (at, word) in self.text.match_indices("struct ") {
            let Some((head, rest)) = self.text[at + word.len()..].split_once(" {\n") else {
                continue;
            };
            if !SETTINGS.iter().any(|end| head.ends_with(end)) || head.contains(['\n', ';']) {
                continue;
            }
            let body = rest.lines().take_while(|line| line.trim() != "}");
            fields.extend(body.filter_map(|line| {
                let (name, kind) = line.trim().strip_suffix(',')?.split_once(": ")?;
                let name = name.rsplit(' ').next()?;
                is_integer(kind).then_some((head, name))
            }));
        }
        fields
    }
}

/// Returns `true` for integer types and for options of them.
fn is_integer(kind: &str) -> bool {
    let inner = kind.strip_prefix("Option<").unwrap_or(kind);
    let inner = inner.trim_end_matches('>');
    let inner = inner.strip_prefix("NonZeroU").map_or(inner, |_| "usize");
    ["i32", "i64", "u8", "u16", "u32", "u64", "u128", "usize"].contains(&inner)
}

/// Removes a token from the front of a text, if the text starts with the token.
fn take(rest: &mut &str, token: &str) -> bool {
    *rest = rest.trim_start();
    let after = rest.strip_prefix(token);
    *rest = after.unwrap_or(rest).trim_start();
    after.is_some()
}

/// Returns the text before the parenthesis that closes an open one, within one line.
fn until_closed(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    text[..end.unwrap()].trim().trim_end_matches(',')
}

#[test]
fn expressions_have_the_value_that_the_compiler_gives_them() {
    let files = [
        ("a", "const A: u8 = 2;\n"),
        ("b", "impl B {\nconst C: u8 = 3 << A;\n"),
    ];
    let files = files.map(|(path, text)| File {
        path: path.to_owned(),
        text: text.to_owned(),
    });
    let code = Code(Vec::from(files));

    for (text, value) in [
        ("1_000", 1_000),
        ("1 << 20", 1 << 20),
        ("64 * 1024 * 1024", 64 << 20),
        ("A * (B::C + 1) - 6 / 2", 23),
        ("B::C + (64 << A)", 268),
        ("Duration::from_secs(7 * 24 * 60 * 60)", 604_800),
    ] {
        assert_eq!(code.evaluate(&code.0[0], text), Some(value), "{text}");
    }
    for text in ["usize::MAX", "4 +", "self.most", "B::D"] {
        assert_eq!(code.evaluate(&code.0[0], text), None, "{text}");
    }
}
