//! The event stream: frames without IDs by default, pings, and no replay.

use super::weather::Act;
use super::{Request, Server};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

/// A function that returns the parts of a flood one by one, and `None` at its end.
pub(crate) type Flood = fn(usize) -> Option<Vec<u8>>;

/// The behaviour of the streams.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent faults, each set by name"
)]
pub(crate) struct Ways {
    /// If `true`, streams send pings but no events.
    pub(crate) is_deaf: bool,
    /// If `true`, streams send nothing, not even pings.
    pub(crate) is_silent: bool,
    /// If `true`, streams send only bytes that never complete a frame.
    pub(crate) drips: bool,
    /// Number of times that each frame is sent.
    pub(crate) copies: usize,
    /// If `true`, frames have IDs.
    pub(crate) has_ids: bool,
    /// Text that is sent before each frame.
    pub(crate) noise: &'static str,
    /// Number of bytes per write.
    pub(crate) piece: usize,
    /// HTTP status of a new stream.
    pub(crate) status: u16,
    /// The flood at the start of the next stream.
    pub(crate) flood: Option<Flood>,
    /// Number of flood parts that were sent.
    pub(crate) flooded: usize,
    /// Interval between pings.
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

/// Carries out these actions on a stream. Returns `None` if the stream is closed.
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
