use super::{Graph, Node};
use std::fmt::Write as _;

/// Draws the trigger graph of executors as a Mermaid flowchart from left to right. Schemas are vertices, so that the size of the chart
/// grows with the declarations of the executors and not with the number of pairs.
pub(super) fn flowchart(graph: &Graph) -> String {
    let mut lines = vec!["flowchart LR".to_owned()];
    for (at, node) in graph.nodes.iter().enumerate() {
        let (id, kind) = (escaped(&node.id), escaped(&node.kind));
        lines.push(format!("e{at}[\"{id} ({kind})\"]"));
    }
    for (at, schema) in graph.schemas.iter().enumerate() {
        lines.push(format!("s{at}([\"{}\"])", escaped(schema)));
    }
    let any = |node: &Node| node.any_trigger || node.writes.is_none();
    if graph.nodes.iter().any(any) {
        lines.push("any{{\"any schema\"}}".to_owned());
    }
    for (at, node) in graph.nodes.iter().enumerate() {
        lines.extend(node.triggers.iter().map(|s| format!("s{s} --> e{at}")));
        if node.any_trigger {
            lines.push(format!("any -.-> e{at}"));
        }
        match &node.writes {
            Some(schemas) => lines.extend(schemas.iter().map(|s| format!("e{at} --> s{s}"))),
            None => lines.push(format!("e{at} -.-> any")),
        }
    }
    lines.join("\n    ") + "\n"
}

/// Escapes a string for a quoted label of a Mermaid chart: all characters except letters, digits and a few marks become entities.
///
/// A colon becomes an entity too: Mermaid parses `style`, a colon and an entity as a style statement, and drops the end of the
/// entity.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_alphanumeric() || matches!(c, ' ' | '.' | '_' | '-' | '/') {
            escaped.push(c);
        } else if write!(escaped, "#{};", u32::from(c)).is_err() {
            return escaped; // unreachable, because writing to a string never fails
        }
    }
    escaped
}
