//! Check of a parsed JSONPath: rejects filters that `jsonpath_rust` evaluates differently from RFC 9535, or not in linear time.

use jsonpath_rust::parser::model::{
    Comparable, Filter, FilterAtom, FnArg, JpQuery, Literal, Segment, Selector, Test, TestFunction,
};

use super::{PathError, shorten, within};

/// Maximum number of comparisons between two paths in the filters of a JSONPath. Each such comparison can compare whole subtrees, and does
/// so on every level of the document below `..`.
const MAX_PATH_COMPARISONS: usize = 2;

/// Checks the filters of a compiled JSONPath.
pub(super) fn check(path: &str, query: &JpQuery) -> Result<(), PathError> {
    let mut filters = Vec::new();
    query
        .segments
        .iter()
        .for_each(|part| segment(part, &mut filters));
    let comparisons = filters
        .iter()
        .map(|part| path_comparisons(part))
        .sum::<usize>();
    let counted = ("comparisons of paths", comparisons, MAX_PATH_COMPARISONS);
    within(path, counted, "compare with literals")?;
    filters.iter().try_for_each(|part| filter(path, part))
}

fn path_comparisons(part: &Filter) -> usize {
    match part {
        Filter::Or(all) | Filter::And(all) => all.iter().map(path_comparisons).sum(),
        Filter::Atom(FilterAtom::Filter { expr, .. }) => path_comparisons(expr),
        Filter::Atom(FilterAtom::Test { .. }) => 0,
        Filter::Atom(FilterAtom::Comparison(comparison)) => {
            let is_literal = |side: &Comparable| matches!(side, Comparable::Literal(_));
            let (left, right) = comparison.vals();
            usize::from(!is_literal(left) && !is_literal(right))
        }
    }
}

fn segment<'q>(part: &'q Segment, filters: &mut Vec<&'q Filter>) {
    match part {
        Segment::Descendant(inner) => segment(inner, filters),
        Segment::Selector(one) => filters.extend(filter_of(one)),
        Segment::Selectors(all) => filters.extend(all.iter().filter_map(filter_of)),
    }
}

fn filter_of(part: &Selector) -> Option<&Filter> {
    match part {
        Selector::Filter(inner) => Some(inner),
        Selector::Name(_) | Selector::Wildcard | Selector::Index(_) | Selector::Slice(..) => None,
    }
}

fn filter(path: &str, part: &Filter) -> Result<(), PathError> {
    match part {
        Filter::Or(all) | Filter::And(all) => all.iter().try_for_each(|one| filter(path, one)),
        Filter::Atom(FilterAtom::Filter { expr, .. }) => filter(path, expr),
        Filter::Atom(FilterAtom::Test { expr, .. }) => test(path, expr),
        Filter::Atom(FilterAtom::Comparison(comparison)) => {
            let (left, right) = comparison.vals();
            comparable(path, left)?;
            comparable(path, right)
        }
    }
}

fn test(path: &str, part: &Test) -> Result<(), PathError> {
    match part {
        Test::RelQuery(_) => Ok(()),
        Test::AbsQuery(_) => Err(PathError::RootInFilter {
            path: shorten(path),
        }),
        // The evaluator treats every tested value as false, and its negation as true.
        Test::Function(call) => Err(misplaced_function(
            path,
            call,
            "compare its result, as in length(@.a) > 0",
        )),
    }
}

fn comparable(path: &str, part: &Comparable) -> Result<(), PathError> {
    match part {
        Comparable::Literal(value) => literal(path, value),
        Comparable::Function(call) => function(path, call),
        Comparable::SingularQuery(_) => Ok(()),
    }
}

fn literal(path: &str, part: &Literal) -> Result<(), PathError> {
    match part {
        // serde_json converts infinity to null, so `null == 1e999` would be true.
        Literal::Float(number) if !number.is_finite() => Err(PathError::NumberOutOfRange {
            path: shorten(path),
        }),
        Literal::Float(_)
        | Literal::Int(_)
        | Literal::String(_)
        | Literal::Bool(_)
        | Literal::Null => Ok(()),
    }
}

fn function(path: &str, call: &TestFunction) -> Result<(), PathError> {
    match call {
        TestFunction::Length(argument) => match &**argument {
            FnArg::Literal(value) => literal(path, value),
            argument if is_query(argument, is_singular) => Ok(()),
            // The evaluator would count the nodes instead.
            _ => Err(misplaced_function(
                path,
                call,
                "length() takes one value, such as @.a",
            )),
        },
        TestFunction::Value(argument) if is_query(argument, |_| true) => Ok(()),
        TestFunction::Value(_) => Err(misplaced_function(
            path,
            call,
            "value() takes a path of `@`",
        )),
        TestFunction::Custom(..)
        | TestFunction::Count(_)
        | TestFunction::Search(..)
        | TestFunction::Match(..) => Err(PathError::Function {
            path: shorten(path),
            function: name(call).to_owned(),
        }),
    }
}

fn is_query(argument: &FnArg, accept: impl Fn(&[Segment]) -> bool) -> bool {
    match argument {
        FnArg::Test(test) => matches!(&**test, Test::RelQuery(segments) if accept(segments)),
        FnArg::Literal(_) | FnArg::Filter(_) => false,
    }
}

fn is_singular(segments: &[Segment]) -> bool {
    segments.iter().all(|segment| {
        matches!(
            segment,
            Segment::Selector(Selector::Name(_) | Selector::Index(_))
        )
    })
}

fn misplaced_function(path: &str, call: &TestFunction, way_out: &'static str) -> PathError {
    PathError::FunctionUse {
        path: shorten(path),
        function: name(call).to_owned(),
        way_out,
    }
}

fn name(call: &TestFunction) -> &str {
    match call {
        TestFunction::Custom(name, _) => name,
        TestFunction::Length(_) => "length",
        TestFunction::Value(_) => "value",
        TestFunction::Count(_) => "count",
        TestFunction::Search(..) => "search",
        TestFunction::Match(..) => "match",
    }
}
