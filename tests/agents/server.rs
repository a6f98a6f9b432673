//! A minimal HTTP server with scripted replies.

use serde_json::Value;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The server's reply to one request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Sends these byte strings in separate writes, then closes the connection.
    Bytes(Vec<Vec<u8>>),
    /// Sends these bytes, then keeps the connection open without sending more.
    Silence(Vec<u8>),
    /// Sends the head, then single bytes without end.
    Drip(String),
    /// Sends the head, then blocks of 1 KiB of `x` until the client closes the connection.
    Endless(String),
}

impl Reply {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::body(status, "application/json", &[], body.to_string().as_bytes())
    }

    pub(crate) fn body(status: u16, kind: &str, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let head = head(status, kind, headers, Some(body.len()));
        Self::Bytes(vec![head.into_bytes(), body.to_vec()])
    }

    /// Creates an event stream in these pieces, which ends with the connection.
    pub(crate) fn events(pieces: &[&[u8]]) -> Self {
        let head = head(200, "text/event-stream", &[], None).into_bytes();
        let pieces = pieces.iter().map(|piece| piece.to_vec());
        Self::Bytes([head].into_iter().chain(pieces).collect())
    }
}

pub(crate) fn head(
    status: u16,
    kind: &str,
    headers: &[(&str, &str)],
    length: Option<usize>,
) -> String {
    let mut head =
        format!("HTTP/1.1 {status} Some\r\ncontent-type: {kind}\r\nconnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if let Some(length) = length {
        head += &format!("content-length: {length}\r\n");
    }
    head + "\r\n"
}

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    /// The request line.
    pub(crate) line: String,
    /// All headers, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body, or `null` if it is empty.
    pub(crate) body: Value,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(one, _)| one == name);
        found.map(|(_, value)| &**value)
    }
}

/// A server that answers all requests with one reply or with a function. It ends with the tokio runtime of its test.
pub(crate) struct Server {
    port: u16,
    task: JoinHandle<()>,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Server {
    pub(crate) async fn start(reply: Reply) -> Self {
        Self::answering(move |_| reply.clone()).await
    }

    /// Starts a server that computes each reply from its request.
    pub(crate) async fn answering(
        answer: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let answer = Arc::new(answer);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let recorded = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (answer, recorded) = (Arc::clone(&answer), Arc::clone(&recorded));
                tokio::spawn(async move { serve(connection, &*answer, &recorded).await });
            }
        });
        Self {
            port,
            task,
            requests,
        }
    }

    /// Refuses further connections.
    pub(crate) async fn stop(self) {
        self.task.abort();
        // The end of the task closes the listener.
        assert!(self.task.await.is_err_and(|error| error.is_cancelled()));
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns the only request that the server received.
    pub(crate) fn only(&self) -> ReceivedRequest {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "expected one request: {requests:?}");
        requests.into_iter().next().unwrap()
    }
}

/// Serves one connection. Failed writes are ignored, because a client may close the connection early.
async fn serve(
    mut connection: TcpStream,
    answer: &(dyn Fn(&ReceivedRequest) -> Reply + Send + Sync),
    recorded: &Mutex<Vec<ReceivedRequest>>,
) -> Option<()> {
    let seen = read(&mut connection).await?;
    let reply = answer(&seen);
    recorded.lock().unwrap().push(seen);
    match reply {
        Reply::Bytes(pieces) => {
            for piece in pieces {
                connection.write_all(&piece).await.ok()?;
                connection.flush().await.ok()?;
                tokio::task::yield_now().await;
            }
        }
        Reply::Silence(bytes) => {
            connection.write_all(&bytes).await.ok()?;
            // The client ends this wait by closing the connection.
            connection.read_u8().await.ok()?;
        }
        Reply::Drip(head) => {
            connection.write_all(head.as_bytes()).await.ok()?;
            loop {
                connection.write_all(b" ").await.ok()?;
                tokio::task::yield_now().await;
            }
        }
        Reply::Endless(head) => {
            connection.write_all(head.as_bytes()).await.ok()?;
            loop {
                connection.write_all(&[b'x'; 1024]).await.ok()?;
            }
        }
    }
    connection.shutdown().await.ok()
}

/// Reads one request. Returns `None` if the client closes the connection first.
pub(crate) async fn read(connection: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(connection.read_u8().await.ok()?);
    }
    let head = String::from_utf8(text).unwrap();
    let mut lines = head.lines();
    let line = lines.next()?.to_owned();
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, length)| length.parse().unwrap());
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await.ok()?;
    Some(ReceivedRequest {
        line,
        headers,
        body: match body.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&body).unwrap(),
        },
    })
}
