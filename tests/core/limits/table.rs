//! The tables of docs/reference/limits.md, as rows.

const LIMITS: &str = include_str!("../../../docs/reference/limits.md");
const HEADER: &str = "| Limit | Default | Change | At the limit | Visible in | Code |";

/// A row of a table.
pub(super) struct Row {
    /// Default value in bytes, seconds or items, or `None` for no limit.
    pub(super) default: Option<u128>,
    /// The methods and fields that change the limit.
    pub(super) change: &'static str,
    /// The metrics, log messages and report fields that show the limit.
    pub(super) visible: &'static str,
    pub(super) file: &'static str,
    /// The name of the constant, or of the struct and its field.
    pub(super) name: &'static str,
}

impl Row {
    /// Returns the name of the constant without its type.
    pub(super) fn constant(&self) -> &'static str {
        self.name.rsplit("::").next().unwrap()
    }

    /// Returns the file and the constant, or the file and the struct with its field.
    pub(super) fn code(&self) -> String {
        format!("{} {}", self.file, self.constant())
    }
}

/// Returns all rows, in the order of the document.
pub(super) fn rows() -> Vec<Row> {
    LIMITS
        .lines()
        .filter(|line| line.starts_with('|') && !line.starts_with("|---") && *line != HEADER)
        .map(row)
        .collect()
}

fn row(line: &'static str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [limit, default, change, effect, visible, code] = cells[..] else {
        panic!("a row must have six cells: {line}");
    };
    assert!(
        [limit, change, effect, visible]
            .iter()
            .all(|cell| !cell.is_empty()),
        "a row must not have an empty cell: {line}"
    );
    let [file, name] = marked(code)[..] else {
        panic!("the last cell must be a file and a name: {line}");
    };
    Row {
        default: value(default).unwrap_or_else(|| panic!("a default must be a number: {line}")),
        change,
        visible,
        file,
        name,
    }
}

/// Returns the value of a cell such as `16,384 events`, `64 MiB`, `7 d` or `none`.
pub(super) fn value(cell: &str) -> Option<Option<u128>> {
    if cell == "none" {
        return Some(None);
    }
    let (number, unit) = cell.split_once(' ')?;
    let unit = match unit.trim_end_matches(',') {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => 1,
    };
    let number: u128 = number.replace(',', "").parse().ok()?;
    Some(Some(number * unit))
}

/// Returns the parts of a cell between backticks.
pub(super) fn marked(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Returns the parts of a cell between quotes.
pub(super) fn quoted(cell: &str) -> Vec<&str> {
    cell.split('"').skip(1).step_by(2).collect()
}
