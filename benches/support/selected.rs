//! Selection of stores on the command line.
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::env;

/// Returns `true` if the arguments have the name of the store, or the name of no store.
pub(crate) fn is_selected(store: &str) -> bool {
    const STORES: [&str; 3] = ["memory", "sqlite", "postgres"];
    let words: Vec<String> = env::args().collect();
    let selects = |store: &str| words.iter().any(|word| word == store);
    selects(store) || !STORES.into_iter().any(selects)
}

/// Returns the URL of PostgreSQL if it is selected. Prints a line if the environment variable `POSTGRES_URL` is missing.
pub(crate) fn postgres_url() -> Option<String> {
    if !is_selected("postgres") {
        return None;
    }
    let url = env::var("POSTGRES_URL").ok();
    if url.is_none() {
        println!("PostgreSQL is skipped: POSTGRES_URL is not set, see scripts/services");
    }
    url
}
