//! A minimal HTTP server with the parts of HTTP that RCRT (Right Context Right Time) clients use.

mod crumbs;
mod faults;
mod routes;
mod stream;
mod weather;

pub(crate) use faults::{Fault, Match};
pub(crate) use weather::{Dice, Weather};

use crumbs::Crumbs;
use serde_json::Value;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

/// Maximum size of a body in bytes.
const MAX_BODY: usize = 2 << 20;

/// A request of a client.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: HashMap<String, String>,
    /// The headers, with names in lower case.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    /// The URL of a redirect.
    pub(crate) location: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(body: &Value) -> Self {
        Self {
            status: 200,
            kind: "application/json",
            location: None,
            body: body.to_string().into_bytes(),
        }
    }

    pub(crate) fn text(status: u16, text: &str) -> Self {
        Self {
            status,
            kind: "text/plain; charset=utf-8",
            location: None,
            body: text.as_bytes().to_vec(),
        }
    }

    fn redirect(location: String) -> Self {
        Self {
            location: Some(location),
            ..Self::text(307, "")
        }
    }
}

/// The state of the server.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) crumbs: Crumbs,
    /// The received idempotency keys.
    pub(crate) keys: HashSet<String>,
    pub(crate) faults: VecDeque<(Match, Fault)>,
    pub(crate) seen: Vec<Request>,
    /// Tokens that the server no longer accepts.
    pub(crate) expired: HashSet<String>,
    pub(crate) issued: u64,
    /// If `true`, answers have no `Date` header.
    pub(crate) is_timeless: bool,
    pub(crate) stream: stream::Ways,
    /// Probabilities of random faults.
    pub(crate) weather: Weather,
    pub(crate) dice: Dice,
    /// Number of streams that were closed by random faults.
    pub(crate) cuts: usize,
    /// Time that each answer takes.
    pub(crate) latency: Duration,
    /// If `true`, each connection is closed without an answer.
    pub(crate) is_down: bool,
    /// IDs of breadcrumbs whose reads always fail.
    pub(crate) broken: HashSet<String>,
    /// If not 0, one of this number of reads gets no answer, on average.
    pub(crate) hang_every: u64,
    /// Number of calls with a random fault.
    pub(crate) spoilt: usize,
}

#[derive(Clone)]
pub(crate) struct Server {
    port: u16,
    state: Arc<Mutex<State>>,
    /// The frames of all streams, each with its owner. An empty owner closes all streams.
    frames: broadcast::Sender<(String, String)>,
}

/// Returns a token that the server accepts for an owner without having issued it.
pub(crate) fn token_of(owner: &str) -> String {
    format!("known:{owner}")
}

impl Server {
    /// Starts a server that runs until the tokio runtime ends.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            state: Arc::default(),
            frames: broadcast::Sender::new(65_536),
        };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let server = serving.clone();
                tokio::spawn(async move { server.serve(connection).await });
            }
        });
        server
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Plans a fault for the next matching request.
    pub(crate) fn fail(&self, of: Match, fault: Fault) {
        self.lock().faults.push_back((of, fault));
    }

    /// Returns all received requests with a method and a path prefix.
    pub(crate) fn seen(&self, method: &str, path: &str) -> Vec<Request> {
        let state = self.lock();
        let seen = state.seen.iter();
        seen.filter(|seen| seen.method == method && seen.path.starts_with(path))
            .cloned()
            .collect()
    }

    /// Closes all streams.
    pub(crate) fn cut(&self) {
        self.frames.send(Default::default()).ok();
    }

    pub(crate) fn ways(&self, change: impl FnOnce(&mut stream::Ways)) {
        change(&mut self.lock().stream);
    }

    /// Waits for the latency of an answer. Returns `None` if the server is down.
    async fn work(&self) -> Option<()> {
        let latency = self.lock().latency;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        (!self.lock().is_down).then_some(())
    }

    /// Serves the requests of a connection. Returns `None` when the client closes the connection.
    async fn serve(self, mut connection: TcpStream) -> Option<()> {
        connection.set_nodelay(true).ok()?;
        loop {
            let (reader, mut writer) = connection.split();
            let mut reader = BufReader::new(reader);
            // HTTP/1.1 clients wait for an answer before their next request, so the buffer is empty.
            let request = read(&mut reader).await?;
            self.work().await?;
            let fault = self.lock().faulty(&request);
            self.lock().seen.push(request.clone());
            let fault = fault.or_else(|| self.lock().hung(&request));
            if request.path == "/events/stream" && fault.is_none() {
                let owner = self.owner_of(&request)?;
                return self.stream(&mut writer, &request, &owner).await;
            }
            let answer = self.served(&request, fault).await?;
            let whole = self.lock().written(answer);
            writer.write_all(&whole).await.ok()?;
        }
    }
}

impl Server {
    /// Returns the answer to a request with a fault, or `None` if the connection is closed instead.
    async fn served(&self, request: &Request, fault: Option<Fault>) -> Option<Answer> {
        match fault {
            None => self.answer(request).await,
            Some(Fault::Close) => None,
            Some(Fault::Refuse(status, text)) => Some(Answer::text(status, text)),
            Some(Fault::DoAndSay(status, text)) => {
                self.answer(request).await?;
                Some(Answer::text(status, text))
            }
            Some(Fault::DoAndClose) => {
                self.answer(request).await;
                None
            }
            Some(Fault::Burn) => {
                let key = request.header("idempotency-key").unwrap_or_default();
                self.lock().keys.insert(key.to_owned());
                Some(Answer::text(500, "database error"))
            }
            Some(Fault::Overtake) => {
                self.overtake(request);
                self.answer(request).await
            }
            Some(Fault::Before(change)) => {
                change(&mut self.lock());
                self.answer(request).await
            }
            Some(Fault::Say(body)) => Some(Answer {
                body,
                ..Answer::json(&Value::Null)
            }),
            Some(Fault::Redirect(location)) => Some(Answer::redirect(location)),
            Some(Fault::Wait(go)) => {
                go.notified().await;
                self.answer(request).await
            }
            Some(Fault::Between(go)) => self.update(request, Some(go)).await,
            Some(Fault::Hang) => {
                tokio::time::sleep(Duration::from_secs(600)).await;
                None
            }
        }
    }
}

impl State {
    /// Returns an answer as bytes.
    fn written(&self, answer: Answer) -> Vec<u8> {
        let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
        let now = printer.timestamp_to_rfc9110_string(&self.crumbs.clock());
        let date = match self.is_timeless {
            true => String::new(),
            false => format!("date: {}\r\n", now.unwrap()),
        };
        let location = answer.location.map(|url| format!("location: {url}\r\n"));
        let head = format!(
            "HTTP/1.1 {} Some\r\n{date}{}content-type: {}\r\ncontent-length: {}\r\n\r\n",
            answer.status,
            location.unwrap_or_default(),
            answer.kind,
            answer.body.len()
        );
        [head.into_bytes(), answer.body].concat()
    }
}

/// Reads one request. Returns `None` if the client closes the connection first.
async fn read(reader: &mut (impl AsyncReadExt + Unpin)) -> Option<Request> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(reader.read_u8().await.ok()?);
    }
    let head = String::from_utf8(text).ok()?;
    let mut lines = head.lines();
    let mut line = lines.next()?.split(' ');
    let (method, target) = (line.next()?.to_owned(), line.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers: HashMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length");
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).await.ok()?;
    Some(Request {
        method,
        path: path.to_owned(),
        query: query.split('&').filter_map(pair).collect(),
        headers,
        body,
    })
}

fn pair(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    Some((decoded(name), decoded(value)))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let (digits, behind) = rest.split_at(2);
                rest = behind;
                u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            }
            other => other,
        });
    }
    String::from_utf8(bytes).unwrap()
}
