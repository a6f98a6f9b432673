//! Conversion of the result of an MCP tool call to the output of a tool.

use crate::error::BoxError;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};

/// Returns the output of a tool call: the structured content if the result has any, otherwise the text of its only block,
/// otherwise the list of its blocks.
///
/// # Errors
/// The text of a result that the server marks as an error.
pub(super) fn output(result: CallToolResult) -> Result<Value, BoxError> {
    if result.is_error == Some(true) {
        let texts: Vec<&str> = result.content.iter().filter_map(text_of).collect();
        let text = match texts.is_empty() {
            true => "the MCP server returned an error without a text".to_owned(),
            false => texts.join("\n"),
        };
        return Err(text.into());
    }
    if let Some(structured) = result.structured_content {
        return Ok(structured);
    }
    Ok(match result.content.as_slice() {
        [one] if text_of(one).is_some() => text_of(one).into(),
        blocks => json!({"content": blocks.iter().map(block).collect::<Vec<_>>()}),
    })
}

fn text_of(block: &ContentBlock) -> Option<&str> {
    match block {
        ContentBlock::Text(text) => Some(&text.text),
        ContentBlock::Image(_)
        | ContentBlock::Audio(_)
        | ContentBlock::Resource(_)
        | ContentBlock::ResourceLink(_) => None,
        // The enum can get further kinds of blocks.
        _ => None,
    }
}

/// Returns one block of a result as JSON. The bytes of images, sounds and files are omitted, because a model reads the output as text.
fn block(block: &ContentBlock) -> Value {
    match block {
        ContentBlock::Text(text) => json!({"type": "text", "text": text.text}),
        ContentBlock::Image(image) => omitted("image", &image.mime_type, image.data.len()),
        ContentBlock::Audio(audio) => omitted("audio", &audio.mime_type, audio.data.len()),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                json!({"type": "resource", "uri": uri, "text": text})
            }
            ResourceContents::BlobResourceContents { uri, blob, .. } => {
                json!({"type": "resource", "uri": uri, "omitted_bytes": bytes(blob.len())})
            }
            _ => json!({"type": "resource"}),
        },
        ContentBlock::ResourceLink(link) => {
            json!({"type": "resource_link", "uri": link.uri, "name": link.name})
        }
        _ => json!({"type": "unknown"}),
    }
}

fn omitted(kind: &str, mime_type: &str, base64: usize) -> Value {
    json!({"type": kind, "mime_type": mime_type, "omitted_bytes": bytes(base64)})
}

/// Returns the approximate number of bytes that a base64 text of this length encodes.
fn bytes(base64: usize) -> usize {
    base64 / 4 * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(value: Value) -> Result<Value, String> {
        output(serde_json::from_value(value).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_single_text_is_the_output() {
        let text = json!({"content": [{"type": "text", "text": "12:00"}]});

        assert_eq!(result(text), Ok(json!("12:00")));
    }

    #[test]
    fn structured_content_replaces_the_text() {
        let structured =
            json!({"content": [{"type": "text", "text": "{}"}], "structuredContent": {"a": 1}});
        let null = json!({"content": [], "structuredContent": null});

        assert_eq!(result(structured), Ok(json!({"a": 1})));
        assert_eq!(result(null), Ok(Value::Null));
    }

    #[test]
    fn several_blocks_are_listed_without_their_bytes() {
        let blocks = json!({"content": [
            {"type": "text", "text": "a chart"},
            {"type": "image", "mimeType": "image/png", "data": "AAAAAAAA"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "A"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAA"}},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
        ]});

        let expected = json!({"content": [
            {"type": "text", "text": "a chart"},
            {"type": "image", "mime_type": "image/png", "omitted_bytes": 6},
            {"type": "resource", "uri": "file:///a", "text": "A"},
            {"type": "resource", "uri": "file:///b", "omitted_bytes": 3},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
        ]});
        assert_eq!(result(blocks), Ok(expected));
        assert_eq!(result(json!({"content": []})), Ok(json!({"content": []})));
    }

    #[test]
    fn the_text_of_an_error_is_the_message() {
        let failed = json!({"isError": true, "content": [{"type": "text", "text": "no such zone"}], "structuredContent": {"a": 1}});
        let silent = json!({"isError": true, "content": []});

        assert_eq!(result(failed), Err("no such zone".to_owned()));
        assert!(result(silent).unwrap_err().contains("without a text"));
    }
}
