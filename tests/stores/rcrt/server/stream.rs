//! The stream of events: bare frames, pings, no ids unless told otherwise, and no replay.

use super::weather::Act;
use super::{Request, Server};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

/// What a stream says, part by part until there is none.
pub(crate) type Flood = fn(usize) -> Option<Vec<u8>>;

/// How the server streams.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent faults, each set by name"
)]
pub(crate) struct Ways {
    /// Pings go on, and events do not.
    pub(crate) is_deaf: bool,
    /// Nothing is sent, not even pings.
    pub(crate) is_silent: bool,
    /// Bytes are sent that never complete a frame, and nothing else.
    pub(crate) drips: bool,
    /// How often each frame is sent.
    pub(crate) copies: usize,
    /// Frames have ids.
    pub(crate) has_ids: bool,
    /// What goes before every frame.
    pub(crate) noise: &'static str,
    /// How many bytes are written at a time.
    pub(crate) piece: usize,
    /// The status that a stream is opened with.
    pub(crate) status: u16,
    /// What the next stream begins with.
    pub(crate) flood: Option<Flood>,
    /// How many parts of it were sent.
    pub(crate) flooded: usize,
    /// Interval between two pings.
    pub(crate) ping_every: Duration,
}

impl Default for Ways {
    fn default() -> Self {
        Self {
            is_deaf: false,
            is_silent: false,
            drips: false,
            copies: 1,
            has_ids: false,
            noise: "",
            piece: 64 << 10,
            status: 200,
            flood: None,
            flooded: 0,
            ping_every: Duration::from_millis(20),
        }
    }
}

const PING: &str = r#"{"type":"ping","ts":"2026-11-21T20:33:37Z"}"#;

impl Server {
    pub(super) async fn stream(
        &self,
        writer: &mut (impl AsyncWrite + Unpin),
        _: &Request,
        owner: &str,
    ) -> Option<()> {
        let mut frames = self.frames.subscribe();
        let status = self.lock().stream.status;
        let head = format!(
            "HTTP/1.1 {status} Some\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        );
        writer.write_all(head.as_bytes()).await.ok()?;
        if status != 200 {
            return None;
        }
        self.flood(writer).await?;
        let (mut ping, mut number) = (Instant::now(), 0);
        let mut held = Vec::new();
        loop {
            let frame = tokio::select! {
                biased;
                () = sleep_until(ping) => {
                    ping = Instant::now() + self.lock().stream.ping_every;
                    PING.to_owned()
                }
                frame = frames.recv() => match frame.ok()? {
                    (_, frame) if frame.is_empty() => return None,
                    (whose, frame) if whose == owner => frame,
                    _ => continue,
                },
            };
            let (is_silent, drips, has_ids, noise, piece) = {
                let state = self.lock();
                let ways = &state.stream;
                (
                    ways.is_silent,
                    ways.drips,
                    ways.has_ids,
                    ways.noise,
                    ways.piece,
                )
            };
            if drips {
                writer.write_all(b"x").await.ok()?;
            }
            if is_silent || drips {
                continue;
            }
            number += 1;
            let id = if has_ids {
                format!("id: {number}\n")
            } else {
                String::new()
            };
            let is_ping = frame == PING;
            let frame = format!("{noise}{id}data: {frame}\n\n");
            let acts = self.lock().weathered(frame, is_ping, piece, &mut held);
            play(writer, acts).await?;
        }
    }

    async fn flood(&self, writer: &mut (impl AsyncWrite + Unpin)) -> Option<()> {
        let Some(flood) = self.lock().stream.flood.take() else {
            return Some(());
        };
        let mut sent = 0;
        while let Some(part) = flood(sent) {
            writer.write_all(&part).await.ok()?;
            sent += 1;
            self.lock().stream.flooded = sent;
        }
        Some(())
    }
}

/// Does to a stream what it is told, unless that ends it.
async fn play(writer: &mut (impl AsyncWrite + Unpin), acts: Vec<Act>) -> Option<()> {
    for act in acts {
        let Act::Write(bytes, piece) = act else {
            return None;
        };
        for piece in bytes.chunks(piece) {
            writer.write_all(piece).await.ok()?;
            writer.flush().await.ok()?;
        }
    }
    Some(())
}
