//! Modules in one folder import each other in one direction only, so that each one can be read after the modules that it uses.

use super::{Source, first_name, inline_modules, report, sources, words};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

#[test]
fn sibling_modules_do_not_import_each_other_in_a_circle() -> io::Result<()> {
    let files = sources()?;
    let circles = Modules::new(&files).circles();

    let described: Vec<String> = circles.iter().map(Circle::describe).collect();
    report("modules that import each other in a circle", &described);
    Ok(())
}

#[test]
fn the_scan_finds_the_imports_between_siblings() -> io::Result<()> {
    let files = sources()?;
    let imports = Modules::new(&files).imports_between_siblings();

    let found: usize = imports.values().map(BTreeMap::len).sum();
    assert!(found > 1_000, "{found} pairs of modules");
    Ok(())
}

/// The files of the crate as modules, with the names that their `use` declarations bind.
struct Modules<'s> {
    files: BTreeMap<Vec<&'s str>, &'s Source>,
    bound: BTreeMap<Vec<&'s str>, BTreeMap<&'s str, Vec<&'s str>>>,
}

/// Imports between the modules of each folder: the importing and the imported module, and the places of the imports.
type Imports<'s> = BTreeMap<String, BTreeMap<(&'s str, &'s str), Vec<String>>>;

/// Modules of one folder that import each other.
struct Circle<'s> {
    folder: String,
    members: Vec<&'s str>,
    /// The imports between these modules.
    places: Vec<String>,
}

impl Circle<'_> {
    fn describe(&self) -> String {
        let (members, places) = (self.members.join(", "), self.places.join("\n  "));
        format!("{}: {members}\n  {places}", self.folder)
    }
}

/// A path in the code, and the name that the path binds in a `use` declaration.
struct Leaf<'c> {
    path: Vec<&'c str>,
    name: &'c str,
}

impl<'s> Modules<'s> {
    fn new(files: &'s [Source]) -> Self {
        let files: BTreeMap<Vec<&str>, &Source> = files
            .iter()
            .map(|file| (file.module.iter().map(String::as_str).collect(), file))
            .collect();
        let bound = files
            .iter()
            .map(|(module, file)| {
                let names = declared(&file.code).into_iter().filter_map(|leaf| {
                    let path = absolute(module, &leaf.path).or_else(|| {
                        // A path can also start with a child module of this module.
                        let child = [&**module, leaf.path.get(..1)?].concat();
                        let is_child = files.contains_key(&child);
                        is_child.then(|| [&**module, leaf.path.as_slice()].concat())
                    });
                    Some((leaf.name, path?))
                });
                (module.clone(), names.collect())
            })
            .collect();
        Self { files, bound }
    }

    fn circles(&self) -> Vec<Circle<'s>> {
        let mut circles = Vec::new();
        for (folder, imports) in self.imports_between_siblings() {
            let reached = reached(imports.keys().copied());
            let mut seen = BTreeSet::new();
            for (module, reachable) in &reached {
                let is_member = |other: &&&str| {
                    let back = reached.get(**other);
                    back.is_some_and(|back| back.contains(module))
                };
                let members: Vec<&str> = reachable.iter().filter(is_member).copied().collect();
                if members.is_empty() || !seen.insert(members.clone()) {
                    continue;
                }
                let inside = imports
                    .iter()
                    .filter(|((from, to), _)| members.contains(from) && members.contains(to));
                let places = inside.flat_map(|(_, places)| places.clone()).collect();
                circles.push(Circle {
                    folder: folder.clone(),
                    members,
                    places,
                });
            }
        }
        circles
    }

    fn imports_between_siblings(&self) -> Imports<'s> {
        let mut imports = Imports::new();
        for (module, file) in &self.files {
            for (at, path) in paths(module, &file.code) {
                let target = self.declared_in(path);
                let both = module.iter().zip(&target);
                let common = both.take_while(|(one, other)| one == other).count();
                let (Some(from), Some(to)) = (module.get(common), target.get(common)) else {
                    continue;
                };
                if common == 0 {
                    continue; // the layers decide about the modules of the crate root
                }
                let folder = module.get(..common).unwrap_or_default().join("/");
                let place = format!("{}:{} imports {to}", file.name, file.line(at));
                let between = imports.entry(folder).or_default();
                between.entry((*from, *to)).or_default().push(place);
            }
        }
        imports
    }

    /// Returns the module in which the item at a path is declared, also if another module re-exports the item.
    fn declared_in(&self, mut path: Vec<&'s str>) -> Vec<&'s str> {
        /// Maximum number of re-exports of one item that are followed.
        const MOST: usize = 8;
        for _ in 0..MOST {
            let module = self.module_of(&path);
            let rest = path.get(module.len()..).unwrap_or_default();
            let Some((name, rest)) = rest.split_first() else {
                return module;
            };
            match self.bound.get(&module).and_then(|names| names.get(name)) {
                Some(target) if *target != path => path = [&**target, rest].concat(),
                Some(_) | None => return module,
            }
        }
        self.module_of(&path)
    }

    /// Returns the longest part of a path that is a module. It is empty for an item of the crate root.
    fn module_of(&self, path: &[&'s str]) -> Vec<&'s str> {
        let parts = (1..=path.len())
            .rev()
            .filter_map(|length| path.get(..length));
        let mut modules = parts.filter(|part| self.files.contains_key(*part));
        modules.next().unwrap_or_default().to_vec()
    }
}

/// Returns the modules that each module imports, directly or through other modules.
fn reached<'s>(
    imports: impl Iterator<Item = (&'s str, &'s str)>,
) -> BTreeMap<&'s str, BTreeSet<&'s str>> {
    let mut direct: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in imports {
        direct.entry(from).or_default().insert(to);
    }
    let all = direct.keys().map(|module| {
        let mut found = BTreeSet::new();
        let mut open = vec![*module];
        while let Some(next) = open.pop() {
            for imported in direct.get(next).into_iter().flatten() {
                if found.insert(*imported) {
                    open.push(*imported);
                }
            }
        }
        (*module, found)
    });
    all.collect()
}

/// Returns the paths that the code of a module names with `crate`, `self` or `super`, as paths from the crate root, with their offsets.
fn paths<'s>(module: &[&'s str], code: &'s str) -> Vec<(usize, Vec<&'s str>)> {
    let mut found = Vec::new();
    for head in ["crate", "self", "super"] {
        for at in words(code, head) {
            let is_path = code[at + head.len()..].starts_with("::");
            if !is_path || code[..at].ends_with("::") {
                continue;
            }
            let inline = match head {
                "crate" => 0,
                _ => inline_modules(&code[..at]),
            };
            let mut leaves = Vec::new();
            tree(&[], &code[at..], &mut leaves);
            for leaf in leaves {
                let ups = leaf.path.iter().take_while(|name| **name == "super");
                let ups = ups.count();
                // In an inline module, `self` and the first `super`s stay within the file.
                if inline > 0 && ups <= inline {
                    continue;
                }
                let path = leaf.path.get(inline..).unwrap_or_default();
                found.extend(absolute(module, path).map(|path| (at, path)));
            }
        }
    }
    found
}

/// Returns a path from the crate root, or `None` if the path does not start with `crate`, `self` or `super`.
fn absolute<'s>(module: &[&'s str], path: &[&'s str]) -> Option<Vec<&'s str>> {
    let (head, rest) = path.split_first()?;
    match *head {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let ups = path.iter().take_while(|name| **name == "super").count();
            let outer = module.get(..module.len().checked_sub(ups)?)?;
            Some([outer, path.get(ups..)?].concat())
        }
        _ => None,
    }
}

/// Returns the leaves of the `use` declarations of a file, without declarations in blocks.
fn declared(code: &str) -> Vec<Leaf<'_>> {
    let mut found = Vec::new();
    for at in words(code, "use") {
        let before = code[..at].rsplit('\n').next().unwrap_or_default();
        if before.is_empty() || before.starts_with("pub") {
            tree(&[], &code[at + "use".len()..], &mut found);
        }
    }
    found
}

/// Adds the leaves of the `use` tree or path at the start of a text. Returns the text after it.
fn tree<'c>(above: &[&'c str], text: &'c str, found: &mut Vec<Leaf<'c>>) -> &'c str {
    let mut path = above.to_vec();
    let mut rest = text.trim_start();
    loop {
        if let Some(group) = rest.strip_prefix('{') {
            rest = group.trim_start();
            while !rest.is_empty() && !rest.starts_with('}') {
                rest = tree(&path, rest, found).trim_start();
                rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
            }
            return rest.strip_prefix('}').unwrap_or(rest);
        }
        let name = first_name(rest);
        if name.is_empty() {
            let last = path.last().copied().unwrap_or_default();
            found.push(Leaf { path, name: last });
            let end = rest.find([',', '}']).unwrap_or(rest.len());
            return &rest[end..];
        }
        rest = &rest[name.len()..];
        let is_this = name == "self" && !path.is_empty();
        if !is_this && name != "*" {
            path.push(name);
        }
        match rest.strip_prefix("::") {
            Some(next) => rest = next,
            None => {
                let own = match name {
                    "*" => "*",
                    _ => path.last().copied().unwrap_or_default(),
                };
                let (alias, after) = alias(rest);
                let name = alias.unwrap_or(own);
                found.push(Leaf { path, name });
                return after;
            }
        }
    }
}

/// Returns the name after `as`, and the text after it.
fn alias(text: &str) -> (Option<&str>, &str) {
    match text.trim_start().strip_prefix("as ") {
        Some(rest) => {
            let name = first_name(rest);
            (Some(name), &rest[name.len()..])
        }
        None => (None, text),
    }
}

mod scanner {
    use super::{Modules, Source};

    /// Returns the import cycles of some files: the folder and its modules.
    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<Source> = files
            .iter()
            .map(|(path, code)| Source::new(path, code))
            .collect();
        let circles = Modules::new(&files).circles();
        let circles = circles.iter();
        circles
            .map(|circle| format!("{}: {}", circle.folder, circle.members.join(" ")))
            .collect()
    }

    #[test]
    fn modules_that_import_each_other_are_a_circle() {
        let found = circles(&[
            ("a/mod.rs", "mod b;\nmod c;\nmod d;\n"),
            (
                "a/b.rs",
                "use super::{\n    c::{self, C},\n    d::D as Other,\n};\n",
            ),
            ("a/c.rs", "fn f() -> crate::a::b::B { g() }\n"),
            ("a/d.rs", "use std::fmt;\n"),
        ]);

        assert_eq!(found, ["a: b c"]);
    }

    #[test]
    fn a_circle_can_go_over_several_modules_and_folders() {
        let found = circles(&[
            ("a/mod.rs", ""),
            ("a/b/mod.rs", ""),
            ("a/b/deep.rs", "use crate::a::c::C;\n"),
            ("a/c.rs", "use super::d;\n"),
            ("a/d.rs", "fn f() { super::b::deep::g::<u8>() }\n"),
        ]);

        assert_eq!(found, ["a: b c d"]);
    }

    #[test]
    fn a_re_export_of_the_parent_counts_as_the_module_that_declares_the_item() {
        let found = circles(&[
            (
                "a/mod.rs",
                "pub use self::b::B as Renamed;\npub use c::C;\n",
            ),
            ("a/b.rs", "use super::C;\n"),
            ("a/c.rs", "use super::Renamed;\n"),
        ]);

        assert_eq!(found, ["a: b c"]);
    }

    #[test]
    fn imports_in_one_direction_are_not_a_cycle() {
        let found = circles(&[
            ("a/mod.rs", "pub use b::B;\nuse c::C;\n"),
            ("a/b.rs", "use super::c::C;\nuse crate::other::X;\n"),
            ("a/c.rs", "use std::fmt;\n// use super::b::B;\n"),
            ("other.rs", "use crate::a::b::B;\n"),
        ]);

        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn imports_of_test_code_and_within_a_file_do_not_count() {
        let found = circles(&[
            ("a/mod.rs", ""),
            ("a/b.rs", "use super::c::C;\n"),
            (
                "a/c.rs",
                "#[cfg(test)]\nmod tests {\n    use super::super::b::B;\n}\nmod inline { use super::b; mod b {} }\n",
            ),
        ]);

        assert_eq!(found, [""; 0]);
    }
}
