//! Kills workers that share a store, and checks with files of its own what the store says happened.
//!
//! `torture ci` and `torture full` run a campaign, `torture bugs` shows that mistakes made on purpose are found. See
//! `docs/torture.md`.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a program for those who change the crate"
)]

mod backend;
mod bugs;
mod campaign;
mod check;
mod executors;
mod history;
mod load;
mod nemesis;
mod noise;
mod oracle;
mod point;
mod report;
mod settings;
mod snapshot;
mod worker;

use bugs::{BUGS, Bug, SOME};
use check::Verdict;
use report::Report;
use settings::Settings;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
pub use universal_executor::BoxError;

const USAGE: &str = "torture ci|full [seed]   a campaign; the seed is the time unless given
torture judge <folder>           a campaign that was kept, once more
torture bugs some|all|<name>   whether mistakes made on purpose are found; needs the feature _bugs
torture controls         the campaigns of those mistakes without any";

/// Tells whoever watches.
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
        ["ci"] => campaign(Settings::ci(seed()?)).await,
        ["ci", seed] => campaign(Settings::ci(seed.parse()?)).await,
        ["full"] => campaign(Settings::full(seed()?)).await,
        ["full", seed] => campaign(Settings::full(seed.parse()?)).await,
        ["judge", folder] => judge(Path::new(folder)).await,
        ["controls"] => controls().await,
        ["bugs", ..] if !cfg!(feature = "_bugs") => Err("this needs the feature _bugs".into()),
        ["bugs", "some"] => bugs(BUGS.get(..SOME).unwrap_or(&BUGS)).await,
        ["bugs", "all"] => bugs(&BUGS).await,
        ["bugs", name] => {
            let bug = BUGS.into_iter().find(|bug| bug.name == *name);
            bugs(&[bug.ok_or("there is no bug of this name")?]).await
        }
        _ => Err(USAGE.into()),
    }
}

fn seed() -> Result<u64, BoxError> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(now.as_secs())
}

/// Runs one, prints what it came to, and keeps its files if something is wrong.
async fn campaign(settings: Settings) -> Result<ExitCode, BoxError> {
    let folder = folder(&settings)?;
    say(format_args!(
        "seed {} in {}",
        settings.seed,
        folder.display()
    ));
    let report = campaign::run(&folder, &settings).await?;
    let code = verdict(&report)?;
    if code == ExitCode::SUCCESS {
        std::fs::remove_dir_all(&folder)?;
    } else {
        println!("see {}", folder.display());
    }
    Ok(code)
}

/// Checks a campaign that was kept once more.
async fn judge(folder: &Path) -> Result<ExitCode, BoxError> {
    let settings = Settings::read(folder)?;
    let report = campaign::judge(folder, &settings, Instant::now()).await?;
    verdict(&report)
}

/// Prints what a campaign came to.
fn verdict(report: &Report) -> Result<ExitCode, BoxError> {
    println!("{}", serde_json::to_string_pretty(report)?);
    let Verdict { broken, unshown } = &report.verdict;
    if broken.is_empty() && unshown.is_empty() {
        println!("every promise was kept");
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "{} broken promises, {} things not shown",
        broken.len(),
        unshown.len(),
    );
    // What shows too little may be run again, what finds something not.
    let code = if broken.is_empty() { 2 } else { 1 };
    Ok(ExitCode::from(code))
}

/// The campaigns that show mistakes, without any: each has to find nothing.
async fn controls() -> Result<ExitCode, BoxError> {
    let mut code = ExitCode::SUCCESS;
    for bug in BUGS {
        let settings = Settings {
            bug: None,
            ..bug.campaign(seed()?)
        };
        let folder = folder(&settings)?;
        let report = campaign::run(&folder, &settings).await?;
        let broken = &report.verdict.broken;
        println!("{} without it: {} broken promises", bug.name, broken.len());
        if broken.is_empty() {
            std::fs::remove_dir_all(&folder)?;
        } else {
            println!("{}, see {}", broken.join("\n"), folder.display());
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Makes one mistake after the other, and says which were found.
async fn bugs(bugs: &[Bug]) -> Result<ExitCode, BoxError> {
    let seed = seed()?;
    let mut missed = 0;
    for bug in bugs {
        let settings = bug.campaign(seed);
        let folder = folder(&settings)?;
        let report = campaign::run(&folder, &settings).await?;
        let first = report.verdict.broken.first();
        match first {
            Some(first) => println!(
                "caught: {} ({}): {} broken promises, such as: {first}",
                bug.name,
                bug.what,
                report.verdict.broken.len()
            ),
            None => {
                missed += 1;
                println!(
                    "MISSED: {} ({}), seed {seed}; see {}",
                    bug.name,
                    bug.what,
                    folder.display()
                );
                continue;
            }
        }
        std::fs::remove_dir_all(&folder)?;
    }
    println!("{} of {} mistakes caught", bugs.len() - missed, bugs.len());
    Ok(if missed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn folder(settings: &Settings) -> Result<PathBuf, BoxError> {
    let name = format!(
        "torture-{}-{}-{}",
        settings.seed,
        settings.bug.as_deref().unwrap_or("none"),
        std::process::id()
    );
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
