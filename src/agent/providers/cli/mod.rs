mod callbacks;
mod error;
mod program;
mod refusal;
mod round;
mod secrets;
mod service;
mod session;
mod stderr;
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

/// An agent that is a program of its own: a coding agent on the command line, or a script (feature `cli`).
///
/// The program is started once for each run. It reads its task from standard input, calls tools over HTTP while it runs,
/// and what it wrote to standard output is its answer once it ends with code 0.
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
/// # What the program is given
/// One JSON document on standard input, which then ends:
///
/// | field | what it is |
/// |---|---|
/// | `run` | the id of the run, the same in each attempt |
/// | `model`, `temperature` | what the definition asks for, or `null` |
/// | `messages` | `[{"speaker": "system" or "user", "text": ".."}]`, instructions first, then the context as data, then the user's words or the task |
/// | `tools` | `[{"name": "..", "description": "..", "inputSchema": {..}}]` |
/// | `response_schema` | `{"name": "..", "schema": {..}, "strict": true}` if the answer has to be JSON, or `null` |
/// | `resumed` | `null` at first; later `{"runs": how often it was started, "last": its last answer or null, "calls": [..]}` |
/// | `message` | what it is told beside that, for example what is wrong with its last answer, or `null` |
///
/// An image or a file in a message is described in its text, and the program is not given its bytes.
///
/// `messages` and `message` have to pass the [input guardrails](crate::agent::guardrail) before the program is started;
/// what it asks a model by itself they do not see.
///
/// Its environment is `PATH`, `HOME` and `LANG` of this process, what [`env`](Self::env) gives, and:
///
/// | variable | what it is |
/// |---|---|
/// | `UX_CALLBACK_URL` | where it calls tools: `http://127.0.0.1:` and a port, without a path |
/// | `UX_TOKEN` | the token that each request has to have, new for each start of the program |
/// | `UX_RUN` | the id of the run |
///
/// # How it calls tools
/// Each request has `Authorization: Bearer $UX_TOKEN`, and a connection takes one.
///
/// - `POST $UX_CALLBACK_URL/v1/tool-calls` with `{"id": "..", "tool": "..", "arguments": {..}}` is answered once the call
///   has its result: 200 with `{"status": "success", "output": ..}` or `{"status": "error", "code": "..", "error": ".."}`.
///   `arguments` may also be a string, the JSON as a model wrote it. The id is the program's choice, up to 256 bytes: a
///   call that is sent again with the same id, tool and arguments is not executed again, and is answered alike. So a
///   program that was [resumed](Provider::resume) may begin from the start.
/// - `GET $UX_CALLBACK_URL/v1/tools` is answered with `{"tools": [..]}`, as in the task.
///
/// Nothing else is served, and only on loopback. Other answers have `{"status": "error", "code": "..", "error": ".."}` too:
/// 400 a request that cannot be read, 401 no or a wrong token, 404 another path, 405 another method, 408 a body that takes
/// longer than ten seconds, 413 one that is [too large](Self::max_call_bytes), 429 more than 64 calls at a time. More than
/// 128 connections are closed at once. What is said here is heard only while [`ProviderSession::next`] is polled, as nothing of a
/// session runs in the background.
///
/// # How it ends
/// | what the program does | [`ProviderSession::next`] |
/// |---|---|
/// | it ends with code 0 | [`Finished`](crate::agent::ProviderEvent::Finished), without the line breaks at the end; the usage is not known, so zero |
/// | it ends with code 2, what most programs end with that were started the wrong way | [`CliError::Ended`], [permanent](crate::permanent) |
/// | it ends with another code, or by a signal | [`CliError::Ended`], tried again |
/// | it writes more than [`max_output_bytes`](Self::max_output_bytes) | [`CliError::TooLarge`], permanent; it is killed |
/// | it writes what is no UTF-8 | [`CliError::NotText`] with all that it wrote, tried again |
/// | it cannot be started | [`CliError::Start`], from [`start`](Provider::start); permanent if there is no such program |
///
/// [`ProviderSession::cancel`] answers its open calls with the code `cancelled`, waits for the [grace period](Self::grace), and
/// kills it. A session that is dropped kills it at once. No signal is sent before that, and processes that the program
/// started itself are left to it. A call that it does not wait for may be lost when it ends.
///
/// A run that waits for a person or another agent cancels its program, and starts it again once it waits for nobody any
/// more. So a program that hears `cancelled` should end, and one that is resumed should send its calls again by the same
/// ids: their results are known by these. `resumed.calls` has them too, for a program that chooses other ids each time:
/// `{"id", "tool", "arguments", "status"}` with `output`, or with `code` and `error`, of the calls that have a result. What
/// it sends under a new id is a new call.
///
/// Standard error goes to `tracing` at the level debug, line by line, the first 64 KiB of it in lines of up to 1 KiB. The
/// last line is in [`CliError::Ended`], cut after 256 bytes. The token and the values given by [`env`](Self::env),
/// however short they are, are replaced by `[secret]` in both; neither an error nor `Debug` contains them.
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
    /// An agent that is a program: a path, or a name that is looked up in `PATH`.
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

    /// Adds an argument. Whoever is on the machine can read them, so no secret belongs here.
    #[must_use]
    pub fn arg(self, argument: impl Into<OsString>) -> Self {
        self.args([argument])
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.with(|settings| {
            let arguments = arguments.into_iter().map(Into::into);
            settings.args.extend(arguments);
        })
    }

    /// Sets a variable of its environment, a key of its provider for example. The names in the table above are taken.
    #[must_use]
    pub fn env(self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.with(|settings| settings.env.push((name.into(), value.into())))
    }

    /// Sets where it is started; where this process was by default. With it, name the program by a path that is absolute.
    #[must_use]
    pub fn current_dir(self, folder: impl Into<PathBuf>) -> Self {
        self.with(|settings| settings.current_dir = Some(folder.into()))
    }

    /// How many bytes its answer may have; 1 MiB by default. The last answer is part of what a session saves.
    #[must_use]
    pub fn max_output_bytes(self, limit: usize) -> Self {
        self.with(|settings| settings.max_output_bytes = limit)
    }

    /// Sets the maximum body size of one tool call in bytes; 1 MiB by default. The machine has a separate
    /// [limit](crate::machine::MachineLimits::item_bytes): a call above that limit gets an error result.
    #[must_use]
    pub fn max_call_bytes(self, limit: usize) -> Self {
        self.with(|settings| settings.max_call_bytes = limit)
    }

    /// How long it may go on after it was cancelled, until it is killed; two seconds by default.
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
