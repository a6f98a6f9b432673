//! Wake-ups of other processes on systems without Unix sockets: other processes find commits by checking the SQLite file.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use uuid::Uuid;

/// Placeholder type for a bound datagram socket on systems without Unix sockets, where no value of the type exists.
#[derive(Debug)]
pub(in crate::store::sqlite) enum Bound {}

/// Placeholder type for the receiving side of a datagram socket on systems without Unix sockets, where no value of the type
/// exists.
#[derive(Debug)]
pub(in crate::store::sqlite) enum Receiver {}

impl Receiver {
    pub(in crate::store::sqlite) fn new(bound: Bound) -> Result<Self> {
        match bound {}
    }

    pub(in crate::store::sqlite) async fn received(&self) {
        match *self {}
    }
}

/// Placeholder type for the sender of datagrams about new events on systems without Unix sockets, where no value of the type
/// exists.
#[derive(Debug)]
pub(super) enum Sender {}

impl Sender {
    pub(super) fn new() -> Option<Self> {
        None
    }

    pub(super) fn send(&self, _: &Folder, _: Uuid) -> bool {
        match *self {}
    }
}

/// Placeholder type for a folder of datagram sockets on systems without Unix sockets, where no value of the type exists.
pub(super) enum Folder {}

impl Folder {
    pub(super) fn open(_: &Path, _: &Path) -> Result<Self> {
        Err(Error::from(ErrorKind::Unsupported))
    }

    pub(super) fn create(path: &Path, database: &Path) -> Result<Self> {
        Self::open(path, database)
    }

    pub(super) fn bind(&self, _: Uuid) -> Result<Bound> {
        match *self {}
    }

    pub(super) fn is_dead(&self, _: Uuid) -> bool {
        match *self {}
    }
}
