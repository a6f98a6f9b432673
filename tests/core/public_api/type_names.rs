//! Each public type has a unique name, so that a name in a program or a message identifies one type.

use crate::layers::{Source, is_word, report, sources, words};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

#[test]
fn no_two_public_types_share_a_name() -> io::Result<()> {
    let exports = Modules::read()?.exports();

    let shared: Vec<String> = exports
        .iter()
        .filter(|(_, types)| types.len() > 1)
        .map(|(name, types)| {
            let types: Vec<&str> = types.iter().map(String::as_str).collect();
            format!("{name}: {}", types.join(", "))
        })
        .collect();

    report("names of several public types", &shared);
    Ok(())
}

#[test]
fn the_scan_finds_the_public_types_of_the_crate() -> io::Result<()> {
    let exports = Modules::read()?.exports();

    assert!(exports.len() > 300, "{} names", exports.len());
    for (name, module) in [
        ("Outcome", "executor::outcome"),
        ("RunId", "machine::id"),
        ("StoreUnderTest", "store::conformance"),
        ("ToolSpec", "tool::spec"),
        ("WorkflowLimits", "services::limits"),
    ] {
        let expected = BTreeSet::from([format!("{module}::{name}")]);
        assert_eq!(exports.get(name), Some(&expected), "{name}");
    }
    Ok(())
}

/// The files of the crate by their module paths. The path of the crate root is empty.
struct Modules(BTreeMap<String, Source>);

/// A name that a `use` declaration binds.
struct Import {
    path: String,
    name: String,
    is_public: bool,
}

impl Modules {
    fn read() -> io::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
        let root = Source::new("lib.rs", &fs::read_to_string(root)?);
        Ok(Self::new(sources()?.into_iter().chain([root])))
    }

    fn new(files: impl IntoIterator<Item = Source>) -> Self {
        let modules = files.into_iter().map(|file| (module_of(&file.name), file));
        Self(modules.collect())
    }

    /// Returns the names of all reachable types, each with the paths of the types that have this name.
    fn exports(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut open = vec![String::new()];
        while let Some(module) = open.pop() {
            let Some(file) = self.0.get(&module) else {
                continue;
            };
            for name in declared(&file.code, &["enum", "struct", "trait", "type", "union"]) {
                let path = join(&module, name);
                found.entry(name.to_owned()).or_default().insert(path);
            }
            for import in imports(&file.code).into_iter().filter(is_public_type) {
                if let Some(path) = self.follow(&module, &import.path) {
                    found.entry(import.name).or_default().insert(path);
                }
            }
            let children = declared(&file.code, &["mod"]);
            open.extend(children.into_iter().map(|child| join(&module, child)));
        }
        found
    }

    /// Returns the path under which the type at the end of a `use` path is declared, or `None` for a type of another crate.
    fn follow(&self, module: &str, path: &str) -> Option<String> {
        let mut segments: Vec<&str> = path.split("::").map(str::trim).collect();
        let name = segments.pop()?;
        let mut at: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
        for segment in segments {
            match segment {
                "crate" => at.clear(),
                "self" => {}
                "super" => {
                    at.pop()?;
                }
                child => at.push(child),
            }
        }
        let module = at.join("::");
        let file = self.0.get(&module)?;
        let mut imports = imports(&file.code).into_iter();
        match imports.find(|import| import.name == name) {
            Some(import) => self.follow(&module, &import.path),
            None => Some(join(&module, name)),
        }
    }
}

/// Returns the module path of a file, such as `agent::model` for `src/agent/model/mod.rs`.
fn module_of(file: &str) -> String {
    let path = file.trim_start_matches("src/").trim_end_matches(".rs");
    match path.trim_end_matches("/mod") {
        "lib" => String::new(),
        path => path.replace('/', "::"),
    }
}

fn join(module: &str, name: &str) -> String {
    match module.is_empty() {
        true => name.to_owned(),
        false => format!("{module}::{name}"),
    }
}

/// Returns `true` for a public name in the style of types: functions and modules start with a lowercase letter, and constants have none.
fn is_public_type(import: &Import) -> bool {
    let name = import.name.as_str();
    import.is_public && name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase)
}

/// Returns the names of a file's public items with one of these keywords, without items in blocks.
fn declared<'c>(code: &'c str, keywords: &[&str]) -> Vec<&'c str> {
    let name = |line: &'c str| {
        let (keyword, rest) = line.strip_prefix("pub ")?.split_once(' ')?;
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        keywords.contains(&keyword).then(|| &rest[..end])
    };
    code.lines().filter_map(name).collect()
}

/// Returns the names that a file's `use` declarations bind, without declarations in blocks.
fn imports(code: &str) -> Vec<Import> {
    let mut found = Vec::new();
    for at in words(code, "use") {
        let before = code[..at].rsplit('\n').next().unwrap_or_default();
        let is_item = before.is_empty() || before.starts_with("pub");
        if let Some((tree, _)) = code[at + "use".len()..].split_once(';')
            && is_item
        {
            leaves("", tree, before == "pub ", &mut found);
        }
    }
    found
}

/// Adds the names that a tree of `use` paths binds.
fn leaves(prefix: &str, tree: &str, is_public: bool, found: &mut Vec<Import>) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let prefix = format!("{prefix}{}", head.trim());
        for item in items(group) {
            leaves(&prefix, item, is_public, found);
        }
        return;
    }
    let last = tree.rsplit("::").next().unwrap_or(tree);
    let (path, name) = tree.split_once(" as ").unwrap_or((tree, last));
    found.push(Import {
        path: format!("{prefix}{path}"),
        name: name.trim().to_owned(),
        is_public,
    });
}

/// Splits the rest of a `{..}` group after its opening brace at the group's top-level commas.
fn items(group: &str) -> Vec<&str> {
    let (mut depth, mut start) = (0_usize, 0);
    let mut found = Vec::new();
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                found.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.retain(|item| !item.trim().is_empty());
    found
}

mod scanner {
    use super::{Modules, Source};

    /// Returns the names that several types share, in files with a path and a text each.
    fn shared(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| Source::new(path, text));
        let exports = Modules::new(files).exports().into_iter();
        let shared = exports.filter(|(_, types)| types.len() > 1);
        shared.map(|(name, _)| name).collect()
    }

    #[test]
    fn a_name_in_two_public_modules_is_found() {
        for (one, two) in [
            ("pub struct Limits;", "pub struct Limits;"),
            ("pub enum Limits {\n    A,\n}", "pub trait Limits {}"),
            ("pub type Limits = u8;", "mod deep;\npub use deep::Limits;"),
            (
                "pub struct Limits(u8);",
                "mod deep;\npub use deep::{\n    Other,\n    inner::{Limits},\n};",
            ),
            (
                "pub struct Limits;",
                "mod deep;\npub use deep::Other as Limits;",
            ),
        ] {
            let files = [
                ("lib.rs", "pub mod one;\npub mod two;"),
                ("one.rs", one),
                ("two/mod.rs", two),
                (
                    "two/deep/mod.rs",
                    "pub mod inner;\npub struct Limits;\npub struct Other;",
                ),
                ("two/deep/inner.rs", "pub struct Limits;"),
            ];
            assert_eq!(shared(&files), ["Limits"], "{two}");
        }
    }

    #[test]
    fn two_paths_to_one_type_are_not_a_duplicate() {
        let files = [
            ("lib.rs", "pub mod one;\npub mod two;\npub use two::Limits;"),
            ("one.rs", "pub use crate::two::Limits;"),
            ("two/mod.rs", "mod deep;\npub use self::deep::Limits;"),
            ("two/deep.rs", "pub use super::inner::Limits;"),
            ("two/inner.rs", "pub struct Limits;"),
        ];

        assert_eq!(shared(&files), [""; 0]);
    }

    #[test]
    fn types_that_users_cannot_reach_may_share_a_name() {
        for private in [
            "struct Limits;",
            "pub(crate) struct Limits;",
            "mod deep;\nuse deep::Limits;",
            "mod deep;\npub(crate) use deep::Limits;",
            "// pub struct Limits;",
            "pub enum Choice {\n    Limits,\n}",
            "pub use elsewhere::Limits;",
            "#[cfg(test)]\nmod tests {\n    pub struct Limits;\n}",
        ] {
            let files = [
                ("lib.rs", "pub mod one;\npub mod two;\nmod three;"),
                ("one.rs", "pub struct Limits;"),
                ("two/mod.rs", private),
                ("two/deep.rs", "pub struct Limits;"),
                ("three.rs", "pub struct Limits;"),
            ];
            assert_eq!(shared(&files), [""; 0], "{private}");
        }
    }
}
