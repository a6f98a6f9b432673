mod callbacks;
mod error;
mod program;
mod program_run;
mod refusal;
mod service;
mod session;
mod token;
mod wire;

pub use error::{CliError, RawOutput};

use self::session::CliSession;
use self::wire::Saved;
use crate::agent::{Provider, ProviderSession, ProviderTask};
use crate::error::BoxError;
use crate::machine::ResultDelivery;
use crate::model::Json;
use async_trait::async_trait;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A [`Provider`] that runs a separate program as the agent: a coding agent for the command line, or a script (feature `cli`).
///
/// The program is started once for each run. It reads its task from standard input and calls tools over HTTP while it runs. If it exits
/// with code 0, its standard output is the answer.
///
/// Pass it to [`Agent::with_provider`](crate::agent::Agent::with_provider). The program runs
/// as the user of this process, so run programs that you do not trust in a sandbox.
///
/// ```
/// # #[cfg(unix)]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use universal_executor::agent::{ChatMessage, CliProvider, Provider, ProviderEvent, ProviderSession, ProviderTask};
///
/// let greeter = CliProvider::new("sh").args(["-c", "cat > /dev/null; echo Hello, Ann!"]);
/// let mut session = greeter.start(ProviderTask::new("run-1", vec![ChatMessage::user("I am Ann")])).await?;
///
/// let said = session.next().await?;
/// assert!(matches!(said, ProviderEvent::Finished { text, .. } if text == "Hello, Ann!"));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
///
/// # Input of the program
/// Standard input contains one JSON document:
///
/// | field | meaning |
/// |---|---|
/// | `run` | the run ID, the same in each attempt |
/// | `model`, `temperature` | the values in the definition, or `null` |
/// | `messages` | `[{"speaker": "system" or "user", "text": ".."}]`: instructions, context as data, then the user's text or the task |
/// | `tools` | `[{"name": "..", "description": "..", "inputSchema": {..}}]` |
/// | `response_schema` | `{"name": "..", "schema": {..}, "strict": true}` if the answer must be JSON, or `null` |
/// | `resumed` | `null` at the first start; later `{"runs": number of earlier starts, "last": the last answer or null, "calls": [..]}` |
/// | `message` | an additional message, for example the problem with the last answer, or `null` |
///
/// An image or a file in a message is described in the text. The program does not receive the bytes.
///
/// The [input guardrails](crate::agent::guardrail) check `messages` and `message` before the program is started. They do not check
/// requests that the program itself sends to a model.
///
/// The environment has the variables `PATH`, `HOME` and `LANG` of this process, the variables set with [`env`](Self::env), and:
///
/// | variable | meaning |
/// |---|---|
/// | `UX_CALLBACK_URL` | the base URL for tool calls: `http://127.0.0.1:` and a port, without a path |
/// | `UX_TOKEN` | the token that each request must contain, new for each start of the program |
/// | `UX_RUN` | the run ID |
///
/// # Tool calls
/// Each request has the header `Authorization: Bearer $UX_TOKEN`. Each connection serves one request.
///
/// - `POST $UX_CALLBACK_URL/v1/tool-calls` with `{"id": "..", "tool": "..", "arguments": {..}}` calls a tool. The response, with status
///   200, arrives when the call has a result: `{"status": "success", "output": ..}` or `{"status": "error", "code": "..", "error":
///   ".."}`. `arguments` may also be a string with the JSON as a model wrote it. The program chooses the ID, up to 256 bytes. A
///   call that is sent again with the same ID, tool and arguments is not executed again and gets the same response. So a
///   [resumed](Provider::resume) program may start from the beginning.
/// - `GET $UX_CALLBACK_URL/v1/tools` returns `{"tools": [..]}`, as in the task.
///
/// The server has no other paths and listens on loopback only. Other responses also have the form `{"status": "error", "code": "..",
/// "error": ".."}`: 400 for a request that cannot be read, 401 for a missing or wrong token, 404 for another path, 405 for another
/// method, 408 for a body that takes longer than ten seconds, 413 for a body that is [too large](Self::max_call_bytes), and 429 for more
/// than 64 concurrent calls. At most 128 connections are open; further ones are closed immediately. The server makes progress only while
/// [`ProviderSession::next`] is polled, because a session has no background task.
///
/// # End of the program
/// | event | [`ProviderSession::next`] |
/// |---|---|
/// | exit with code 0 | [`Finished`](crate::agent::ProviderEvent::Finished), without trailing line breaks; the usage is zero |
/// | exit with code 2, the usual code for wrong arguments | [`CliError::Ended`], [permanent](crate::permanent) |
/// | exit with another code, or by a signal | [`CliError::Ended`], retried |
/// | output over [`max_output_bytes`](Self::max_output_bytes) | [`CliError::TooLarge`], permanent; the program is killed |
/// | output that is not UTF-8 | [`CliError::NotText`] with the output, retried |
/// | failure to start | [`CliError::Start`], from [`start`](Provider::start); permanent if the program is missing or not executable |
///
/// [`ProviderSession::cancel`] answers the program's open calls with the code `cancelled`, waits for the [grace period](Self::grace), and
/// kills the program. Dropping a session kills the program immediately. The program receives no earlier signal. It is the leader of a
/// process group, and when it has ended in any way, all other processes of the group are killed. A call may be lost if the program exits
/// without waiting for the response.
///
/// A run that waits for a person or another agent cancels its program, and starts it again when no answer is pending. So a
/// program that receives `cancelled` should exit. A resumed program should send its calls again with the same IDs, by which the run
/// finds their results. A program that cannot repeat IDs finds the finished calls in `resumed.calls`: `{"id", "tool", "arguments",
/// "status"}` with `output`, or with `code` and `error`. A call with a new ID is a new call.
///
/// Standard error is logged with `tracing` at the level debug, line by line: the first 64 KiB, in lines of up to 1 KiB. The
/// last line is in [`CliError::Ended`], truncated to 256 bytes. In both, the token and all values set with [`env`](Self::env),
/// however short, are replaced by `[secret]`. Neither errors nor `Debug` contain these values.
#[derive(Clone)]
pub struct CliProvider {
    settings: Arc<Settings>,
}

#[derive(Clone)]
struct Settings {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    current_dir: Option<PathBuf>,
    max_output_bytes: usize,
    max_call_bytes: usize,
    grace: Duration,
}

impl CliProvider {
    /// Creates a provider that runs this external program as the agent: a path, or a name that is searched in `PATH`.
    ///
    /// The program is not checked here. A missing program is [`CliError::Start`] when a run starts.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::agent::{Agent, CliProvider};
    /// use universal_executor::{MemoryStore, Subscription};
    ///
    /// let coder = CliProvider::new("/usr/local/bin/coder")
    ///     .args(["--print", "--json"])
    ///     .env("API_KEY", "sk-1234")
    ///     .current_dir("/srv/work")
    ///     .grace(Duration::from_secs(10));
    /// let agent = Agent::with_provider("coder", coder)
    ///     .on(Subscription::trigger("task.v1"))
    ///     .bind(&MemoryStore::default());
    /// assert!(agent.is_ok());
    /// ```
    #[must_use]
    pub fn new(program: impl Into<OsString>) -> Self {
        let settings = Settings {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            current_dir: None,
            max_output_bytes: 1 << 20,
            max_call_bytes: 1 << 20,
            grace: Duration::from_secs(2),
        };
        Self {
            settings: Arc::new(settings),
        }
    }

    /// Adds a command-line argument of the agent's external program. All users of the machine can read arguments, so do not pass
    /// secrets here.
    ///
    /// Use [`env`](Self::env) for secrets. The task is not an argument: the program reads it from
    /// standard input.
    #[must_use]
    pub fn arg(self, argument: impl Into<OsString>) -> Self {
        self.args([argument])
    }

    /// Adds command-line arguments of the agent's external program. All users of the machine can read arguments, so do not pass
    /// secrets here.
    #[must_use]
    pub fn args(self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.with(|settings| {
            let arguments = arguments.into_iter().map(Into::into);
            settings.args.extend(arguments);
        })
    }

    /// Sets an environment variable of the agent's external program, for example an API key. The variables `UX_CALLBACK_URL`,
    /// `UX_TOKEN` and `UX_RUN` cannot be replaced.
    ///
    /// The variables `PATH`, `HOME` and `LANG` are inherited; all other variables of this process
    /// are not. The values are replaced by `[secret]` in logs and errors.
    #[must_use]
    pub fn env(self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.with(|settings| settings.env.push((name.into(), value.into())))
    }

    /// Sets the working directory of the agent's external program. Defaults to that of this process. With this setting, pass an
    /// absolute path of the program to [`new`](Self::new).
    ///
    /// A folder that does not exist is [`CliError::Start`] when a run starts.
    #[must_use]
    pub fn current_dir(self, folder: impl Into<PathBuf>) -> Self {
        self.with(|settings| settings.current_dir = Some(folder.into()))
    }

    /// Sets the maximum size in bytes of the answer from the agent's external program. Defaults to 1 MiB. The last answer is part
    /// of the session's saved state.
    ///
    /// A larger answer is [`CliError::TooLarge`], and the program is killed.
    #[must_use]
    pub fn max_output_bytes(self, limit: usize) -> Self {
        self.with(|settings| settings.max_output_bytes = limit)
    }

    /// Sets the maximum body size in bytes of one tool call from the agent's external program. Defaults to 1 MiB. The state
    /// machine of the run has a separate [limit](crate::machine::MachineLimits::item_bytes): a call above that limit gets an
    /// error result.
    ///
    /// The program receives the HTTP status 413 for a larger call.
    #[must_use]
    pub fn max_call_bytes(self, limit: usize) -> Self {
        self.with(|settings| settings.max_call_bytes = limit)
    }

    /// Sets the time that the agent's external program has to exit after a cancellation, before it is killed. Defaults to two
    /// seconds.
    ///
    /// In this time the program can end on its own. Zero kills it immediately.
    #[must_use]
    pub fn grace(self, period: Duration) -> Self {
        self.with(|settings| settings.grace = period)
    }

    fn with(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        set(Arc::make_mut(&mut self.settings));
        self
    }
}

#[async_trait]
impl Provider for CliProvider {
    fn delivery(&self) -> ResultDelivery {
        ResultDelivery::Each
    }

    async fn start(&self, task: ProviderTask) -> Result<Box<dyn ProviderSession>, BoxError> {
        let settings = Arc::clone(&self.settings);
        let session = CliSession::start(settings, task, Saved::default()).await?;
        Ok(Box::new(session))
    }

    async fn resume(
        &self,
        task: ProviderTask,
        saved: Json,
    ) -> Result<Box<dyn ProviderSession>, BoxError> {
        let settings = Arc::clone(&self.settings);
        let saved = Saved::read(&saved)?;
        let session = CliSession::start(settings, task, saved).await?;
        Ok(Box::new(session))
    }
}

impl fmt::Debug for CliProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.settings;
        f.debug_struct("CliProvider")
            .field("program", &settings.program)
            .field("current_dir", &settings.current_dir)
            .field("max_output_bytes", &settings.max_output_bytes)
            .field("max_call_bytes", &settings.max_call_bytes)
            .field("grace", &settings.grace)
            .finish_non_exhaustive()
    }
}
