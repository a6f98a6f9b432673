//! A proxy before the server that does harm to commits, or stands for a long way there.

use sqlx::postgres::PgConnectOptions;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// What happens to the next commit, or the next claim of due runs, which commits by itself.
#[derive(Clone, Copy)]
pub(crate) enum Harm {
    /// The server commits, and its answer never arrives.
    LosesAnswer = 1,
    /// The server is not asked to commit, as the connection is cut before.
    CutsBefore = 2,
    /// The connection is cut once the server was asked, which it does all the same.
    CutsAfter = 4,
    /// The connection is cut for the client, and what it asked gets to the server much later.
    ComesLate = 5,
    /// The server commits, and nothing is heard of it any more over this connection, which stays open.
    SwallowsAnswer = 3,
}

/// Passes on what it gets, but for commits that it was told to harm.
pub(crate) struct Proxy {
    port: u16,
    next: Arc<AtomicU8>,
    late: Late,
    silent: watch::Sender<()>,
}

/// What has not got to the server yet, and the connection that it is for.
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

    /// Does no harm, but everything takes so long to get through, each way.
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

    /// The connection string with this between.
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

    /// From now on nothing passes over the connections that there are, and nobody is told.
    pub(crate) fn fall_silent(&self) {
        self.silent.send_replace(());
    }

    /// Lets through what comes late, and waits until the server answers or ends the connection.
    pub(crate) async fn let_through(&self) {
        let (request, mut server) = self.late.lock().unwrap().take().unwrap();
        // The server may have ended it already, and then it is not even sent.
        if server.write_all(&request).await.is_ok() && server.shutdown().await.is_ok() {
            let _ended = server.read_to_end(&mut Vec::new()).await;
        }
    }

    /// Whether the harm was done.
    pub(crate) fn is_done(&self) -> bool {
        self.next.load(Ordering::SeqCst) == 0
    }
}

/// Listens, connects each who comes with the server, and says on which port.
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

/// Passes on what it reads, each piece so much later.
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
                    assert!(answer.is_ok_and(|size| size > 0), "the server says that it has committed");
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
