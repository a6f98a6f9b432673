//! The tables of fields in the reference pages, for tests that compare them with the code.

use serde_json::Value;
use std::collections::BTreeSet;

const HEADER: &str = "| field | type | default | meaning | example |";

/// Returns the names of the fields in the table below a heading of a page. Fails the test if an example is no JSON.
pub(crate) fn fields<'p>(page: &'p str, heading: &str) -> BTreeSet<&'p str> {
    let mut lines = page.lines();
    let is_heading = |line: &str| line.trim_start_matches('#').trim() == heading;
    assert!(lines.any(is_heading), "no heading {heading:?}");
    let below = lines.take_while(|line| !line.starts_with('#'));
    let mut rows = below.skip_while(|line| *line != HEADER);
    assert!(rows.next().is_some(), "no table below {heading:?}");
    let rows = rows.skip(1).take_while(|line| line.starts_with("| "));
    rows.map(|row| field(row, heading)).collect()
}

fn field<'p>(row: &'p str, heading: &str) -> &'p str {
    let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
    let [name, _, _, _, example] = &*cells else {
        panic!("{heading}: a row without five cells: {row}");
    };
    let code = |cell: &'p str| cell.strip_prefix('`')?.strip_suffix('`');
    let is_json =
        code(example).is_some_and(|example| serde_json::from_str::<Value>(example).is_ok());
    assert!(
        is_json,
        "{heading}: the example of {name} is no JSON: {example}"
    );
    code(name).unwrap_or_else(|| panic!("{heading}: no name in {row}"))
}

/// Fails the test unless the table below a heading of a page lists exactly these fields.
pub(crate) fn assert_fields(page: &str, heading: &str, names: &[&str]) {
    let names: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(fields(page, heading), names, "{heading}");
}

const PAGE: &str = "# A\n\n## B\n\n| field | type | default | meaning | example |\n|---|---|---|---|---|\n\
    | `x` | string | none | Text. | `\"a\"` |\n\n## C\n";

#[test]
fn the_fields_of_a_table_are_found_below_its_heading() {
    assert_fields(PAGE, "B", &["x"]);
}

#[test]
#[should_panic(expected = "no table below \"C\"")]
fn a_heading_without_a_table_is_reported() {
    fields(PAGE, "C");
}

#[test]
#[should_panic(expected = "assertion `left == right` failed: B")]
fn a_missing_field_is_reported() {
    assert_fields(PAGE, "B", &["x", "y"]);
}
