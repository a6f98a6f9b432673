//! TCP proxy that simulates a network with a long round trip.

use std::io;
use std::net::{Ipv4Addr, TcpListener as StdListener};
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Starts a proxy to `server` and returns its port on 127.0.0.1. The proxy delivers all bytes in order, each at least `delay`
/// after its arrival, in both directions. It limits no bandwidth.
///
/// The proxy has its own thread and runs until the process ends. Timers of tokio have a resolution of one millisecond, so
/// the real delay is up to one millisecond longer: measure a round trip and report it.
pub(crate) fn start(server: (String, u16), delay: Duration) -> io::Result<u16> {
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    thread::spawn(move || tokio.block_on(accept(listener, server, delay)));
    Ok(port)
}

async fn accept(listener: StdListener, server: (String, u16), delay: Duration) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (client, _) = listener.accept().await?;
        let server = server.clone();
        tokio::spawn(async move {
            let server = TcpStream::connect(server).await?;
            // Nagle's algorithm would add another delay.
            client.set_nodelay(true)?;
            server.set_nodelay(true)?;
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::try_join!(
                forward(from_client, to_server, delay),
                forward(from_server, to_client, delay),
            )
        });
    }
}

/// Forwards one direction of a connection until it ends. Reading never waits for a delayed write, so pipelined messages
/// share one delay.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    delay: Duration,
) -> io::Result<()> {
    let (sender, mut delayed) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        loop {
            let mut bytes = Vec::with_capacity(16 << 10);
            let is_end = from.read_buf(&mut bytes).await? == 0;
            if is_end || sender.send((Instant::now() + delay, bytes)).is_err() {
                return Ok(());
            }
        }
    };
    let write = async move {
        while let Some((due, bytes)) = delayed.recv().await {
            sleep_until(due).await;
            to.write_all(&bytes).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(drop)
}
