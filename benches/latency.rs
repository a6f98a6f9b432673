//! Time from posting a request to seeing its response, on SQLite and PostgreSQL.
//!
//! The client and the worker use one store handle, separate handles in one process, or separate processes. The client
//! learns of responses through the events of the handle that it posts with. One request or 64 requests are in flight at all times. All
//! other settings are the defaults. Each round measures every configuration once, on a new SQLite file or a new
//! PostgreSQL tenant.
//!
//! PostgreSQL is measured if `POSTGRES_URL` names a server (`scripts/services` starts one). The words `sqlite` and
//! `postgres` select one store: `cargo bench --all-features --bench latency -- sqlite`.
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot be set up has nothing to measure"
)]
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

#[path = "support/figures.rs"]
mod figures;
mod latency_sides;
#[path = "support/percentiles.rs"]
mod percentiles;
#[path = "support/quick.rs"]
mod quick;

use figures::figure;
use latency_sides::client::{Client, Measured};
use latency_sides::new_tokio;
use latency_sides::store::{Location, POSTGRES_URL};
use latency_sides::worker::{self, Placement, Worker};
use percentiles::{Spread, percentile};
use sqlx::Connection as _;
use std::env;
use std::path::PathBuf;
use std::time::Duration;

const ROUNDS: usize = 5;
const WARM_UP: Duration = Duration::from_millis(300);
const WINDOW: Duration = Duration::from_secs(2);
/// The numbers of requests in flight.
const LOADS: [usize; 2] = [1, 64];
const PLACEMENTS: [(&str, Placement); 3] = [
    ("one handle", Placement::OneHandle),
    ("separate handles", Placement::SeparateHandles),
    ("separate processes", Placement::SeparateProcesses),
];

fn main() {
    if let Ok(location) = env::var(worker::ENVIRONMENT) {
        worker::serve(&location);
        return;
    }
    let bench = Bench::new();
    let mut rows = bench.rows();
    let rounds = if quick::is_quick() {
        1
    } else {
        quick::rounds(ROUNDS)
    };
    for round in 0..rounds {
        for (number, row) in rows.iter_mut().enumerate() {
            let name = format!("round{round}_{number}");
            row.add(&new_tokio().block_on(bench.measure(row, &name)));
        }
    }
    new_tokio().block_on(bench.remove());
    println!("median of all rounds (lowest to highest round); rounds: {rounds}");
    for load in LOADS {
        print(load, &rows);
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Backend {
    Sqlite,
    Postgres,
}

/// One configuration with its results, one per round.
struct Row {
    name: String,
    backend: Backend,
    placement: Placement,
    in_flight: usize,
    p50: Vec<f64>,
    p99: Vec<f64>,
    rate: Vec<f64>,
    samples: Vec<f64>,
}

impl Row {
    fn add(&mut self, measured: &Measured) {
        self.p50.push(percentile(&measured.latencies, 50.0));
        self.p99.push(percentile(&measured.latencies, 99.0));
        self.rate.push(measured.answers_per_second);
        self.samples.push(measured.latencies.len() as f64);
    }
}

struct Bench {
    /// The folder of the SQLite files.
    folder: PathBuf,
    /// The PostgreSQL schema with the tables of all tenants.
    schema: String,
    backends: Vec<Backend>,
}

impl Bench {
    fn new() -> Self {
        let name = format!("ux_bench_latency_{}", std::process::id());
        let folder = env::temp_dir().join(&name);
        std::fs::create_dir_all(&folder).unwrap();
        let is_named = |name: &str| env::args().any(|argument| argument == name);
        let mut backends = Vec::new();
        if is_named("sqlite") || !is_named("postgres") {
            backends.push(Backend::Sqlite);
        }
        if is_named("postgres") || !is_named("sqlite") {
            if env::var_os(POSTGRES_URL).is_some() {
                backends.push(Backend::Postgres);
            } else {
                println!("PostgreSQL is skipped: POSTGRES_URL is not set, see scripts/services");
            }
        }
        Self {
            folder,
            schema: name,
            backends,
        }
    }

    /// Returns every configuration, without results.
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for in_flight in LOADS {
            for &backend in &self.backends {
                for (name, placement) in PLACEMENTS {
                    let store = match backend {
                        Backend::Sqlite => "SQLite",
                        Backend::Postgres => "PostgreSQL",
                    };
                    rows.push(Row {
                        name: format!("{store}, {name}"),
                        backend,
                        placement,
                        in_flight,
                        p50: Vec::new(),
                        p99: Vec::new(),
                        rate: Vec::new(),
                        samples: Vec::new(),
                    });
                }
            }
        }
        rows
    }

    /// Measures one configuration on a new file or tenant.
    async fn measure(&self, row: &Row, name: &str) -> Measured {
        let location = match row.backend {
            Backend::Sqlite => Location::File(self.folder.join(format!("{name}.db"))),
            Backend::Postgres => Location::Tenant {
                schema: self.schema.clone(),
                tenant: name.to_owned(),
            },
        };
        let (warm_up, window) = if quick::is_quick() {
            (Duration::ZERO, Duration::from_millis(20))
        } else {
            (WARM_UP, WINDOW)
        };
        let handle = location.open().await;
        let client = Client::new(&handle).await;
        let worker = Worker::start(row.placement, &location, &handle).await;
        let measured = client.measure(row.in_flight, warm_up, window).await;
        worker.stop().await;
        client.stop().await;
        handle.close().await;
        measured
    }

    /// Removes the files and the tables of the bench.
    async fn remove(&self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
        if self.backends.contains(&Backend::Postgres) {
            let url = env::var(POSTGRES_URL).unwrap();
            let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
            let sql = format!(
                "SET client_min_messages = 'warning'; DROP SCHEMA {} CASCADE",
                self.schema
            );
            let drop = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
            drop.execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        }
    }
}

/// Prints the rows with this number of requests in flight.
fn print(load: usize, rows: &[Row]) {
    let requests = if load == 1 { "request" } else { "requests" };
    println!("{load} {requests} in flight");
    println!(
        "  {:<30} {:>24} {:>26} {:>24} {:>8}",
        "", "p50 in ms", "p99 in ms", "answers a second", "samples"
    );
    for row in rows.iter().filter(|row| row.in_flight == load) {
        let [p50, p99, rate, samples] =
            [&row.p50, &row.p99, &row.rate, &row.samples].map(|rounds| Spread::of(rounds));
        println!(
            "  {:<30} {p50:>24.2} {p99:>26.2} {rate:>24.0} {:>8.0}",
            row.name, samples.median
        );
        let name = format!("latency/{}/{load} in flight", row.name);
        figure(&format!("{name}/p50"), p50.median, "ms");
        figure(&format!("{name}/p99"), p99.median, "ms");
        figure(&format!("{name}/answers"), rate.median, "per_s");
    }
}
