//! docs/reference/limits.md lists the limits of the crate with the values in the code.

mod code;
mod others;
mod public;
mod table;

use code::Code;
use std::collections::{BTreeMap, BTreeSet};
use table::{Row, marked, quoted, rows};

fn listed(rows: &[Row]) -> BTreeSet<String> {
    rows.iter().map(Row::code).collect()
}

#[test]
fn the_defaults_in_the_tables_are_the_values_in_the_code() {
    let (code, public) = (Code::read(), BTreeMap::from_iter(public::values()));

    let wrong: Vec<String> = rows()
        .iter()
        .filter_map(|row| {
            let read = code.value(row.file, row.constant());
            let given = public.get(row.name).copied();
            let found: BTreeSet<Option<u128>> = read.into_iter().chain(given).collect();
            let (name, default) = (row.code(), row.default);
            (found != BTreeSet::from([default]))
                .then(|| format!("{name} is {default:?} in the table and {found:?} in the code"))
        })
        .collect();

    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn each_public_limit_is_compared_with_its_value() {
    let rows = rows();
    let mut names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    let values = public::values();

    for (name, _) in &values {
        assert!(
            names.contains(name),
            "{name} is not in docs/reference/limits.md"
        );
    }
    names.retain(|name| name.contains("::") && !values.iter().any(|(known, _)| known == name));
    assert!(names.is_empty(), "add to `public::values`: {names:?}");
}

#[test]
fn each_limit_of_the_code_is_in_the_tables_or_has_a_reason_why_not() {
    let rows = rows();
    let listed = listed(&rows);
    assert_eq!(listed.len(), rows.len(), "a limit is listed twice");
    let excused = others::CONSTANTS.iter().flat_map(|(_, names)| *names);
    let excused: BTreeSet<String> = excused.map(|name| (*name).to_owned()).collect();
    let limits = Code::read().limits();

    let missing: Vec<&String> = limits
        .iter()
        .filter(|limit| !listed.contains(*limit) && !excused.contains(*limit))
        .collect();
    let needless: Vec<&String> = excused
        .iter()
        .filter(|name| !limits.contains(*name) || listed.contains(*name))
        .collect();

    assert!(
        missing.is_empty(),
        "not in docs/reference/limits.md: {missing:#?}"
    );
    assert!(needless.is_empty(), "need no reason: {needless:#?}");
}

#[test]
fn each_capacity_of_a_channel_or_semaphore_is_in_the_tables() {
    let listed = listed(&rows());
    let capacities = Code::read().capacities();
    let known = |(file, argument): &&(String, String)| {
        let (module, name) = argument.rsplit_once("::").unwrap_or(("Self", argument));
        let other = format!("/{module}.rs {name}");
        let other = module != "Self" && listed.iter().any(|limit| limit.ends_with(&other));
        let row = others::CAPACITIES
            .iter()
            .find(|(of, text, _)| of == file && text == argument);
        other
            || listed.contains(&format!("{file} {name}"))
            || row.is_some_and(|(_, _, row)| listed.contains(*row))
    };

    let unknown: Vec<&(String, String)> = capacities.iter().filter(|one| !known(one)).collect();

    assert!(
        unknown.is_empty(),
        "not in docs/reference/limits.md: {unknown:#?}"
    );
    for (file, argument, _) in others::CAPACITIES {
        let one = ((*file).to_owned(), (*argument).to_owned());
        assert!(capacities.contains(&one), "needs no entry: {one:?}");
    }
}

#[test]
fn the_methods_metrics_and_messages_in_the_tables_exist() {
    let code = Code::read();
    let exists = |name: &str| match name.rsplit_once("::") {
        Some((owner, name)) => {
            let owner = [format!("struct {owner}"), format!("enum {owner}")];
            let name = [format!(" {name}"), format!("fn {name}(")];
            owner.iter().any(|owner| code.contains(owner))
                && name.iter().any(|name| code.contains(name))
        }
        None => {
            let name = name.rsplit('.').next().unwrap();
            code.contains(&format!("\"{name}\"")) || code.contains(&format!("fn {name}("))
        }
    };

    let mut unknown = Vec::new();
    for row in rows() {
        let names = marked(row.change).into_iter().chain(marked(row.visible));
        unknown.extend(names.filter(|name| !exists(name)));
        let messages = quoted(row.visible).into_iter();
        unknown.extend(messages.filter(|text| !code.contains(&format!("\"{text}\""))));
    }

    assert!(unknown.is_empty(), "not in the code: {unknown:#?}");
}
