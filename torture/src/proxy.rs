//! What all processes of a campaign reach PostgreSQL through: it loses the answers of commits, cuts connections, and is
//! slow.

use crate::oracle::{Harm, Oracle, Record};
use crate::{BoxError, say};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

/// How a client asks to commit, and how the server says that it has: both are followed by the end of the text.
const COMMIT: &[u8] = b"COMMIT\0";

/// A port before the server.
pub struct Proxy {
    /// Where it listens, on loopback.
    pub port: u16,
    plan: Arc<Plan>,
}

struct Plan {
    oracle: Oracle,
    /// Of so many commits the answer is still to be lost.
    to_lose: AtomicU64,
    /// How long everything is held up, in milliseconds.
    delay: AtomicU64,
    /// Changes when all connections are to be cut.
    cut: watch::Sender<u64>,
}

impl Proxy {
    /// Listens before a server.
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
        // It ends with the program, like all that goes through it.
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

    /// Has the answer of one more commit lost.
    pub fn lose_an_answer(&self) {
        self.plan.to_lose.fetch_add(1, Ordering::Relaxed);
    }

    /// Cuts all connections there are.
    pub fn cut(&self) -> Result<(), BoxError> {
        self.plan.cut.send_modify(|times| *times += 1);
        self.plan.oracle.note(&Record::Harmed(Harm::Cut))
    }

    /// Holds up everything by so many milliseconds each way, until told otherwise.
    pub fn delay(&self, millis: u64) -> Result<(), BoxError> {
        self.plan.delay.store(millis, Ordering::Relaxed);
        if millis > 0 {
            self.plan.oracle.note(&Record::Harmed(Harm::Slow))?;
        }
        Ok(())
    }

    /// Does no harm any more.
    pub fn rest(&self) {
        self.plan.to_lose.store(0, Ordering::Relaxed);
        self.plan.delay.store(0, Ordering::Relaxed);
    }
}

impl Plan {
    /// Whether the answer of a commit that is about to be asked for is to be lost.
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

/// Both are cut when this ends, for whatever reason.
async fn serve(client: TcpStream, server: u16, plan: Arc<Plan>) {
    let mut cut = plan.cut.subscribe();
    // A server that is down refuses its clients, who are refused likewise.
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else {
        return;
    };
    tokio::select! {
        // What the one side does when the other is gone is to go as well.
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
                let loses = has(request, COMMIT) && plan.takes_one();
                server.write_all(request).await?;
                if !loses {
                    continue;
                }
                let size = server.read(&mut answered).await?;
                let answer = answered.get(..size).unwrap_or_default();
                if has(answer, COMMIT) {
                    if let Err(error) = plan.oracle.note(&Record::Harmed(Harm::AnswerLost)) {
                        say(format_args!("the oracle cannot be written to: {error}"));
                    }
                    return Ok(());
                }
                // It was not committed, so nothing is lost yet.
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
