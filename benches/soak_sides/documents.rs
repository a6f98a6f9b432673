//! Documents of many sizes that are created, updated and deleted.

use super::executor::document;
use serde_json::{Value, json};
use universal_executor::BreadcrumbId;
use universal_executor::Patch;
use universal_executor::store::{Committed, Write};

/// Maximum number of documents.
const MOST: usize = 2_000;

/// A document that exists.
struct Document {
    id: BreadcrumbId,
    version: u64,
    bytes: usize,
}

/// Effect of a write on the documents.
enum Change {
    Kept(usize),
    Deleted,
}

/// All documents, and the writes of the next commit.
#[derive(Default)]
pub(crate) struct Documents {
    all: Vec<Document>,
    random: Random,
    changes: Vec<Change>,
    bytes: usize,
}

impl Documents {
    /// Returns `count` writes of different documents.
    pub(crate) fn writes(&mut self, count: usize) -> Vec<Write> {
        (0..count).map(|_| self.write()).collect()
    }

    fn write(&mut self) -> Write {
        let choice = self.random.below(4);
        let is_full = self.all.len() + self.changes.len() >= MOST;
        let is_small = self.all.len() < MOST / 2;
        if is_small || (choice == 0 && !is_full) {
            let (context, bytes) = self.random.context();
            self.changes.push(Change::Kept(bytes));
            return Write::Create(document(context));
        }
        let index = self.random.below(self.all.len());
        let old = self.all.swap_remove(index);
        self.bytes -= old.bytes;
        if choice <= 1 {
            self.changes.push(Change::Deleted);
            return Write::Delete {
                id: old.id,
                by: None,
            };
        }
        let (context, bytes) = self.random.context();
        self.changes.push(Change::Kept(bytes));
        Write::Update {
            id: old.id,
            version: old.version,
            patch: Patch::new().context(context),
        }
    }

    /// Applies the documents of a commit. The commit can have more writes after these.
    pub(crate) fn committed(&mut self, committed: &Committed) {
        for (change, written) in self.changes.drain(..).zip(&committed.written) {
            if let Change::Kept(bytes) = change {
                self.bytes += bytes;
                self.all.push(Document {
                    id: written.id,
                    version: written.version,
                    bytes,
                });
            }
        }
    }

    /// Returns the bytes of all documents.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A generator of pseudorandom numbers with a fixed seed.
struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }
}

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    /// Returns a context and its size in bytes. Most contexts are small, and one of a hundred has up to 190 KB.
    fn context(&mut self) -> (Value, usize) {
        const LINE: &str = "a line of a document, as long as many are";
        let lines = match self.below(100) {
            0 => 750 + self.below(3_500),
            1..=9 => 50 + self.below(700),
            _ => 1 + self.below(50),
        };
        (
            json!({"lines": vec![LINE; lines]}),
            lines * (LINE.len() + 3),
        )
    }
}
