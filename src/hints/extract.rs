//! Extraction of the values at a JSONPath, for the rules of `llm_hints`.

use super::budget::Budget;
use super::error::HintsReason;
use crate::model::Path;
use serde_json::Value;

/// Returns the part of a context that an `extract` rule of `llm_hints` selects with its JSONPath. A path with only names and
/// indexes returns its node, or null without a node. Any other path returns the list of all its nodes.
pub(super) fn extract(
    path: &Path,
    context: &Value,
    budget: &mut Budget,
) -> Result<Value, HintsReason> {
    if path.is_plain() {
        return one(path, context)?.map_or(Ok(Value::Null), |node| budget.copy(node));
    }
    let nodes = many(path, context, budget)?;
    nodes.into_iter().map(|node| budget.copy(node)).collect()
}

/// Returns the node at a path of only names and indexes, or `None` if the context has no node there.
pub(super) fn one<'c>(path: &Path, context: &'c Value) -> Result<Option<&'c Value>, HintsReason> {
    path.first(context).map_err(|_| HintsReason::Search)
}

/// Returns all nodes that a JSONPath selects in a breadcrumb's context, for a JSONPath that can select more than one node.
pub(super) fn many<'c>(
    path: &Path,
    context: &'c Value,
    budget: &mut Budget,
) -> Result<Vec<&'c Value>, HintsReason> {
    budget.search(context, path)?;
    path.nodes(context).map_err(|_| HintsReason::Search)
}
