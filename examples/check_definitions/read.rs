//! Sources: files, folders, store files and servers.

use super::arguments::Arguments;
use std::error::Error;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use universal_executor::check::{CheckSource, Kind};
use universal_executor::store::Query;
use universal_executor::{BoxError, BreadcrumbStore, Selector};

/// Maximum depth of folders.
const DEPTH: usize = 16;
/// Maximum number of files and folders.
const FILES: usize = 10_000;
/// Maximum size of a file in bytes.
const BYTES: u64 = 1 << 20;
/// The maximum number of records of one schema.
#[cfg_attr(
    not(any(feature = "rcrt", feature = "sqlite")),
    allow(dead_code, reason = "only tests read a store in such a build")
)]
const RECORDS: usize = 10_000;

type Sources = Vec<CheckSource<'static>>;

/// Reads all sources. Returns a message for each source and file that cannot be read.
pub(crate) async fn all(arguments: &Arguments) -> (Sources, Vec<String>) {
    let (mut sources, mut unread) = (Vec::new(), Vec::new());
    for source in &arguments.sources {
        let read = one(source, arguments, &mut sources, &mut unread).await;
        if let Err(error) = read {
            unread.push(format!("cannot read {source}: {}", chain(&*error)));
        }
    }
    (sources, unread)
}

/// Reads one source.
///
/// # Errors
/// Returns an error if a store or a server cannot be read, or needs a feature that this build does not have.
async fn one(
    source: &str,
    arguments: &Arguments,
    sources: &mut Sources,
    unread: &mut Vec<String>,
) -> Result<(), BoxError> {
    let path = Path::new(source);
    if source.starts_with("http://") || source.starts_with("https://") {
        sources.extend(server(source, arguments, unread).await?);
    } else if path.is_dir() {
        folder(path, sources, unread);
    } else if is_store(path) {
        sources.extend(store_file(path, arguments, unread).await?);
    } else {
        file(path, sources, unread);
    }
    Ok(())
}

/// Returns an error and its sources on one line.
fn chain(error: &(dyn Error + 'static)) -> String {
    let errors = std::iter::successors(Some(error), |&error| error.source());
    let messages: Vec<String> = errors.map(ToString::to_string).collect();
    messages.join(": ")
}

/// Reads the files below a folder whose extension is that of a definition, in the order of their paths.
pub(crate) fn folder(root: &Path, sources: &mut Sources, unread: &mut Vec<String>) {
    let mut open: Vec<(PathBuf, usize)> = vec![(root.to_owned(), 0)];
    let mut files = Vec::new();
    let mut seen = 0;
    while let Some((path, depth)) = open.pop() {
        let entries = match fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
            Ok(entries) => entries,
            Err(error) => {
                unread.push(format!(
                    "cannot read the folder {}: {error}",
                    path.display()
                ));
                continue;
            }
        };
        for entry in entries {
            seen += 1;
            let (path, name) = (entry.path(), entry.file_name());
            let is_hidden = name.to_string_lossy().starts_with('.');
            if is_hidden || seen > FILES {
                continue;
            }
            // Symbolic links to folders are not followed, because they can form a cycle.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && depth < DEPTH {
                open.push((path, depth + 1));
            } else if is_folder {
                unread.push(format!(
                    "{}: nested deeper than {DEPTH} folders; move it up",
                    path.display()
                ));
            } else if CheckSource::file(&path, "").is_some() {
                files.push(path);
            }
        }
    }
    if seen > FILES {
        unread.push(format!(
            "{}: more than {FILES} entries; {} are omitted",
            root.display(),
            seen - FILES
        ));
    }
    files.sort();
    for path in files {
        file(&path, sources, unread);
    }
}

fn file(path: &Path, sources: &mut Sources, unread: &mut Vec<String>) {
    match text_of(path) {
        Ok(text) => match CheckSource::file(path, text) {
            Some(source) => sources.push(source),
            None => unread.push(format!(
                "{}: unsupported file extension; use .json, or .yaml with the feature yaml",
                path.display()
            )),
        },
        Err(error) => unread.push(format!("cannot read {}: {error}", path.display())),
    }
}

fn text_of(path: &Path) -> io::Result<String> {
    let is_file = fs::metadata(path)?.is_file();
    if !is_file {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
    }
    let mut text = String::new();
    fs::File::open(path)?
        .take(BYTES + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > BYTES {
        let reason = format!("larger than {BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(text)
}

/// Reads the definitions of a store, newest first.
///
/// # Errors
/// Returns the error of the store.
#[cfg_attr(
    not(any(feature = "rcrt", feature = "sqlite")),
    allow(dead_code, reason = "only tests read a store in such a build")
)]
pub(crate) async fn store(
    store: &dyn BreadcrumbStore,
    unread: &mut Vec<String>,
) -> Result<Sources, BoxError> {
    const PAGE: usize = 500;
    let mut sources = Vec::new();
    for schema in Kind::SCHEMAS {
        let mut query = Query::new(Selector::schema(schema)).limit(PAGE);
        let mut read = 0;
        loop {
            let page = store.search(&query).await?;
            read += page.len();
            sources.extend(page.iter().map(|found| CheckSource::record(found)));
            let Some(last) = page.last().filter(|_| page.len() == PAGE) else {
                break;
            };
            if read >= RECORDS {
                unread.push(format!(
                    "more than {RECORDS} records of {schema}; the older ones are omitted"
                ));
                break;
            }
            query = query.before(last.order_key());
        }
    }
    Ok(sources)
}

/// Returns `true` if a file is a SQLite database.
fn is_store(path: &Path) -> bool {
    let mut start = [0; 16];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && &start == b"SQLite format 3\0"
}

#[cfg(feature = "sqlite")]
async fn store_file(
    path: &Path,
    arguments: &Arguments,
    unread: &mut Vec<String>,
) -> Result<Sources, BoxError> {
    let builder = universal_executor::SqliteStore::builder(path);
    let opened = builder.read_only().open().await?;
    match &arguments.owner {
        Some(tenant) => store(&opened.in_tenant(tenant), unread).await,
        None => store(&opened, unread).await,
    }
}

#[cfg(not(feature = "sqlite"))]
async fn store_file(_: &Path, _: &Arguments, _: &mut Vec<String>) -> Result<Sources, BoxError> {
    Err("a store file needs the feature sqlite".into())
}

#[cfg(feature = "rcrt")]
async fn server(
    url: &str,
    arguments: &Arguments,
    unread: &mut Vec<String>,
) -> Result<Sources, BoxError> {
    use universal_executor::store::StoreError;
    use universal_executor::{BreadcrumbId, RcrtStore};

    let owner = arguments.owner.as_deref();
    let owner = owner.ok_or("a server needs --owner <id>")?;
    let token = arguments.token.clone();
    let token = token.ok_or("a server needs a token in the environment variable RCRT_TOKEN")?;
    let builder = RcrtStore::builder(url, owner);
    let server = builder.token(token).build()?;
    let sources = store(&server, unread).await?;
    // With an invalid token every search finds nothing, and only a lookup fails.
    if sources.is_empty()
        && let Err(error) = server.get(BreadcrumbId::NIL).await
        && !matches!(error, StoreError::NotFound { .. })
    {
        return Err(error.into());
    }
    Ok(sources)
}

#[cfg(not(feature = "rcrt"))]
async fn server(_: &str, _: &Arguments, _: &mut Vec<String>) -> Result<Sources, BoxError> {
    Err("a server needs the feature rcrt".into())
}
