//! Translation of a selector to the list filters that the RCRT server supports. Pure.

use crate::model::{SESSION_TAG, Selector};
use crate::store::Query;

/// Filter of a breadcrumb list on the RCRT server. A list has at least the breadcrumbs that the query selects.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Filter {
    pub(super) schema: Option<String>,
    pub(super) tag: Option<String>,
}

/// Maximum number of a query's alternative tags that the store reads as separate lists, one list per tag. With more tags, the store
/// reads one list without a tag.
const MOST_ANY: usize = 8;

/// Returns the filters of the breadcrumb lists that a query must read from the RCRT server. The lists together contain every
/// breadcrumb that the query selects. The result is empty if the query selects nothing.
pub(super) fn filters(query: &Query) -> Vec<Filter> {
    let selector = &query.selector;
    let schema = schema(selector);
    let all = selector.all_of_tags().iter().chain(&query.scope_tags);
    if let Some(tag) = all.max_by_key(|tag| selectivity(tag)) {
        let tag = Some(tag.clone());
        return vec![Filter { schema, tag }];
    }
    let mut any: Vec<&String> = selector.any_of_tags().unwrap_or_default().iter().collect();
    any.sort_unstable();
    any.dedup();
    match selector.any_of_tags() {
        // A list of the schema needs fewer requests than a list for each tag.
        Some([]) => Vec::new(),
        Some(_) if any.len() == 1 || (schema.is_none() && any.len() <= MOST_ANY) => {
            let tagged = any.into_iter().map(|tag| Filter {
                schema: schema.clone(),
                tag: Some(tag.clone()),
            });
            tagged.collect()
        }
        Some(_) | None => vec![Filter { schema, tag: None }],
    }
}

/// Returns the schema name of a selector as a filter of the server's list, or `None` without a name or for any schema (`*`).
fn schema(selector: &Selector) -> Option<String> {
    let schema = selector.schema_name()?;
    (schema != "*").then(|| schema.to_owned())
}

/// Returns the rank of a tag as a filter of the server's list: the higher, the fewer breadcrumbs are likely to have the tag. Tags
/// that name one item come before tags that name a category.
fn selectivity(tag: &str) -> (u8, usize) {
    const ONE: [&str; 5] = ["ux:", "request:", SESSION_TAG, "consumer:", "id:"];
    const MANY: [&str; 2] = ["workspace:", "user:"];
    let rank = if ONE.iter().any(|prefix| tag.starts_with(prefix)) {
        3
    } else if MANY.iter().any(|prefix| tag.starts_with(prefix)) {
        0
    } else if tag.contains(':') {
        2
    } else {
        1
    };
    (rank, tag.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &Query) -> Vec<(Option<&'static str>, Option<&'static str>)> {
        let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
        let filters = filters(query).into_iter();
        filters
            .map(|filter| (filter.schema.map(leak), filter.tag.map(leak)))
            .collect()
    }

    #[test]
    fn a_filter_uses_the_schema_and_the_most_specific_tag() {
        let selector =
            Selector::schema("a.v1").all_tags(["workspace:tools", "tool:response", "request:1"]);
        assert_eq!(
            of(&Query::new(selector)),
            [(Some("a.v1"), Some("request:1"))]
        );

        let scoped = Query::new(Selector::schema("*").all_tags(["x"])).scope_tag("session:1");
        assert_eq!(of(&scoped), [(None, Some("session:1"))]);
    }

    #[test]
    fn of_tags_of_which_one_is_enough_each_is_a_list_unless_there_is_a_schema() {
        let any = |selector: Selector| of(&Query::new(selector.any_tags(["b", "a", "b"])));

        assert_eq!(any(Selector::any()), [(None, Some("a")), (None, Some("b"))]);
        assert_eq!(any(Selector::schema("a.v1")), [(Some("a.v1"), None)]);
        assert_eq!(
            of(&Query::new(Selector::any().any_tags(["a"]))),
            [(None, Some("a"))]
        );
        assert_eq!(
            of(&Query::new(Selector::any().any_tags(Vec::<String>::new()))),
            []
        );
        let many = (0..20).map(|n| n.to_string());
        assert_eq!(
            of(&Query::new(Selector::any().any_tags(many))),
            [(None, None)]
        );
    }
}
