//! Messages to an MCP server over HTTP, without a client library.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The newest protocol version, which has no sessions.
pub(super) const NEWEST: &str = "2026-07-28";

/// A response of the server.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    text: String,
}

impl Response {
    /// Returns the value of a header, which is not case-sensitive.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.text.lines().take_while(|line| !line.is_empty());
        let mut headers = lines.filter_map(|line| line.split_once(": "));
        let found = headers.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// Returns the last JSON message in the body or in its events.
    pub(super) fn message(&self) -> Value {
        let lines = self.text.lines().rev();
        let texts = lines.map(|line| line.strip_prefix("data: ").unwrap_or(line));
        let mut messages = texts.filter_map(|text| serde_json::from_str(text).ok());
        let found = messages.find(Value::is_object);
        found.unwrap_or_else(|| panic!("no message in {}", self.text))
    }
}

/// Sends a message, and returns the connection, from which the response can be read.
pub(super) async fn send(url: &str, headers: &[(&str, &str)], message: &Value) -> TcpStream {
    let address = url.strip_prefix("http://").unwrap();
    let (host, path) = address.split_once('/').unwrap();
    let body = message.to_string();
    let length = body.len();
    let mut head =
        format!("POST /{path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n");
    let defaults = [
        ("Host", host),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
    ];
    let is_set = |name| headers.iter().any(|(set, _)| *set == name);
    let defaults = defaults.iter().filter(|(name, _)| !is_set(*name));
    for (name, value) in defaults.chain(headers) {
        head += &format!("{name}: {value}\r\n");
    }
    let mut connection = TcpStream::connect(host).await.unwrap();
    let request = format!("{head}\r\n{body}");
    // A server that refuses a long body closes the connection before its end.
    connection.write_all(request.as_bytes()).await.ok();
    connection
}

/// Reads a response to its end.
pub(super) async fn read(mut connection: TcpStream) -> Response {
    let mut bytes = Vec::new();
    // A server that refuses a long body resets the connection after its response.
    connection.read_to_end(&mut bytes).await.ok();
    let text = String::from_utf8(bytes).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, text }
}

/// Returns the headers and the message of a request in the newest protocol version, by a client that supports elicitation.
pub(super) fn request(method: &str, mut params: Value) -> (Vec<(&str, String)>, Value) {
    let mut headers = vec![
        ("MCP-Protocol-Version", NEWEST.to_owned()),
        ("Mcp-Method", method.to_owned()),
    ];
    if let Some(name) = params["name"].as_str() {
        headers.push(("Mcp-Name", name.to_owned()));
    }
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(NEWEST);
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "raw", "version": "1"});
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    (headers, message)
}

/// Sends a request in the newest protocol version, and returns the connection.
pub(super) async fn ask(url: &str, method: &str, params: Value) -> TcpStream {
    let (headers, message) = request(method, params);
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();
    send(url, &headers, &message).await
}

/// Sends a request in the newest protocol version, and returns the answer.
pub(super) async fn raw(url: &str, method: &str, params: Value) -> Value {
    read(ask(url, method, params).await).await.message()
}

/// A session of a protocol version with sessions.
pub(super) struct Session {
    url: String,
    id: String,
}

impl Session {
    const VERSION: &str = "2025-11-25";

    pub(super) async fn start(url: &str) -> Self {
        let client = json!({"name": "raw", "version": "1"});
        let params =
            json!({"protocolVersion": Self::VERSION, "capabilities": {}, "clientInfo": client});
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let started = read(send(url, &[], &message).await).await;
        let session = Self {
            url: url.to_owned(),
            id: started.header("mcp-session-id").unwrap().to_owned(),
        };
        session.notify("notifications/initialized", json!({})).await;
        session
    }

    /// Sends a request, and returns the connection.
    pub(super) async fn ask(&self, id: u64, method: &str, params: Value) -> TcpStream {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&message).await
    }

    pub(super) async fn notify(&self, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        let accepted = read(self.send(&message).await).await;
        assert_eq!(accepted.status, 202, "{accepted:?}");
    }

    async fn send(&self, message: &Value) -> TcpStream {
        let headers = [
            ("Mcp-Session-Id", &*self.id),
            ("MCP-Protocol-Version", Self::VERSION),
        ];
        send(&self.url, &headers, message).await
    }
}
