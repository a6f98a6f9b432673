//! Files below roots, found in an order that does not depend on the file system, and read within bounds.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// How deep is looked below a root, and how many files and folders of it are looked at.
const DEPTH: usize = 16;
const MOST: usize = 10_000;

/// The largest definition that is read.
const BYTES: u64 = 1 << 20;

/// What is looked at.
#[derive(Clone, Debug)]
pub(super) struct Roots {
    pub(super) roots: Vec<PathBuf>,
    /// Names of files and folders below a root that are left out.
    pub(super) excluded: Vec<String>,
    /// The endings of files that a loader knows.
    pub(super) extensions: Vec<String>,
}

/// A file that may be a workload.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) path: PathBuf,
}

/// All that may be a workload, in the order of precedence, and what could not be looked at.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) candidates: Vec<Candidate>,
    pub(super) unseen: Vec<(PathBuf, String)>,
    /// The roots that do not exist.
    pub(super) absent: Vec<PathBuf>,
}

impl Roots {
    pub(super) fn find(&self) -> Found {
        let mut found = Found::default();
        for root in &self.roots {
            match root.try_exists() {
                Ok(true) => self.walk(root, &mut found),
                Ok(false) => found.absent.push(root.clone()),
                Err(error) => found.unseen.push((root.clone(), error.to_string())),
            }
        }
        found
    }

    fn walk(&self, root: &Path, found: &mut Found) {
        let mut looked = 0;
        // What is left to do stands in the reverse order of precedence.
        let mut open = vec![(root.to_owned(), 0)];
        while let Some((folder, depth)) = open.pop() {
            let names = match self.names(&folder) {
                Ok((names, entries)) => {
                    looked += entries;
                    names
                }
                Err(error) => {
                    found.unseen.push((folder, error.to_string()));
                    continue;
                }
            };
            let mut folders = Vec::new();
            for name in names {
                let path = folder.join(&name);
                let is_link = path.is_symlink();
                match path.metadata() {
                    // A link may lead in a circle.
                    Ok(data) if data.is_dir() && is_link => {}
                    Ok(data) if data.is_dir() && depth < DEPTH => folders.push((path, depth + 1)),
                    Ok(data) if data.is_dir() => {
                        let reason = format!("more than {DEPTH} folders deep; it is not looked at");
                        found.unseen.push((path, reason));
                    }
                    Ok(data) if data.is_file() && is_link && !leads_into(root, &path) => {
                        let reason = "a symbolic link that leads out of its root; it is not read";
                        found.unseen.push((path, reason.to_owned()));
                    }
                    Ok(data) if data.is_file() => found.candidates.extend(self.candidate(path)),
                    Ok(_) => {}
                    Err(error) => found.unseen.push((path, error.to_string())),
                }
            }
            if looked > MOST {
                let reason =
                    format!("more than {MOST} files and folders; the rest is not looked at");
                found.unseen.push((root.to_owned(), reason));
                return;
            }
            open.extend(folders.into_iter().rev());
        }
    }

    /// The names in a folder, sorted, without those that are left out, and how many were looked at. The root itself may have
    /// any name.
    fn names(&self, folder: &Path) -> io::Result<(Vec<String>, usize)> {
        let (mut names, mut looked) = (Vec::new(), 0);
        for entry in fs::read_dir(folder)?.take(MOST + 1) {
            looked += 1;
            let Ok(name) = entry?.file_name().into_string() else {
                continue;
            };
            if !name.starts_with('.') && !self.excluded.contains(&name) {
                names.push(name);
            }
        }
        names.sort();
        Ok((names, looked))
    }

    fn candidate(&self, path: PathBuf) -> Option<Candidate> {
        let extension = path.extension()?.to_str()?;
        let is_known = self.extensions.iter().any(|known| known == extension);
        let name = path.file_stem()?.to_str()?.to_owned();
        is_known.then_some(Candidate { name, path })
    }
}

/// Returns `true` if a path, with all symbolic links resolved, is below `root`.
fn leads_into(root: &Path, path: &Path) -> bool {
    match (root.canonicalize(), path.canonicalize()) {
        (Ok(root), Ok(path)) => path.starts_with(root),
        (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
    }
}

/// The text of a file, if it is one and not too large.
pub(super) fn read(path: &Path) -> io::Result<String> {
    // Opening a pipe waits for whoever writes into it.
    let data = fs::metadata(path)?;
    if !data.is_file() {
        let kind = match data.is_dir() {
            true => "a folder",
            false => "a pipe, a socket or a device",
        };
        let reason = format!("it is {kind}, and no file");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let mut text = String::new();
    let read = fs::File::open(path)?
        .take(BYTES + 1)
        .read_to_string(&mut text)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > BYTES {
        let reason = format!("it is larger than {BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(text)
}
