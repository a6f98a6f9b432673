//! The program of `examples/first_agent.rs`, which is killed at many moments and started again.

use crate::random::Random;
use futures::future::try_join_all;
use serde_json::json;
use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, timeout};
use universal_executor::{BoxError, BreadcrumbStoreExt as _, SqliteStore};

/// Number of killed programs per conversation. A run that dies three times in a row would be a crash loop.
const KILLED: usize = 2;

/// Number of parallel conversations. Most of them wait for the end of a killed program's lease.
const AT_ONCE: usize = 8;

/// Time limit of a program: the leases of two killed programs, and its own work.
const LONG: Duration = Duration::from_secs(180);

/// Returns the number of conversations: a half of `FIRST_AGENT_KILLS`.
fn conversations() -> usize {
    let kills = env::var("FIRST_AGENT_KILLS").ok();
    let kills = kills.and_then(|kills| kills.parse::<usize>().ok());
    kills.unwrap_or(8).div_ceil(KILLED)
}

/// Returns the path of the example. Cargo builds the examples of a package before it runs the tests.
fn program() -> Result<PathBuf, BoxError> {
    let test = env::current_exe()?;
    let target = test.parent().and_then(Path::parent).ok_or("no folder")?;
    let program = target.join("examples").join("first_agent");
    match program.exists() {
        true => Ok(program),
        false => Err(format!(
            "{} is missing; build it with `cargo build --features sqlite --example first_agent`",
            program.display()
        )
        .into()),
    }
}

/// One conversation: a folder with a database, and the consecutive programs that use the database.
struct Conversation {
    folder: PathBuf,
    /// The idempotency keys of all refunds.
    keys: BTreeSet<String>,
    random: Random,
}

impl Conversation {
    /// Starts a program and answers its question with "yes".
    async fn start(&self) -> Result<(Child, Lines<BufReader<ChildStdout>>), BoxError> {
        let mut child = Command::new(program()?)
            .env("TMPDIR", &self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut answers = child.stdin.take().ok_or("no input")?;
        answers.write_all(b"y\n").await?;
        let lines = child.stdout.take().ok_or("no output")?;
        Ok((child, BufReader::new(lines).lines()))
    }

    /// Reads the output until `end`, and returns its last line.
    async fn read(
        &mut self,
        lines: &mut Lines<BufReader<ChildStdout>>,
        end: Instant,
    ) -> Result<Option<String>, BoxError> {
        let mut last = None;
        while let Ok(line) = tokio::time::timeout_at(end, lines.next_line()).await {
            let Some(line) = line? else { break };
            if let Some((_, key)) = line.split_once(" with key ") {
                self.keys.insert(key.to_owned());
            }
            last = Some(line);
        }
        Ok(last)
    }

    /// Returns a random moment after the start of a program: while it opens its store and asks, or while it reads the answer and pays.
    fn moment(&mut self) -> Duration {
        let millis = match self.random.below(3) {
            0 => self.random.below(60),
            1 => 60 + self.random.below(340),
            _ => 950 + self.random.below(350),
        };
        Duration::from_millis(u64::try_from(millis).unwrap())
    }

    async fn run(mut self) -> Result<(), BoxError> {
        std::fs::create_dir_all(&self.folder)?;
        for _ in 0..KILLED {
            let (mut child, mut lines) = self.start().await?;
            let end = Instant::now() + self.moment();
            self.read(&mut lines, end).await?;
            child.kill().await?;
            // Read the lines that the program wrote before the kill.
            self.read(&mut lines, Instant::now() + LONG).await?;
        }
        let (mut child, mut lines) = self.start().await?;
        let last = self.read(&mut lines, Instant::now() + LONG).await?;
        let status = timeout(LONG, child.wait()).await??;
        assert!(status.success(), "{status}, {last:?}");
        assert_eq!(last.as_deref(), Some("Order 7 is settled."));

        let store = SqliteStore::open(self.folder.join("first_agent.db")).await?;
        for schema in [
            "user.message.v1",
            "human.request.v1",
            "human.response.v1",
            "agent.response.v1",
        ] {
            let found = store.recent(schema, 10).await?;
            assert_eq!(found.len(), 1, "{schema} in {}", self.folder.display());
        }
        let response = store.latest("agent.response.v1").await?;
        let response = response.ok_or("no response")?;
        assert_eq!(response.context["message"], json!("Order 7 is settled."));
        assert_eq!(store.recent("executor.failed.v1", 10).await?, []);
        assert_eq!(self.keys.len(), 1, "{:?}", self.keys);
        store.close().await;
        Ok(std::fs::remove_dir_all(self.folder)?)
    }
}

#[tokio::test]
async fn a_program_that_is_killed_asks_once_pays_once_and_replies_once() -> Result<(), BoxError> {
    let name = format!("universal-executor-first-agent-{}", std::process::id());
    let folder = env::temp_dir().join(name);
    let mut all = (1..=conversations()).map(|number| Conversation {
        folder: folder.join(number.to_string()),
        keys: BTreeSet::new(),
        random: Random::new(u64::try_from(number).unwrap()),
    });
    loop {
        let some: Vec<_> = all.by_ref().take(AT_ONCE).map(Conversation::run).collect();
        if some.is_empty() {
            break;
        }
        try_join_all(some).await?;
    }
    Ok(std::fs::remove_dir_all(folder)?)
}
