//! Settings of a connection to an MCP server: its transport and limits.

use crate::error::BoxError;
use crate::scrub::without_credentials;
use crate::secret::Secret;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Settings of a connection to an MCP server.
pub(super) struct Settings {
    pub(super) name: String,
    pub(super) transport: Transport,
    pub(super) connect_timeout: Duration,
    pub(super) call_timeout: Duration,
    pub(super) max_output_bytes: usize,
    pub(super) holds_new_tools: bool,
    /// The names of the only tools that are used, or `None` for all.
    pub(super) only: Option<Vec<String>>,
}

impl Settings {
    /// Returns the default settings of a server with this name and transport.
    pub(super) fn new(name: String, transport: Transport) -> Self {
        Self {
            name,
            transport,
            connect_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_secs(60),
            max_output_bytes: 128 << 10,
            holds_new_tools: false,
            only: None,
        }
    }

    /// Returns `true` if the tool with this name on the server is used.
    pub(super) fn uses(&self, tool: &str) -> bool {
        let mut only = self.only.iter().flatten();
        self.only.is_none() || only.any(|used| used == tool)
    }
}

pub(super) enum Transport {
    Stdio(StdioCommand),
    Http(HttpEndpoint),
}

/// The command that starts a program as an MCP server.
///
/// The program inherits the environment variables `PATH`, `HOME` and `LANG` of this process, and has those of [`env`](Self::env). It
/// is the leader of a process group, which is killed as a whole when the connection ends. Its standard error is logged at the DEBUG
/// level: the first 64 KiB, in lines of up to 1 KiB, without the values of `env`.
///
/// # Examples
/// ```
/// use universal_executor::mcp::StdioCommand;
///
/// let command = StdioCommand::new("uvx").args(["mcp-server-time"]).env("API_KEY", "k-1234");
/// assert!(!format!("{command:?}").contains("k-1234"));
/// ```
#[derive(Clone)]
pub struct StdioCommand {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) current_dir: Option<PathBuf>,
}

impl StdioCommand {
    /// Creates a command from the path of a program, or from a name that is searched in `PATH`.
    #[must_use]
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            current_dir: None,
        }
    }

    /// Adds arguments of the program. Other users of the machine can see them: pass secrets with [`env`](Self::env).
    #[must_use]
    pub fn args<T: Into<OsString>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable of the program. Neither logs nor errors contain its value.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory of the program. Defaults to the one of this process.
    #[must_use]
    pub fn current_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.current_dir = Some(folder.into());
        self
    }
}

impl fmt::Debug for StdioCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("StdioCommand")
            .field("program", &self.program)
            .field("args", &self.args)
            .field("env", &names)
            .field("current_dir", &self.current_dir)
            .finish()
    }
}

/// The URL of an MCP server, with the token of its requests.
///
/// # Examples
/// ```
/// use universal_executor::Secret;
/// use universal_executor::mcp::HttpEndpoint;
///
/// let endpoint = HttpEndpoint::new("https://mcp.example.com/mcp").token(Secret::new("t-1234"));
/// assert!(!format!("{endpoint:?}").contains("t-1234"));
/// ```
#[derive(Clone)]
pub struct HttpEndpoint {
    pub(super) url: String,
    pub(super) token: Option<TokenSource>,
}

/// A function that returns the token for the next request.
pub(super) type TokenSource =
    Arc<dyn Fn() -> BoxFuture<'static, Result<Secret, BoxError>> + Send + Sync>;

impl HttpEndpoint {
    /// Creates the endpoint of an MCP server from its URL, without a token.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: None,
        }
    }

    /// Sets the bearer token of each request. Defaults to no token.
    #[must_use]
    pub fn token(self, token: Secret) -> Self {
        self.token_from(move || {
            let token = token.clone();
            async { Ok(token) }
        })
    }

    /// Sets a function that returns the bearer token before each request, for example an OAuth access token that it refreshes.
    ///
    /// An error of the function fails the request.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Secret;
    /// use universal_executor::mcp::HttpEndpoint;
    ///
    /// let endpoint = HttpEndpoint::new("https://mcp.example.com/mcp").token_from(|| async {
    ///     let token = std::env::var("MCP_TOKEN")?; // or ask your OAuth client
    ///     Ok(Secret::new(token))
    /// });
    /// ```
    #[must_use]
    pub fn token_from<F, T>(mut self, function: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Secret, BoxError>> + Send + 'static,
    {
        self.token = Some(Arc::new(move || function().boxed()));
        self
    }
}

impl fmt::Debug for HttpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpEndpoint")
            .field("url", &without_credentials(&self.url))
            .field("has_token", &self.token.is_some())
            .finish()
    }
}
