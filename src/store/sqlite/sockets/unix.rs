//! Unix datagram sockets in a folder next to the SQLite file, which wake other processes after a commit.

use super::file_name;
use crate::store::sqlite::guard::identity;
use std::fs::{
    DirBuilder, File, Permissions, metadata, remove_dir, set_permissions, symlink_metadata,
};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Maximum length of a Unix socket's path in bytes. `sun_path` has 104 bytes on macOS and 108 on Linux, including a final zero.
const LONGEST: usize = 103;

/// Maximum number of queued datagrams that one call of [`received`](Receiver::received) discards after the first datagram.
const MOST_QUEUED: usize = 1_024;

/// A bound Unix datagram socket, which receives wake-ups from other processes.
#[derive(Debug)]
pub(in crate::store::sqlite) struct Bound(UnixDatagram);

/// Receiving side of a Unix datagram socket, registered with the tokio runtime of the calling thread.
#[derive(Debug)]
pub(in crate::store::sqlite) struct Receiver(tokio::net::UnixDatagram);

impl Receiver {
    pub(in crate::store::sqlite) fn new(bound: Bound) -> Result<Self> {
        bound.0.set_nonblocking(true)?;
        tokio::net::UnixDatagram::from_std(bound.0).map(Self)
    }

    /// Waits for a datagram about a commit of another process, and discards all queued datagrams.
    pub(in crate::store::sqlite) async fn received(&self) {
        let mut content = [0; 1];
        if self.0.recv(&mut content).await.is_err() {
            // Without the socket, the check of the file still finds commits.
            return std::future::pending().await;
        }
        for _ in 0..MOST_QUEUED {
            if self.0.try_recv(&mut content).is_err() {
                return;
            }
        }
    }
}

/// Socket from which a database sends datagrams about its commits to other processes, without ever waiting for a receiver.
#[derive(Debug)]
pub(super) struct Sender(UnixDatagram);

impl Sender {
    pub(super) fn new() -> Option<Self> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Self(socket))
    }

    /// Sends a datagram about a commit to the socket of another process. Returns `false` if no process reads from the socket. A socket with
    /// a full queue counts as woken.
    pub(super) fn send(&self, folder: &Folder, to: Uuid) -> bool {
        let sent = self.0.send_to(&[0], folder.socket(to));
        !sent.is_err_and(|error| is_dead(&error))
    }
}

/// Folder of Unix sockets, under a path that is short enough for socket addresses.
pub(super) struct Folder {
    path: PathBuf,
    /// Open folder of the sockets, which keeps a path in `/proc/self/fd` valid.
    _open: Option<File>,
}

impl Folder {
    /// Opens the folder of sockets at `path` if only the owner of the SQLite file at `database` can use it. The error is
    /// [`ErrorKind::NotFound`] only for a missing folder.
    pub(super) fn open(path: &Path, database: &Path) -> Result<Self> {
        check(path, database)?;
        let length = path.as_os_str().len() + 1 + file_name(Uuid::nil()).len();
        if length <= LONGEST || cfg!(not(target_os = "linux")) {
            return Ok(Self {
                path: path.to_owned(),
                _open: None,
            });
        }
        let open = File::open(path)?;
        let short = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        let expected = identity(&open.metadata()?);
        // Without `/proc`, every socket in the folder would seem to be missing.
        if !metadata(&short).is_ok_and(|found| identity(&found) == expected) {
            let reason =
                "the path is too long for a socket address, and /proc/self/fd is not available";
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        Ok(Self {
            path: short,
            _open: Some(open),
        })
    }

    /// Opens the folder of sockets, and creates it if it is missing. Only its owner can send to the sockets.
    pub(super) fn create(path: &Path, database: &Path) -> Result<Self> {
        match DirBuilder::new().mode(0o700).create(path) {
            // A folder whose owner differs from the owner of the file is useless.
            Ok(()) => Self::open(path, database).inspect_err(|_| drop(remove_dir(path))),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Self::open(path, database),
            Err(error) => Err(error),
        }
    }

    pub(super) fn bind(&self, id: Uuid) -> Result<Bound> {
        let path = self.socket(id);
        // An earlier registration of the same database may have been rolled back.
        drop(std::fs::remove_file(&path));
        let socket = UnixDatagram::bind(&path)?;
        set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(Bound(socket))
    }

    /// Returns `true` if no process has the Unix socket open.
    pub(super) fn is_dead(&self, id: Uuid) -> bool {
        let probe = UnixDatagram::unbound();
        let connected = probe.and_then(|probe| probe.connect(self.socket(id)));
        connected.is_err_and(|error| is_dead(&error))
    }

    fn socket(&self, id: Uuid) -> PathBuf {
        self.path.join(file_name(id))
    }
}

/// Fails unless `path` is a folder that only the owner of the SQLite file at `database` can use, and not a symbolic link.
fn check(path: &Path, database: &Path) -> Result<()> {
    let folder = symlink_metadata(path)?;
    let owner = metadata(database).map_err(|error| Error::other(error.to_string()))?;
    let is_private = folder.is_dir() && folder.mode() & 0o077 == 0 && folder.uid() == owner.uid();
    match is_private {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::PermissionDenied,
            "the socket path must be a folder that only the owner of the database file can use; delete it, or remove the other permissions",
        )),
    }
}

/// Returns `true` if an error means that a Unix socket is missing, or is left from a process that has ended.
fn is_dead(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::NotFound
    )
}
