//! Proxy between all processes of a campaign and PostgreSQL. It drops the answers to commits, cuts connections, and delays
//! traffic.

use crate::oracle::{Harm, Oracle, Record};
use crate::{BoxError, say};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

/// End of a client's commit statement, and of the server's answer to it: both end with a NUL byte.
const COMMIT: &[u8] = b"COMMIT\0";

/// Start of the statement that claims runs, which commits itself.
const CLAIM: &[u8] = b"EXECUTE ux_lease";

/// A proxy in front of a server.
pub struct Proxy {
    /// Port on loopback.
    pub port: u16,
    plan: Arc<Plan>,
}

struct Plan {
    oracle: Oracle,
    /// Number of answers to commits and claims that are still to be dropped.
    to_lose: AtomicU64,
    /// Delay of all traffic, in milliseconds.
    delay: AtomicU64,
    /// Changes when all connections must be cut.
    cut: watch::Sender<u64>,
}

impl Proxy {
    /// Starts a proxy for the server at a port on loopback.
    pub async fn start(server: u16, oracle: Oracle) -> Result<Self, BoxError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let plan = Arc::new(Plan {
            oracle,
            to_lose: AtomicU64::new(0),
            delay: AtomicU64::new(0),
            cut: watch::Sender::new(0),
        });
        let shared = Arc::clone(&plan);
        // The task ends with the program, like all its connections.
        drop(tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else {
                    sleep(Duration::from_millis(10)).await;
                    continue;
                };
                drop(tokio::spawn(serve(client, server, Arc::clone(&shared))));
            }
        }));
        Ok(Self { port, plan })
    }

    /// Drops the answer to one more commit or claim.
    pub fn lose_an_answer(&self) {
        self.plan.to_lose.fetch_add(1, Ordering::Relaxed);
    }

    /// Cuts all current connections.
    pub fn cut(&self) -> Result<(), BoxError> {
        self.plan.cut.send_modify(|times| *times += 1);
        self.plan.oracle.note(&Record::Harmed(Harm::Cut))
    }

    /// Delays all traffic by a number of milliseconds each way, until the next call.
    pub fn delay(&self, millis: u64) -> Result<(), BoxError> {
        self.plan.delay.store(millis, Ordering::Relaxed);
        if millis > 0 {
            self.plan.oracle.note(&Record::Harmed(Harm::Slow))?;
        }
        Ok(())
    }

    /// Stops the loss of answers and the delay.
    pub fn rest(&self) {
        self.plan.to_lose.store(0, Ordering::Relaxed);
        self.plan.delay.store(0, Ordering::Relaxed);
    }
}

impl Plan {
    /// Returns `true` if the answer to the next commit or claim must be dropped, and counts it.
    fn takes_one(&self) -> bool {
        let fewer = |left: u64| left.checked_sub(1);
        let taken = self
            .to_lose
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        taken.is_ok()
    }

    async fn hold_up(&self) {
        let millis = self.delay.load(Ordering::Relaxed);
        if millis > 0 {
            sleep(Duration::from_millis(millis)).await;
        }
    }
}

/// Serves one connection. Client and server are disconnected when this future ends.
async fn serve(client: TcpStream, server: u16, plan: Arc<Plan>) {
    let mut cut = plan.cut.subscribe();
    // While the server is down, the proxy closes the client's connection as well.
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else {
        return;
    };
    tokio::select! {
        // If one side disconnects, the other side is disconnected too.
        passed = pass(client, server, &plan) => drop(passed),
        _ = cut.changed() => {}
    }
}

async fn pass(mut client: TcpStream, mut server: TcpStream, plan: &Plan) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        tokio::select! {
            size = client.read(&mut asked) => {
                let request = asked.get(..size?).unwrap_or_default();
                if request.is_empty() {
                    return Ok(());
                }
                plan.hold_up().await;
                let is_claim = has(request, CLAIM);
                let loses = (is_claim || has(request, COMMIT)) && plan.takes_one();
                server.write_all(request).await?;
                if !loses {
                    continue;
                }
                let size = server.read(&mut answered).await?;
                let answer = answered.get(..size).unwrap_or_default();
                if is_claim || has(answer, COMMIT) {
                    if let Err(error) = plan.oracle.note(&Record::Harmed(Harm::AnswerLost)) {
                        say(format_args!("cannot write to the oracle file: {error}"));
                    }
                    return Ok(());
                }
                // The server did not commit, so the answer is passed on and another one will be dropped.
                plan.to_lose.fetch_add(1, Ordering::Relaxed);
                client.write_all(answer).await?;
            }
            size = server.read(&mut answered) => {
                let answer = answered.get(..size?).unwrap_or_default();
                if answer.is_empty() {
                    return Ok(());
                }
                plan.hold_up().await;
                client.write_all(answer).await?;
            }
        }
    }
}

fn has(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|found| found == word)
}
