//! Kills workers that share a store, and compares the store with records outside of it.
//!
//! `torture ci` and `torture full` run campaigns. `torture bugs` shows that campaigns detect planted bugs. See
//! `docs/contributing/torture.md`.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a command-line program for developers of the crate"
)]

mod backend;
mod bugs;
mod campaign;
mod check;
mod clock;
mod executors;
mod history;
mod load;
mod nemesis;
mod noise;
mod oracle;
mod payer;
mod people;
mod point;
mod proxy;
mod report;
mod servers;
mod settings;
mod snapshot;
mod worker;

use bugs::{BUGS, Bug, SOME};
use check::Verdict;
use report::Report;
use servers::Servers;
use settings::{On, Settings};
use std::fmt;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use tokio::signal::unix::{SignalKind, signal};
pub use universal_executor::BoxError;

const USAGE: &str = "torture ci|full [--on sqlite|postgres|postgres+nats] [seed]
                                 runs campaigns; by default on SQLite, with the current time as the seed
torture clock [--on sqlite|postgres|postgres+nats] [seed]
                                 runs a campaign with clock jumps
torture judge <folder>           repeats the check of a campaign in its folder
torture bugs some|services|all|<name>
                                 checks that campaigns detect planted bugs; needs the feature _bugs
torture controls some|services|all|<name>
                                 runs the same campaigns without the bugs";

/// Prints a progress line to standard error.
pub fn say(what: fmt::Arguments<'_>) {
    eprintln!("{what}");
}

#[tokio::main]
async fn main() -> Result<ExitCode, BoxError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["worker", folder, slot] => {
            worker::run(Path::new(folder), slot).await?;
            Ok(ExitCode::SUCCESS)
        }
        ["judge", folder] => {
            let folder = Path::new(folder);
            let report = campaign::judge(folder, &Settings::read(folder)?, Instant::now())?;
            verdict(&report)
        }
        ["ci", rest @ ..] => {
            let (on, seed) = chosen(rest)?;
            campaigns(
                on,
                &[
                    Settings::ci_on(seed, on),
                    Settings::deaf_on(seed, on),
                    Settings::clock_on(seed, on),
                ],
            )
            .await
        }
        ["full", rest @ ..] => {
            let (on, seed) = chosen(rest)?;
            campaigns(
                on,
                &[
                    Settings::full_on(seed, on),
                    Settings::deaf_on(seed, on),
                    Settings::full_clock_on(seed, on),
                ],
            )
            .await
        }
        ["clock", rest @ ..] => {
            let (on, seed) = chosen(rest)?;
            campaigns(on, &[Settings::full_clock_on(seed, on)]).await
        }
        ["bugs", ..] if !cfg!(feature = "_bugs") => {
            Err("planted bugs need a build with the feature _bugs".into())
        }
        ["bugs", which] => mistakes(which, bugs).await,
        ["controls", which] => mistakes(which, controls).await,
        _ => Err(USAGE.into()),
    }
}

/// Reads the store and the seed from the arguments.
fn chosen(words: &[&str]) -> Result<(On, u64), BoxError> {
    let (on, seed) = match words {
        ["--on", on, rest @ ..] => (On::of(on)?, rest),
        rest => (On::Sqlite, rest),
    };
    match seed {
        [] => Ok((on, now()?)),
        [seed] => Ok((on, seed.parse()?)),
        _ => Err(USAGE.into()),
    }
}

/// Returns the current time in seconds, as the default seed.
fn now() -> Result<u64, BoxError> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(now.as_secs())
}

/// Runs campaigns in sequence until one fails. Prints the report of each, and keeps the folder of a failed campaign.
async fn campaigns(on: On, all: &[Settings]) -> Result<ExitCode, BoxError> {
    on_servers(on, async |servers| {
        for settings in all {
            let folder = folder(settings)?;
            let shown = folder.display();
            say(format_args!(
                "campaign with seed {} in {shown}",
                settings.seed
            ));
            let report = campaign::run(&folder, settings, servers).await?;
            let code = verdict(&report)?;
            if code != ExitCode::SUCCESS {
                println!("the files of the campaign are in {shown}");
                return Ok(code);
            }
            clear(&folder, servers).await?;
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

/// Starts servers if the store needs them, runs `work`, and stops the servers, even after a signal.
async fn on_servers(
    on: On,
    work: impl AsyncFnOnce(Option<&Servers>) -> Result<ExitCode, BoxError>,
) -> Result<ExitCode, BoxError> {
    let servers = match on {
        On::Sqlite => None,
        On::Postgres | On::Nats => Some(Servers::start().await?),
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let done = tokio::select! {
        done = work(servers.as_ref()) => done,
        _ = terminate.recv() => Err("interrupted".into()),
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
    };
    if let Some(servers) = servers {
        servers.stop().await?;
    }
    done
}

/// Removes the folder and the database schema of a campaign.
async fn clear(folder: &Path, servers: Option<&Servers>) -> Result<(), BoxError> {
    if let Some(servers) = servers {
        servers.clear(folder).await?;
    }
    Ok(std::fs::remove_dir_all(folder)?)
}

/// Prints the report of a campaign, and returns the exit code: 0 for success, 1 for a broken promise, 2 for too few faults.
fn verdict(report: &Report) -> Result<ExitCode, BoxError> {
    println!("{}", serde_json::to_string_pretty(report)?);
    let Verdict {
        broken, unshown, ..
    } = &report.verdict;
    if broken.is_empty() && unshown.is_empty() {
        println!("every promise was kept");
        return Ok(ExitCode::SUCCESS);
    }
    for promise in broken {
        println!("broken: {promise}");
    }
    for missing in unshown {
        println!("not shown: {missing}");
    }
    // The Makefile repeats a campaign with exit code 2, but not one with a broken promise.
    let code = if broken.is_empty() { 2 } else { 1 };
    Ok(ExitCode::from(code))
}

/// Runs `with` for the selected planted bugs, each with all stores on which a campaign must detect it.
async fn mistakes(
    which: &str,
    with: impl AsyncFn(&[(Bug, On)], Option<&Servers>) -> Result<ExitCode, BoxError>,
) -> Result<ExitCode, BoxError> {
    let all = BUGS
        .into_iter()
        .flat_map(|bug| bug.on.iter().map(move |on| (bug, *on)));
    let chosen: Vec<(Bug, On)> = match which {
        "some" => all.filter(|(_, on)| *on == On::Sqlite).take(SOME).collect(),
        "services" => all.filter(|(_, on)| *on != On::Sqlite).collect(),
        "all" => all.collect(),
        name => all.filter(|(bug, _)| bug.name == name).collect(),
    };
    if chosen.is_empty() {
        return Err("no planted bug has this name".into());
    }
    let needs = chosen.iter().find(|(_, on)| *on != On::Sqlite);
    let on = needs.map_or(On::Sqlite, |(_, on)| *on);
    on_servers(on, async |servers| with(&chosen, servers).await).await
}

/// Runs the campaigns of planted bugs without the bugs. Fails if one finds a broken promise.
async fn controls(bugs: &[(Bug, On)], servers: Option<&Servers>) -> Result<ExitCode, BoxError> {
    let mut code = ExitCode::SUCCESS;
    for (bug, on) in bugs {
        let settings = Settings {
            bug: None,
            ..bug.campaign(now()?, *on)
        };
        let folder = folder(&settings)?;
        let report = run_on(&folder, &settings, servers).await?;
        let (name, on, broken) = (bug.name, on.name(), &report.verdict.broken);
        println!(
            "control of {name} on {on}: {} broken promises",
            broken.len()
        );
        if broken.is_empty() {
            clear(&folder, servers).await?;
        } else {
            println!(
                "{}\nthe files are in {}",
                broken.join("\n"),
                folder.display()
            );
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Maximum number of campaigns to detect one planted bug.
const TRIES: usize = 3;

/// Plants the bugs in sequence, and prints how many the campaigns detected.
async fn bugs(bugs: &[(Bug, On)], servers: Option<&Servers>) -> Result<ExitCode, BoxError> {
    let mut caught = 0;
    for (bug, on) in bugs {
        for attempt in 1..=TRIES {
            if is_caught(bug, *on, attempt, servers).await? {
                caught += 1;
                break;
            }
        }
    }
    println!("{caught} of {} mistakes caught", bugs.len());
    Ok(if caught == bugs.len() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs a campaign with a planted bug. Returns `true` if it found a broken promise; otherwise keeps its folder.
async fn is_caught(
    bug: &Bug,
    on: On,
    attempt: usize,
    servers: Option<&Servers>,
) -> Result<bool, BoxError> {
    let settings = bug.campaign(now()?, on);
    let folder = folder(&settings)?;
    let report = run_on(&folder, &settings, servers).await?;
    let (name, on, broken) = (bug.name, on.name(), &report.verdict.broken);
    let Some(first) = broken.first() else {
        println!(
            "MISSED: {name} on {on} ({}), campaign {attempt} of {TRIES}, seed {}; see {}",
            bug.what,
            settings.seed,
            folder.display()
        );
        return Ok(false);
    };
    println!(
        "caught: {name} on {on} ({}): {} broken promises, such as: {first}",
        bug.what,
        broken.len()
    );
    clear(&folder, servers).await?;
    Ok(true)
}

/// Runs a campaign, without the servers if it is on SQLite.
async fn run_on(
    folder: &Path,
    settings: &Settings,
    servers: Option<&Servers>,
) -> Result<Report, BoxError> {
    let servers = servers.filter(|_| settings.on != On::Sqlite);
    campaign::run(folder, settings, servers).await
}

fn folder(settings: &Settings) -> Result<PathBuf, BoxError> {
    let name = format!(
        "torture-{}-{}-{}{}",
        settings.seed,
        std::process::id(),
        settings.bug.as_deref().unwrap_or("none"),
        match (settings.deaf, settings.jumps > 0) {
            (true, _) => "-deaf",
            (false, true) => "-clock",
            (false, false) => "",
        },
    );
    let folder = std::env::temp_dir().join(name);
    // The folder has the password of a server.
    DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}
