//! A proxy of the server that disturbs commits or adds latency.

use sqlx::postgres::PgConnectOptions;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// The disturbance of the next commit, or of the next claim of due runs, which commits by itself.
#[derive(Clone, Copy)]
pub(crate) enum Harm {
    /// The server commits, and the connection is closed before its answer arrives.
    LosesAnswer = 1,
    /// The connection is closed before the request to commit is sent.
    CutsBefore = 2,
    /// The connection is closed after the request to commit was sent. The server commits anyway.
    CutsAfter = 4,
    /// The connection to the client is closed, and the request reaches the server much later.
    ComesLate = 5,
    /// The server commits, and its answer never arrives on the connection, which stays open.
    SwallowsAnswer = 3,
}

/// A proxy that forwards all data, except for disturbed commits.
pub(crate) struct Proxy {
    port: u16,
    next: Arc<AtomicU8>,
    late: Late,
    silent: watch::Sender<()>,
}

/// The delayed request, and its connection to the server.
type Late = Arc<Mutex<Option<(Vec<u8>, TcpStream)>>>;

impl Proxy {
    pub(crate) async fn start() -> Self {
        let (next, silent) = (Arc::new(AtomicU8::new(0)), watch::Sender::default());
        let late = Late::default();
        let (harm, silence, kept) = (Arc::clone(&next), silent.clone(), Arc::clone(&late));
        let port = accept(move |client, server| {
            let (harm, mut silence) = (Arc::clone(&harm), silence.subscribe());
            let late = Arc::clone(&kept);
            tokio::spawn(async move {
                let mut passing = pin!(pass(client, server, harm, late));
                tokio::select! {
                    () = &mut passing => {}
                    _ = silence.changed() => std::future::pending().await,
                }
            });
        });
        let port = port.await;
        Self {
            port,
            next,
            late,
            silent,
        }
    }

    /// Starts a proxy without disturbances that delays all data in each direction.
    pub(crate) async fn far(delay: Duration) -> Self {
        let port = accept(move |client, server| {
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::spawn(carry(from_client, to_server, delay));
            tokio::spawn(carry(from_server, to_client, delay));
        });
        let port = port.await;
        let next = Arc::new(AtomicU8::new(0));
        Self {
            port,
            next,
            late: Late::default(),
            silent: watch::Sender::default(),
        }
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

    pub(crate) fn harm_next(&self, harm: Harm) {
        self.next.store(harm as u8, Ordering::SeqCst);
    }

    /// Stops forwarding on all existing connections without closing them.
    pub(crate) fn fall_silent(&self) {
        self.silent.send_replace(());
    }

    /// Forwards the delayed request, and waits until the server answers or closes the connection.
    pub(crate) async fn let_through(&self) {
        let (request, mut server) = self.late.lock().unwrap().take().unwrap();
        // The server may have closed the connection already. Sending fails in that case.
        if server.write_all(&request).await.is_ok() && server.shutdown().await.is_ok() {
            let _ended = server.read_to_end(&mut Vec::new()).await;
        }
    }

    /// Returns `true` if the disturbance has occurred.
    pub(crate) fn is_done(&self) -> bool {
        self.next.load(Ordering::SeqCst) == 0
    }
}

/// Starts a listener and connects each client with the server. Returns the port.
async fn accept(pass_on: impl Fn(TcpStream, TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let options: PgConnectOptions = crate::postgres::server::url().parse().unwrap();
    let address = (options.get_host().to_owned(), options.get_port());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(address.clone()).await.unwrap();
            server.set_nodelay(true).unwrap();
            client.set_nodelay(true).unwrap();
            pass_on(client, server);
        }
    });
    port
}

/// Forwards data in pieces, each after a delay.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin + Send + 'static,
    delay: Duration,
) {
    const UNDERWAY: usize = 1_024;
    let (sender, mut underway) = mpsc::channel::<(Instant, Vec<u8>)>(UNDERWAY);
    tokio::spawn(async move {
        while let Some((due, piece)) = underway.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = [0; 16 << 10];
    while let Ok(size) = from.read(&mut buffer).await
        && size > 0
    {
        let piece = (Instant::now() + delay, buffer[..size].to_vec());
        if sender.send(piece).await.is_err() {
            return;
        }
    }
}

async fn pass(mut client: TcpStream, mut server: TcpStream, next: Arc<AtomicU8>, late: Late) {
    let (mut asked, mut answered) = ([0; 64 << 10], [0; 64 << 10]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Some(request) = read.ok().and_then(|size| asked.get(..size)) else { return };
                if request.is_empty() {
                    return;
                }
                let says = |text: &[u8]| request.windows(text.len()).any(|word| word == text);
                let is_commit = says(b"COMMIT") || says(b"EXECUTE ux_lease");
                let harm = if is_commit { next.swap(0, Ordering::SeqCst) } else { 0 };
                if harm == Harm::CutsBefore as u8 {
                    return;
                }
                if harm == Harm::ComesLate as u8 {
                    *late.lock().unwrap() = Some((request.to_vec(), server));
                    return;
                }
                server.write_all(request).await.unwrap();
                if harm == Harm::CutsAfter as u8 {
                    return;
                }
                if harm == Harm::SwallowsAnswer as u8 {
                    return std::future::pending().await;
                }
                if harm == Harm::LosesAnswer as u8 {
                    let answer = server.read(&mut answered).await;
                    assert!(answer.is_ok_and(|size| size > 0), "the server must confirm the commit");
                    return;
                }
            }
            read = server.read(&mut answered) => {
                let Some(answer) = read.ok().and_then(|size| answered.get(..size)) else { return };
                if answer.is_empty() || client.write_all(answer).await.is_err() {
                    return;
                }
            }
        }
    }
}
