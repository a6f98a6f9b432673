//! HTTP service for the tool calls of an agent's program: authenticates, reads and answers one request of each connection.

use super::refusal::{MAX_CALLS, READ_TIMEOUT, Refusal, response};
use super::token::Token;
use super::wire;
use crate::error::Chain;
use crate::machine::{Answer, MachineCall};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time;

/// Maximum size in bytes of the head of an HTTP request of an agent's program.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Maximum number of bytes read from a refused HTTP request of an agent's program. A client that is still writing would not read the
/// response.
const MAX_DRAINED_BYTES: usize = 16 << 20;

/// A tool call that an agent's program sent, and the HTTP client that waits for the result.
pub(super) struct ReceivedCall {
    pub(super) call: MachineCall,
    pub(super) caller: Caller,
}

/// An HTTP client of an agent's program that waits for the result of a tool call. Dropping this answers that the call was cancelled.
pub(super) struct Caller {
    reply: oneshot::Sender<Answer>,
    /// The semaphore permit that the tool call holds until its answer, which limits the number of unanswered calls. The semaphore
    /// has [`MAX_CALLS`] permits. The permit is released with the answer and not when the client disconnects, so a client that
    /// sends the call again counts twice.
    _permit: OwnedSemaphorePermit,
}

impl Caller {
    /// Sends the result of the tool call, unless the client has disconnected.
    pub(super) fn answer(self, answer: Answer) {
        self.reply.send(answer).ok();
    }
}

/// State shared by all HTTP connections of one agent program.
pub(super) struct Service {
    token: Token,
    tools: Bytes,
    calls: mpsc::Sender<ReceivedCall>,
    permits: Arc<Semaphore>,
    max_call_bytes: usize,
}

impl Service {
    pub(super) fn new(
        token: Token,
        tools: Vec<u8>,
        calls: mpsc::Sender<ReceivedCall>,
        max_call_bytes: usize,
    ) -> Self {
        Self {
            token,
            tools: tools.into(),
            calls,
            permits: Arc::new(Semaphore::new(MAX_CALLS)),
            max_call_bytes,
        }
    }

    /// Serves the one HTTP request of a connection from an agent's program.
    pub(super) async fn serve(self: Arc<Self>, stream: TcpStream) {
        let answer =
            service_fn(|request| async { Ok::<_, Infallible>(self.answer(request).await) });
        let served = http1::Builder::new()
            .keep_alive(false)
            .timer(TokioTimer::new())
            .header_read_timeout(READ_TIMEOUT)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), answer)
            .await;
        if let Err(error) = served {
            tracing::debug!(error = %Chain(&error), "a tool request from an agent's program failed on its local connection");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, mut body) = request.into_parts();
        let result = match self.route(&head.method, head.uri.path(), &head.headers) {
            Ok(Route::Tools) => return response(StatusCode::OK, self.tools.clone()),
            Ok(Route::Call) => self.call(&mut body).await,
            Err(refusal) => Err(refusal),
        };
        match result {
            Ok(answer) => response(StatusCode::OK, wire::answer(&answer).to_string()),
            Err(refusal) => {
                if refusal.has_unread_body() {
                    drain(&mut body).await;
                }
                refusal.response()
            }
        }
    }

    fn route(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<Route, Refusal> {
        if !bearer_token(headers).is_some_and(|token| self.token.matches(token)) {
            return Err(Refusal::Unauthorized);
        }
        let (allowed, route) = match path {
            "/v1/tool-calls" => (Method::POST, Route::Call),
            "/v1/tools" => (Method::GET, Route::Tools),
            _ => return Err(Refusal::UnknownPath),
        };
        match *method == allowed {
            true => Ok(route),
            false => Err(Refusal::OtherMethod(match route {
                Route::Call => "POST",
                Route::Tools => "GET",
            })),
        }
    }

    async fn call(&self, body: &mut Incoming) -> Result<Answer, Refusal> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_| Refusal::TooManyCalls)?;
        let read = time::timeout(READ_TIMEOUT, read(body, self.max_call_bytes)).await;
        let body = read.map_err(|_| Refusal::TooSlow)??;
        let call = wire::read_call(&body).map_err(Refusal::BadCall)?;
        let (reply, answer) = oneshot::channel();
        let caller = Caller {
            reply,
            _permit: permit,
        };
        // Sending fails only if the session has ended. The caller is dropped then, which cancels the answer.
        self.calls.send(ReceivedCall { call, caller }).await.ok();
        Ok(answer.await.unwrap_or_else(|_| {
            Answer::error(
                "cancelled",
                "the call was cancelled because the session has ended",
            )
        }))
    }
}

enum Route {
    Tools,
    Call,
}

fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

async fn read(body: &mut Incoming, limit: usize) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    if body.size_hint().lower() > limit as u64 {
        return Err(Refusal::TooLarge(limit));
    }
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Refusal::BrokenBody)?.into_data() else {
            continue;
        };
        if data.len() > limit - bytes.len() {
            return Err(Refusal::TooLarge(limit));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// Reads and discards the rest of a refused HTTP request, up to [`MAX_DRAINED_BYTES`] and [`READ_TIMEOUT`].
async fn drain(body: &mut Incoming) {
    let drained = async {
        let mut remaining = MAX_DRAINED_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, Bytes::len);
            match remaining.checked_sub(size) {
                Some(rest) => remaining = rest,
                None => return,
            }
        }
    };
    time::timeout(READ_TIMEOUT, drained).await.ok();
}
