//! The transport of an MCP server over standard input and output.

use super::McpService;
use super::http::MAX_REQUEST_BYTES;
use crate::clock::within;
use crate::error::{BoxError, excerpt};
use crate::mcp::McpError;
use crate::mcp::error::opaque;
use rmcp::ServiceExt as _;
use rmcp::transport::async_rw::AsyncRwTransport;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::select;
use tokio_util::sync::CancellationToken;

/// Time for the calls in flight to end after the end of the input. Clients kill the server 2 seconds after the end of the input.
const GRACE: Duration = Duration::from_secs(1);

/// Time to cancel the runs of the calls that have not ended.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

impl McpService {
    /// Serves one client over the standard input and output of this process, until the client closes the input. Then the calls in flight have
    /// one second to end, and the runs of the others are cancelled unless they have an idempotency key.
    ///
    /// Nothing else may write to the standard output. Logs must go to the standard error. A message of more than 4 MiB is discarded.
    ///
    /// # Errors
    /// [`McpError::Connect`] if the handshake fails.
    pub async fn serve_stdio(self) -> Result<(), McpError> {
        let (input, output) = rmcp::transport::stdio();
        self.serve(input, output).await
    }

    async fn serve(
        self,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<(), McpError> {
        let name = excerpt(&self.shared.name, 80).into_owned();
        let failed = |source: BoxError| McpError::Connect {
            server: name.clone(),
            source,
        };
        let shared = self.shared.clone();
        let (end, stop) = (CancellationToken::new(), CancellationToken::new());
        let input = Input {
            input,
            end: end.clone(),
        };
        let transport = AsyncRwTransport::new_server(input, output);
        let transport = transport.with_max_line_length(MAX_REQUEST_BYTES);
        let serving = self.serve_with_ct(transport, stop.clone()).await;
        let serving = serving.map_err(|error| failed(opaque(&error)))?;
        let mut served = pin!(serving.waiting());
        let ended = async {
            end.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        let quit = select! {
            quit = &mut served => Some(quit),
            () = ended => {
                stop.cancel();
                // A client that does not read its output must not delay the end.
                within(CANCEL_TIMEOUT, served).await
            }
        };
        // The process may end after this function, so it waits until the runs are cancelled.
        within(CANCEL_TIMEOUT, shared.calls.acquire_many(shared.max_calls)).await;
        match quit {
            Some(Err(error)) => Err(failed(opaque(&error))),
            Some(Ok(_)) | None => Ok(()),
        }
    }
}

/// An input that reports its end.
struct Input<R> {
    input: R,
    end: CancellationToken,
}

impl<R: AsyncRead + Unpin> AsyncRead for Input<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.input).poll_read(context, buffer);
        let is_end = match &polled {
            Poll::Ready(Ok(())) => buffer.filled().len() == before && buffer.remaining() > 0,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if is_end {
            self.end.cancel();
        }
        polled
    }
}
