//! `PostgresStore` against hand-written SQL that does the same writes: breadcrumbs, runs from claim to commit, and responses
//! through runtimes. `POSTGRES_URL` names the server (`scripts/services` starts one); without it nothing is measured.
//!
//! In each round every side works once, on fresh tables. A ratio is the median of the ratios within each round, with the lowest
//! and the highest round in brackets. Rates depend on the server and its disk, so only ratios are comparable.
//! `cargo bench --bench postgres -- runs` measures one part alone: `creates`, `runs` or `responses`.
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot be set up has nothing to measure"
)]
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

#[path = "support/figures.rs"]
mod figures;
mod postgres_sides;
#[path = "support/quick.rs"]
mod quick;
#[path = "support/rounds.rs"]
mod rounds;

use postgres_sides::raw::Raw;
use postgres_sides::{block_on, store};
use rounds::Spread;
use sqlx::Connection as _;
use std::cell::Cell;
use std::time::Duration;
use universal_executor::{BreadcrumbId, PostgresStore};

const ROUNDS: usize = 7;
/// Number of rows that the sides with batches write at once, and number of concurrent writers.
const AT_ONCE: usize = 64;

fn main() {
    let Ok(url) = std::env::var("POSTGRES_URL") else {
        println!("PostgreSQL is skipped: POSTGRES_URL is not set, see scripts/services");
        return;
    };
    let bench = Bench::new(url);
    let parts: [(&str, Part); 3] = [
        ("creates", Bench::creates),
        ("runs", Bench::runs),
        ("responses", Bench::responses),
    ];
    // Only the parts named in the arguments are measured. Without a name, all parts are measured.
    let named = |name: &str| std::env::args().any(|argument| argument == name);
    let all = !parts.iter().any(|(name, _)| named(name));
    for (name, part) in parts {
        if all || named(name) {
            part(&bench);
        }
    }
}

type Part = fn(&Bench);

struct Bench {
    url: String,
    schemas: Cell<usize>,
}

/// Filled tables for one measurement.
struct Tables<'b> {
    url: &'b str,
    schema: String,
    triggers: Vec<BreadcrumbId>,
}

/// One side of a comparison.
struct Side<'s> {
    name: &'s str,
    /// Index of the side that this side is compared with.
    beside: usize,
    run: Box<dyn Fn(&Tables<'_>) -> Duration + 's>,
}

fn side<'s>(name: &'s str, run: impl Fn(&Tables<'_>) -> Duration + 's) -> Side<'s> {
    Side {
        name,
        beside: 0,
        run: Box::new(run),
    }
}

impl Side<'_> {
    fn beside(mut self, side: usize) -> Self {
        self.beside = side;
        self
    }
}

/// Creates a side with hand-written SQL and separate connections.
fn by_hand<'s>(name: &'s str, run: impl AsyncFn(&Raw, &Tables<'_>) -> Duration + 's) -> Side<'s> {
    side(name, move |tables| {
        block_on(async {
            let raw = Raw::connect(tables.url, &tables.schema).await;
            let took = run(&raw, tables).await;
            raw.close().await;
            took
        })
    })
}

/// Creates a side that uses the store.
fn by_store<'s>(name: &'s str, run: impl AsyncFn(&PostgresStore) -> Duration + 's) -> Side<'s> {
    side(name, move |tables| {
        block_on(async {
            let store = store::connect(tables.url, &tables.schema).await;
            let took = run(&store).await;
            store.close().await;
            took
        })
    })
}

impl Bench {
    fn new(url: String) -> Self {
        Self {
            url,
            schemas: Cell::default(),
        }
    }

    fn size<T>(&self, quick: T, whole: T) -> T {
        if quick::is_quick() { quick } else { whole }
    }

    /// Measures the creation of breadcrumbs with their events.
    fn creates(&self) {
        let n = self.size(AT_ONCE, 2_560);
        let sides = [
            by_hand("by hand, 1 connection", async |raw, _| {
                raw.create(n, 1).await
            }),
            by_hand("by hand, 32 connections", async |raw, _| {
                raw.create(n, Raw::CONNECTIONS).await
            }),
            by_hand("by hand, 64 in a statement", async |raw, _| {
                raw.create_many(n, AT_ONCE).await
            }),
            by_store("store, 1 writer", async |store| {
                store::create(store, n, 1).await
            }),
            by_store("store, 64 writers", async |store| {
                store::create(store, n, AT_ONCE).await
            })
            .beside(1),
        ];
        self.compare(&format!("{n} breadcrumbs created"), 1, n, false, &sides);
    }

    /// Measures enqueued runs, from claim to commit.
    fn runs(&self) {
        let n = self.size(AT_ONCE, 2_560);
        let sides = [
            by_hand("by hand, 1 connection", async |raw, _| {
                raw.finish(n, 1).await
            }),
            by_hand("by hand, 32 connections", async |raw, _| {
                raw.finish(n, Raw::CONNECTIONS).await
            }),
            by_hand("by hand, 64 in a statement", async |raw, _| {
                raw.finish_many(n, AT_ONCE).await
            }),
            by_store("store, 1 at a time", async |store| {
                store::finish(store, n, 1).await
            }),
            by_store("store, 64 at a time", async |store| {
                store::finish(store, n, AT_ONCE).await
            })
            .beside(1),
        ];
        self.compare(
            &format!("{n} runs from claim to commit"),
            n,
            n,
            true,
            &sides,
        );
    }

    /// Measures the time from stored triggers to stored responses.
    fn responses(&self) {
        let n = self.size(AT_ONCE, 2_560);
        let by_workers = |workers: usize| {
            let name = match workers {
                1 => "1 worker",
                2 => "2 workers",
                _ => "4 workers",
            };
            side(name, move |tables| {
                store::respond(tables.url, &tables.schema, n, workers)
            })
        };
        let sides = [
            by_hand("by hand, 1 connection", async |raw, tables| {
                raw.respond(&tables.triggers, 1).await
            }),
            by_hand("by hand, 32 connections", async |raw, tables| {
                raw.respond(&tables.triggers, Raw::CONNECTIONS).await
            }),
            by_workers(1).beside(1),
            by_workers(2).beside(2),
            by_workers(4).beside(2),
        ];
        self.compare(
            &format!("{n} triggers to committed responses"),
            n,
            n,
            false,
            &sides,
        );
    }

    /// Measures each side once per round on new tables with `triggers` triggers, and prints median rates and ratios.
    fn compare(&self, what: &str, triggers: usize, n: usize, enqueued: bool, sides: &[Side<'_>]) {
        let (warm_up, rounds) = self.size((0, 1), (1, quick::rounds(ROUNDS)));
        let mut rates = vec![Vec::new(); sides.len()];
        for round in 0..warm_up + rounds {
            // The order rotates, so that drift of the machine favours no side.
            let rotated = (0..sides.len()).cycle().skip(round).take(sides.len());
            for index in rotated {
                let tables = block_on(self.tables(triggers, enqueued));
                let took = (sides.get(index).unwrap().run)(&tables);
                if round >= warm_up {
                    let rate = n as f64 / took.as_secs_f64();
                    rates.get_mut(index).unwrap().push(rate);
                }
                block_on(remove(&tables));
            }
        }
        println!("{what}, rounds: {rounds}");
        for (side, own) in sides.iter().zip(&rates) {
            let rate = Spread::of(own.clone()).unwrap().median;
            let ratio = Spread::of_ratios(own, rates.get(side.beside).unwrap()).unwrap();
            let beside = sides.get(side.beside).unwrap().name;
            println!("  {:<28} {rate:>8.0} /s  {ratio} of {beside}", side.name);
            figures::figure(&format!("{what}/{}", side.name), rate, "per_s");
        }
    }

    async fn tables(&self, triggers: usize, enqueued: bool) -> Tables<'_> {
        self.schemas.set(self.schemas.get() + 1);
        let schema = format!("ux_bench_{}_{}", std::process::id(), self.schemas.get());
        let store = store::connect(&self.url, &schema).await;
        let triggers = store::fill(&store, triggers).await;
        if enqueued {
            store::enqueue(&store, &triggers).await;
        }
        store.close().await;
        Tables {
            url: &self.url,
            schema,
            triggers,
        }
    }
}

async fn remove(tables: &Tables<'_>) {
    let mut connection = sqlx::PgConnection::connect(tables.url).await.unwrap();
    let sql = format!(
        "SET client_min_messages = 'warning'; DROP SCHEMA {} CASCADE",
        tables.schema
    );
    let drop = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
    drop.execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}
