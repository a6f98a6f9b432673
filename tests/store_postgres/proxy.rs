//! A proxy before the server that does harm to commits.

use sqlx::postgres::PgConnectOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What happens to the next commit.
#[derive(Clone, Copy)]
pub(crate) enum Harm {
    /// The server commits, and its answer never arrives.
    LosesAnswer = 1,
    /// The server is not asked to commit, as the connection is cut before.
    CutsBefore = 2,
}

/// Passes on what it gets, but for commits that it was told to harm.
pub(crate) struct Proxy {
    port: u16,
    next: Arc<AtomicU8>,
}

impl Proxy {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let next = Arc::new(AtomicU8::new(0));
        let options: PgConnectOptions = crate::server::url().parse().unwrap();
        let server = (options.get_host().to_owned(), options.get_port());
        let harm = Arc::clone(&next);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server.clone()).await.unwrap();
                tokio::spawn(pass(client, server, Arc::clone(&harm)));
            }
        });
        Self { port, next }
    }

    /// The connection string with this between.
    pub(crate) fn url(&self) -> String {
        let url = crate::server::url();
        let options: PgConnectOptions = url.parse().unwrap();
        url.replace(
            &format!(":{}/", options.get_port()),
            &format!(":{}/", self.port),
        )
    }

    pub(crate) fn harm_next(&self, harm: Harm) {
        self.next.store(harm as u8, Ordering::SeqCst);
    }

    /// Whether the harm was done.
    pub(crate) fn is_done(&self) -> bool {
        self.next.load(Ordering::SeqCst) == 0
    }
}

async fn pass(mut client: TcpStream, mut server: TcpStream, next: Arc<AtomicU8>) {
    let (mut asked, mut answered) = ([0; 64 << 10], [0; 64 << 10]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Some(request) = read.ok().and_then(|size| asked.get(..size)) else { return };
                if request.is_empty() {
                    return;
                }
                let is_commit = request.windows(6).any(|word| word == b"COMMIT");
                let harm = if is_commit { next.swap(0, Ordering::SeqCst) } else { 0 };
                if harm == Harm::CutsBefore as u8 {
                    return;
                }
                server.write_all(request).await.unwrap();
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
