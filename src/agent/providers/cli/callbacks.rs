//! The HTTP server on loopback through which an agent's program calls its tools, and the server's connections. The server and its
//! connections make progress only while they are polled.

use super::refusal::MAX_CALLS;
use super::service::{ReceivedCall, Service};
use super::token::Token;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::select;
use tokio::sync::mpsc;

/// Maximum number of open HTTP connections of one agent program. Half of the connections are for tool calls, the other half for requests
/// that are refused or still being read.
const MAX_CONNECTIONS: usize = 2 * MAX_CALLS;

/// The HTTP server on loopback through which one agent program calls its tools. Dropping the server closes its port and all connections.
pub(super) struct Callbacks {
    url: String,
    listener: TcpListener,
    connections: FuturesUnordered<BoxFuture<'static, ()>>,
    service: Arc<Service>,
    calls: mpsc::Receiver<ReceivedCall>,
}

impl Callbacks {
    pub(super) async fn open(
        token: Token,
        tools: Vec<u8>,
        max_call_bytes: usize,
    ) -> io::Result<Self> {
        // Each call has one of `MAX_CALLS` permits, so the channel is never full.
        let (sender, calls) = mpsc::channel(MAX_CALLS);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Self {
            url: format!("http://{}", listener.local_addr()?),
            listener,
            connections: FuturesUnordered::new(),
            service: Arc::new(Service::new(token, tools, sender, max_call_bytes)),
            calls,
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the next tool call of the agent's external program. Cancel safe.
    pub(super) async fn next(&mut self) -> io::Result<ReceivedCall> {
        loop {
            select! {
                Some(received) = self.calls.recv() => return Ok(received),
                accepted = self.listener.accept() => self.add(accepted)?,
                Some(()) = self.connections.next() => {}
            }
        }
    }

    /// Answers all received and future tool calls of the agent's external program as cancelled. Returns only if the port fails.
    pub(super) async fn cancel_calls(&mut self) {
        self.calls.close();
        while self.calls.try_recv().is_ok() {}
        loop {
            select! {
                accepted = self.listener.accept() => {
                    if self.add(accepted).is_err() {
                        return;
                    }
                }
                Some(()) = self.connections.next() => {}
            }
        }
    }

    fn add(&self, accepted: io::Result<(TcpStream, SocketAddr)>) -> io::Result<()> {
        match accepted {
            Ok((stream, _)) if self.connections.len() < MAX_CONNECTIONS => {
                let service = Arc::clone(&self.service);
                self.connections.push(service.serve(stream).boxed());
                Ok(())
            }
            // Above the maximum, dropping the stream closes the connection.
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                // The client disconnected; the port still works.
                io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset => Ok(()),
                _ => Err(error),
            },
        }
    }
}
