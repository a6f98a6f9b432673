//! Values at a JSONPath.

use super::budget::Budget;
use super::error::HintsReason;
use crate::model::Path;
use serde_json::Value;

/// A list if the path can yield many nodes, however many there are; else the node, or null.
pub(super) fn extract(
    path: &Path,
    context: &Value,
    budget: &mut Budget,
) -> Result<Value, HintsReason> {
    if path.is_plain() {
        return one(path, context)?.map_or(Ok(Value::Null), |node| budget.copy(node));
    }
    budget.search(context)?;
    let nodes = path.nodes(context).map_err(|_| HintsReason::Search)?;
    nodes.into_iter().map(|node| budget.copy(node)).collect()
}

/// The node at a plain path.
pub(super) fn one<'c>(path: &Path, context: &'c Value) -> Result<Option<&'c Value>, HintsReason> {
    path.first(context).map_err(|_| HintsReason::Search)
}
