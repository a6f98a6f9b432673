//! A minimal HTTP client.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use universal_executor::machine::{MachineCall, ToolArguments};

/// The address and token of a session's callback endpoint, as a program receives them.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Door {
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) pid: u32,
}

impl Door {
    /// Reads the endpoint from the arguments of the program's `open` call.
    pub(crate) fn of(call: &MachineCall) -> Self {
        match &call.arguments {
            ToolArguments::Json(json) => json.parse().unwrap(),
            ToolArguments::Unreadable { .. } => panic!("{call:?}"),
        }
    }

    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let authorization = format!("authorization: Bearer {}\r\n", self.token);
        request(method, path, &authorization, body)
    }

    pub(crate) fn call(&self, body: &str) -> Vec<u8> {
        self.request("POST", "/v1/tool-calls", body)
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    /// Sends bytes. Returns the status and the body of the response.
    pub(crate) async fn send(&self, bytes: &[u8]) -> (u16, Value) {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        heard(stream).await
    }

    /// Returns `true` if the program has ended and its entry in the process table is gone.
    pub(crate) fn is_gone(&self) -> bool {
        !std::path::Path::new(&format!("/proc/{}", self.pid)).exists()
    }

    /// Waits until the port is closed. A process that another test forks at this moment keeps the port until its `exec`.
    pub(crate) async fn is_closed(&self) {
        until(async || TcpStream::connect(self.address()).await.is_err()).await;
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let asked = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    let asked = tokio::time::timeout(Duration::from_secs(60), asked).await;
    asked.expect("the condition did not hold in time");
}

pub(crate) fn request(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: loopback\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

pub(crate) async fn heard(mut stream: TcpStream) -> (u16, Value) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}
