//! A proxy of the server that counts round trips.

use sqlx::postgres::PgConnectOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A proxy that forwards all data and counts round trips. Notifications of other processes are not counted, because no client waits for
/// them.
pub(crate) struct Counter {
    port: u16,
    asked: Arc<AtomicUsize>,
}

impl Counter {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let options: PgConnectOptions = crate::postgres::server::url().parse().unwrap();
        let server = (options.get_host().to_owned(), options.get_port());
        let counting = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server.clone()).await.unwrap();
                tokio::spawn(pass(client, server, Arc::clone(&counting)));
            }
        });
        Self { port, asked }
    }

    /// Returns the connection string of the proxy.
    pub(crate) fn url(&self) -> String {
        let url = crate::postgres::server::url();
        let options: PgConnectOptions = url.parse().unwrap();
        url.replace(
            &format!(":{}/", options.get_port()),
            &format!(":{}/", self.port),
        )
    }

    /// Returns the number of round trips since the last call.
    pub(crate) fn take(&self) -> usize {
        self.asked.swap(0, Ordering::SeqCst)
    }
}

async fn pass(mut client: TcpStream, mut server: TcpStream, asked: Arc<AtomicUsize>) {
    let (mut from_client, mut from_server) = ([0; 64 << 10], [0; 64 << 10]);
    let mut messages = Messages::default();
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let Some(request) = read.ok().and_then(|size| from_client.get(..size)) else { return };
                asked.fetch_add(messages.count(request), Ordering::SeqCst);
                if request.is_empty() || server.write_all(request).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut from_server) => {
                let Some(answer) = read.ok().and_then(|size| from_server.get(..size)) else { return };
                if answer.is_empty() || client.write_all(answer).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The messages of a client.
#[derive(Default)]
struct Messages {
    /// Bytes of an incomplete message.
    rest: Vec<u8>,
    has_started: bool,
}

impl Messages {
    /// Returns the number of messages for whose answers the client waits.
    fn count(&mut self, more: &[u8]) -> usize {
        self.rest.extend_from_slice(more);
        let mut count = 0;
        while let Some((kind, body)) = self.next() {
            count += usize::from(is_counted(kind, &body));
        }
        count
    }

    fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        /// The request for TLS, which precedes the first real message.
        const ASKS_FOR_TLS: [u8; 4] = 80_877_103_u32.to_be_bytes();
        // The first messages have no type byte.
        let first = usize::from(self.has_started);
        let length: [u8; 4] = self.rest.get(first..first + 4)?.try_into().unwrap();
        let end = first + u32::from_be_bytes(length) as usize;
        let message: Vec<u8> = self.rest.get(..end)?.to_vec();
        self.rest.drain(..end);
        if self.has_started {
            return Some((message[0], message[5..].to_vec()));
        }
        self.has_started = message[4..8] != ASKS_FOR_TLS;
        Some((0, Vec::new()))
    }
}

/// Returns `true` if the client waits for the answer to a message: a query, or a `Sync` message.
fn is_counted(kind: u8, body: &[u8]) -> bool {
    let tells = body.windows(9).any(|word| word == b"pg_notify");
    kind == b'S' || (kind == b'Q' && !tells)
}
