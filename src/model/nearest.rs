//! Search for the known name closest to an unknown name, for suggestions in error messages.

/// Returns the closest candidate within two edits of `name`, or within one edit for a name of at most four characters. Ignores the
/// case of `name`. Returns `None` for a name of more than 64 bytes.
pub(crate) fn nearest<'c>(
    name: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    const LONGEST: usize = 64;
    if name.len() > LONGEST {
        return None;
    }
    let name = name.to_lowercase();
    let most = if name.chars().count() <= 4 { 1 } else { 2 };
    candidates
        .into_iter()
        .map(|candidate| (edits(&name, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the Levenshtein distance of two strings.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, b) in row.iter_mut().skip(1).zip(&to) {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = *cell;
            left = replaced.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let roles = ["trigger", "context"];

        assert_eq!(nearest("triger", roles), Some("trigger"));
        assert_eq!(nearest("Context", roles), Some("context"));
        assert_eq!(nearest("banana", roles), None);
    }

    #[test]
    fn edits_counts_insertions_deletions_and_replacements() {
        for (from, to, distance) in [
            ("kitten", "sitting", 3),
            ("", "abc", 3),
            ("abc", "", 3),
            ("a", "a", 0),
        ] {
            assert_eq!(edits(from, to), distance, "{from} -> {to}");
        }
    }
}
