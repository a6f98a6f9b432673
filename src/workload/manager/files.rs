//! Search for workload files below root folders. The order of the files does not depend on the file system, and the
//! number, depth and size of the files are limited.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Maximum number of folder levels that the workload search enters below a root folder.
const MAX_DEPTH: usize = 16;
/// Maximum number of files and folders that one workload search checks.
const MAX_ENTRIES: usize = 10_000;

/// Maximum size of a workload definition file in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The folders to search for workloads, and the files to find in them.
#[derive(Clone, Debug)]
pub(super) struct Roots {
    pub(super) roots: Vec<PathBuf>,
    /// Names of files and folders that the workload search skips.
    pub(super) excluded: Vec<String>,
    /// The file extensions that a loader of workload definitions reads.
    pub(super) extensions: Vec<String>,
}

/// A file that may define a workload.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) path: PathBuf,
}

/// Files that may define workloads, in order of precedence, and locations that could not be checked.
#[derive(Debug, Default)]
pub(super) struct SearchResult {
    pub(super) candidates: Vec<Candidate>,
    pub(super) unseen: Vec<(PathBuf, String)>,
    /// The root folders of the workload search that do not exist.
    pub(super) absent: Vec<PathBuf>,
}

impl Roots {
    pub(super) fn find(&self) -> SearchResult {
        let mut found = SearchResult::default();
        for root in &self.roots {
            match root.try_exists() {
                Ok(true) => self.walk(root, &mut found),
                Ok(false) => found.absent.push(root.clone()),
                Err(error) => found.unseen.push((root.clone(), error.to_string())),
            }
        }
        found
    }

    fn walk(&self, root: &Path, found: &mut SearchResult) {
        let mut checked = 0;
        // The stack has the pending folders in reverse order of precedence.
        let mut pending = vec![(root.to_owned(), 0)];
        while let Some((folder, depth)) = pending.pop() {
            let names = match self.names(&folder) {
                Ok((names, entries)) => {
                    checked += entries;
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
                    // A symbolic link to a folder can form a cycle.
                    Ok(data) if data.is_dir() && is_link => {}
                    Ok(data) if data.is_dir() && depth < MAX_DEPTH => {
                        folders.push((path, depth + 1));
                    }
                    Ok(data) if data.is_dir() => {
                        let reason = format!("more than {MAX_DEPTH} folders deep, skipped");
                        found.unseen.push((path, reason));
                    }
                    Ok(data) if data.is_file() && is_link && !resolves_below(root, &path) => {
                        let reason = "symbolic link leads out of its root, skipped";
                        found.unseen.push((path, reason.to_owned()));
                    }
                    Ok(data) if data.is_file() => found.candidates.extend(self.candidate(path)),
                    Ok(_) => {}
                    Err(error) => found.unseen.push((path, error.to_string())),
                }
            }
            if checked > MAX_ENTRIES {
                let reason = format!("more than {MAX_ENTRIES} files and folders, skipped the rest");
                found.unseen.push((root.to_owned(), reason));
                return;
            }
            pending.extend(folders.into_iter().rev());
        }
    }

    /// Returns the sorted names of the files and folders in a folder, without excluded names, and the number of all
    /// checked entries. The exclusions do not apply to the root itself.
    fn names(&self, folder: &Path) -> io::Result<(Vec<String>, usize)> {
        let (mut names, mut checked) = (Vec::new(), 0);
        for entry in fs::read_dir(folder)?.take(MAX_ENTRIES + 1) {
            checked += 1;
            let Ok(name) = entry?.file_name().into_string() else {
                continue;
            };
            if !name.starts_with('.') && !self.excluded.contains(&name) {
                names.push(name);
            }
        }
        names.sort();
        Ok((names, checked))
    }

    fn candidate(&self, path: PathBuf) -> Option<Candidate> {
        let extension = path.extension()?.to_str()?;
        let is_known = self.extensions.iter().any(|known| known == extension);
        let name = path.file_stem()?.to_str()?.to_owned();
        is_known.then_some(Candidate { name, path })
    }
}

/// Returns `true` if a path, with all symbolic links resolved, is below `root`.
fn resolves_below(root: &Path, path: &Path) -> bool {
    match (root.canonicalize(), path.canonicalize()) {
        (Ok(root), Ok(path)) => path.starts_with(root),
        (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
    }
}

/// Returns the content of a workload definition file of at most [`MAX_BYTES`].
pub(super) fn read(path: &Path) -> io::Result<String> {
    // Opening a named pipe blocks until another process opens it for writing.
    let data = fs::metadata(path)?;
    if !data.is_file() {
        let kind = match data.is_dir() {
            true => "a folder",
            false => "a pipe, a socket or a device",
        };
        let reason = format!("expected a file, found {kind}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let mut text = String::new();
    let read = fs::File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_string(&mut text)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > MAX_BYTES {
        let reason = format!("file is larger than {MAX_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(text)
}
