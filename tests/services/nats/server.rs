//! The shared server of the tests, and servers of single tests, which can be killed.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Returns the server's URL. Without a server, ends the process with all tests skipped, or fails if tests must not be skipped.
pub(crate) fn url() -> String {
    setting("NATS_URL")
}

/// Returns a setting of `scripts/services`.
pub(crate) fn setting(name: &str) -> String {
    if let Ok(value) = std::env::var(name) {
        return value;
    }
    let is_set = |name| std::env::var_os(name).is_some();
    assert!(
        !is_set("CI") && !is_set("UX_REQUIRE_SERVICES"),
        "{name} is not set: see scripts/services"
    );
    // A print macro would be captured by the test harness.
    let skipped =
        format!("SKIPPED: tests of NatsSource, as {name} is not set; see scripts/services\n");
    std::io::stderr().write_all(skipped.as_bytes()).unwrap();
    std::process::exit(0);
}

/// Returns a name that no other test uses.
pub(crate) fn uuid() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let (process, made) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    format!("{now}-{process}-{made}")
}

/// The server of one test, with the same port for the whole test.
pub(crate) struct Server {
    port: u16,
    folder: PathBuf,
    arguments: Vec<&'static str>,
    process: Option<Child>,
}

impl Server {
    /// Creates a server without starting it.
    pub(crate) fn with(arguments: &[&'static str]) -> Self {
        let any_port = TcpListener::bind("127.0.0.1:0").unwrap();
        Self {
            port: any_port.local_addr().unwrap().port(),
            folder: std::env::temp_dir().join(format!("ux-nats-{}", uuid())),
            arguments: arguments.to_vec(),
            process: None,
        }
    }

    pub(crate) async fn started() -> Self {
        let mut server = Self::with(&["-js"]);
        server.start().await;
        server
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://{}", self.address())
    }

    /// Starts the server with its stored data, and waits until it answers.
    pub(crate) async fn start(&mut self) {
        std::fs::create_dir_all(&self.folder).unwrap();
        let port = self.port.to_string();
        let process = Command::new(setting("NATS_SERVER"))
            .args(["-a", "127.0.0.1", "-p", &port, "-sd"])
            .arg(&self.folder)
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.process = Some(process.unwrap());
        while tokio::net::TcpStream::connect(self.address())
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills the server as a power loss would. Its written data stays.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Deletes the data of a stopped server.
    pub(crate) fn wipe(&self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        drop(std::fs::remove_dir_all(&self.folder));
    }
}
