//! The guide: every page is a module of `universal_executor::guide`, and every link leads to a page or a heading.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const LINKS: &str = "src/guide/links.md";
const PAGES: &str = include_str!("../../src/guide/mod.rs");

/// A page of the guide.
struct Page {
    /// Path below `docs/` without the extension, such as `cookbook/chat`. A `README` has the path of its folder.
    name: String,
    file: PathBuf,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all pages of the guide. `docs/contributing` is for contributors and no part of the guide.
fn pages() -> Vec<Page> {
    let docs = root().join("docs");
    let mut folders = vec![docs.clone()];
    let mut pages = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let file = entry.unwrap().path();
            if file.is_dir() && !file.ends_with("contributing") {
                folders.push(file);
            } else if file.extension().is_some_and(|extension| extension == "md") {
                let name = name_of(file.strip_prefix(&docs).unwrap());
                let text = fs::read_to_string(&file).unwrap();
                pages.push(Page { name, file, text });
            }
        }
    }
    pages.sort_by(|one, other| one.name.cmp(&other.name));
    pages
}

fn name_of(file: &Path) -> String {
    let name = file.with_extension("").to_string_lossy().into_owned();
    let name = name.strip_suffix("README").unwrap_or(&name);
    name.trim_end_matches('/').to_owned()
}

/// Returns the path of a page's module.
fn module_of(name: &str) -> String {
    let path = format!("crate::guide/{name}");
    path.trim_end_matches('/')
        .replace('/', "::")
        .replace('-', "_")
}

/// Returns the text outside of code blocks and inline code.
fn prose(text: &str) -> String {
    let blocks = text.split("```").step_by(2);
    let inline = blocks.flat_map(|block| block.split('`').step_by(2));
    inline.collect()
}

/// Returns the link definitions of a page: labels with their targets.
fn definitions(text: &str) -> BTreeMap<String, String> {
    let definition = |line: &str| {
        let (label, target) = line.strip_prefix('[')?.split_once("]: ")?;
        Some((label.to_owned(), target.to_owned()))
    };
    text.lines().filter_map(definition).collect()
}

/// Returns the ID of a heading, as GitHub and rustdoc form it.
fn anchor(heading: &str) -> String {
    let kept = heading
        .trim()
        .chars()
        .filter_map(|character| match character {
            ' ' => Some('-'),
            '-' | '_' => Some(character),
            _ => character
                .is_alphanumeric()
                .then(|| character.to_ascii_lowercase()),
        });
    kept.collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.split("```").step_by(2).flat_map(str::lines);
    let headings = headings.filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#')))
        .collect()
}

#[test]
fn every_page_of_the_guide_is_a_module() {
    for page in pages() {
        let file = page.file.strip_prefix(root().join("docs")).unwrap();
        let file = file.with_extension("");
        let is_folder = file.ends_with("README");
        let text = match is_folder {
            true => format!("docs/{}.md\")]", file.display()),
            false => format!("= \"{}\"", file.display()),
        };
        assert!(PAGES.contains(&text), "{} is no page", file.display());
    }
}

#[test]
fn every_link_of_the_guide_leads_to_a_page_and_a_heading() {
    let pages = pages();
    let by_name: BTreeMap<&str, &Page> = pages.iter().map(|page| (&*page.name, page)).collect();
    for page in &pages {
        let shown = page.file.display();
        let definitions = definitions(&page.text);
        for (label, target) in &definitions {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = page.file.parent().unwrap().join(file);
            let file = file
                .canonicalize()
                .unwrap_or_else(|_| panic!("{shown}: {target}"));
            let name = name_of(file.strip_prefix(root().join("docs")).unwrap());
            let expected = format!(
                "{name}{}",
                &target[target.find('#').unwrap_or(target.len())..]
            );
            assert_eq!(*label, expected, "{shown}: the label of {target}");
            let has_heading =
                heading.is_empty() || anchors(&by_name[&*name].text).contains(heading);
            assert!(has_heading, "{shown}: no heading for {target}");
        }
        let prose = prose(&page.text);
        for link in prose.split("](").skip(1) {
            let target = link.split(')').next().unwrap();
            let is_external = target.starts_with("https://");
            let heading = target.strip_prefix('#');
            let is_here = heading.is_some_and(|heading| anchors(&page.text).contains(heading));
            assert!(
                is_external || is_here,
                "{shown}: ({target}) is no link by label"
            );
        }
        for link in prose.split("][").skip(1) {
            let label = link.split(']').next().unwrap();
            assert!(
                definitions.contains_key(label),
                "{shown}: no definition of [{label}]"
            );
        }
    }
}

/// Set `UX_WRITE_GUIDE_LINKS` to write the file.
#[test]
fn the_links_for_rustdoc_have_every_label_of_a_page() {
    let labels: BTreeSet<String> = pages()
        .iter()
        .flat_map(|page| definitions(&page.text).into_keys())
        .collect();
    let line = |label: &String| {
        let (name, heading) = label.split_once('#').unwrap_or((label, ""));
        let hash = if heading.is_empty() { "" } else { "#" };
        format!("[{label}]: {}{hash}{heading}\n", module_of(name))
    };
    let expected: String = labels.iter().map(line).collect();
    if std::env::var_os("UX_WRITE_GUIDE_LINKS").is_some() {
        fs::write(root().join(LINKS), &expected).unwrap();
    }

    assert_eq!(fs::read_to_string(root().join(LINKS)).unwrap(), expected);
}

#[test]
fn the_front_page_of_the_guide_links_to_every_page() {
    let front = fs::read_to_string(root().join("docs/README.md")).unwrap();
    let linked = definitions(&front);
    for page in pages() {
        let is_linked = page.name.is_empty() || linked.contains_key(&page.name);
        assert!(is_linked, "docs/README.md does not link to {}", page.name);
    }
}
