//! The example that checks definitions, with files, folders, stores and servers as sources.
//!
//! The example's file is a module here, because cargo gives a test no path of an example. `make examples` runs the program itself.

#[path = "../../../examples/check_definitions/main.rs"]
#[expect(dead_code, reason = "the program has a main function of its own")]
mod program;
mod wild;

use program::arguments::Arguments;
use program::{Checked, check, exit_code, print};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use universal_executor::check::{Check, Report};
use universal_executor::{BoxError, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples/data")
        .join(name)
}

fn arguments(options: &[&str], sources: &[&Path]) -> Arguments {
    let options = options.iter().map(|&option| option.to_owned());
    let sources = sources.iter().map(|source| source.display().to_string());
    Arguments::parse(options.chain(sources)).unwrap()
}

async fn checked(options: &[&str], sources: &[&Path]) -> Checked {
    check(&arguments(options, sources)).await
}

/// Creates an empty folder for one test.
fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ux-{name}-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns the lines of the report that start with a word, without the path of the repository.
fn lines(checked: &Checked, severity: &str) -> Vec<String> {
    let text = print::text(checked).replace(env!("CARGO_MANIFEST_DIR"), "");
    let lines = text.lines().filter(|line| line.starts_with(severity));
    lines.map(str::to_owned).collect()
}

fn expect(lines: &[String], words: &[&str]) {
    let found = lines
        .iter()
        .any(|line| words.iter().all(|word| line.contains(word)));
    assert!(found, "{words:?} in {lines:#?}");
}

#[tokio::test]
async fn definitions_as_they_are_found_load_with_warnings() {
    let checked = checked(&[], &[&data("definitions")]).await;

    assert_eq!(lines(&checked, "error"), Vec::<String>::new());
    assert_eq!(checked.0.definitions.len(), 3);
    assert_eq!(exit_code(&checked), ExitCode::SUCCESS);
    let warnings = lines(&checked, "warning");
    let selectors = "context.subscriptions.selectors";
    for words in [
        &[
            "greeter.json:14:17",
            &format!("{selectors}[0].fetch"),
            "fetch method \"latest\" has no effect",
        ][..],
        &[
            "greeter.json",
            &format!("{selectors}[2]"),
            "the same breadcrumbs in another role as subscription 1",
        ],
        &[
            "greeter.json",
            &format!("{selectors}[3]"),
            "the limit 3 has no effect",
        ],
        &["adder.json", &format!("{selectors}[1]"), "has no effect"],
        &[
            "context-builder.json",
            "context.subscriptions[2]",
            "under another key as subscription 1",
        ],
        &[
            "a cycle",
            "adder writes tool.response.v1",
            "which triggers greeter",
        ],
        &["no definition writes user.message.v1"],
        &["no definition writes browser.page.context.v1"],
    ] {
        expect(&warnings, words);
    }
}

#[tokio::test]
async fn an_error_has_file_line_column_and_path() {
    let checked = checked(&[], &[&data("definitions-broken")]).await;

    let errors = lines(&checked, "error");
    assert_eq!(exit_code(&checked), ExitCode::from(1));
    let selectors = "context.subscriptions.selectors";
    for words in [
        &[
            "mistyped.json:6:50: ",
            &format!("{selectors}[0].role"),
            "did you mean \"trigger\"?",
        ][..],
        &[
            "limit.json:7:119: ",
            &format!("{selectors}[1].fetch.limit"),
            "0 is out of range",
        ],
        &["not-json.json:1:", "duplicate key \"name\""],
        &[
            "fields.json:4:15: context.prompt: ",
            "did you mean \"system_prompt\"?",
        ],
        &["fields.json", "context.tool: ", "did you mean \"tools\"?"],
        &[
            "fields.json",
            "context.model_name: ",
            "did you mean \"model\"?",
        ],
        &[
            "fields.json",
            "[0].tags: ",
            "did you mean \"any_tags\" or \"all_tags\"?",
        ],
        &[
            "flow.json:3:",
            "flows.main.banana",
            "unknown field \"banana\"",
        ],
        &["schema.json", "llm_hints.mode", "did you mean"],
    ] {
        expect(&errors, words);
    }
    let warnings = lines(&checked, "warning");
    expect(
        &warnings,
        &["fields.json", "context.system_prompt: missing field"],
    );
    expect(
        &warnings,
        &["fields.json", "no trigger, so no event starts this agent"],
    );
    expect(
        &warnings,
        &["fields.json", "capabilities.can_use_tools: unknown field"],
    );
}

#[tokio::test]
async fn lenient_mode_makes_unknown_fields_of_files_warnings() {
    let file = data("definitions-broken/fields.json");

    let lenient = checked(&["--lenient"], &[&file]).await;
    let strict = checked(&[], &[&file]).await;

    assert_eq!(lines(&lenient, "error"), Vec::<String>::new());
    assert_eq!(
        lines(&strict, "error").len(),
        4,
        "{:#?}",
        lines(&strict, "error")
    );
    expect(
        &lines(&lenient, "warning"),
        &["context.prompt", "has no effect"],
    );
}

#[tokio::test]
async fn folders_are_read_recursively_and_other_files_are_left_alone() {
    let folder = scratch("check-folders");
    std::fs::create_dir_all(folder.join("a/b/.hidden")).unwrap();
    let agent = json!({
        "agent_id": "helper", "system_prompt": "Help.",
        "subscriptions": [{"schema_name": "a.v1", "role": "trigger"}],
    });
    for name in [
        "top.json",
        "a/b/deep.json",
        "a/b/.hidden/x.json",
        "a/readme.md",
    ] {
        std::fs::write(folder.join(name), agent.to_string()).unwrap();
    }
    std::fs::write(folder.join("large.json"), " ".repeat((1 << 20) + 1)).unwrap();

    let checked = checked(&[], &[&folder]).await;

    let names: Vec<&str> = checked
        .0
        .definitions
        .iter()
        .map(|one| &*one.source)
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].ends_with("a/b/deep.json") && names[1].ends_with("top.json"));
    assert_eq!(checked.1.len(), 1);
    assert!(
        checked.1[0].contains("larger than 1048576 bytes"),
        "{:?}",
        checked.1
    );
    assert_eq!(exit_code(&checked), ExitCode::from(1));
}

#[tokio::test]
async fn the_json_report_is_one_document_with_positions_and_counts() {
    let checked = checked(&["--json"], &[&data("definitions-broken/mistyped.json")]).await;

    let document: Value = serde_json::from_str(&print::json(&checked).unwrap()).unwrap();

    assert_eq!(document["errors"], 1);
    assert_eq!(document["definitions"][0]["kind"], "agent");
    let findings = document["definitions"][0]["findings"].as_array().unwrap();
    let error = findings
        .iter()
        .find(|one| one["severity"] == "error")
        .unwrap();
    assert_eq!(error["path"], "context.subscriptions.selectors[0].role");
    assert_eq!((&error["line"], &error["column"]), (&json!(6), &json!(50)));
    assert_eq!(document["unread"], json!([]));
}

async fn of_store(store: &MemoryStore) -> Result<Report, BoxError> {
    let mut unread = Vec::new();
    let sources = program::read::store(store, &mut unread).await?;
    assert_eq!(unread, Vec::<String>::new());
    Ok(Check::new().all(sources))
}

#[tokio::test]
async fn records_of_a_store_are_checked_with_warnings_and_without_a_doubled_context()
-> Result<(), BoxError> {
    let store = MemoryStore::default();
    let text = std::fs::read_to_string(data("definitions/adder.json"))?;
    let adder: NewBreadcrumb = serde_json::from_str(&text)?;
    let id = store.create(adder).await?.id.to_string();
    let odd = json!({"agent_id": "odd", "prompt": "Help."});
    store
        .create(
            NewBreadcrumb::new("agent.def.v1")
                .title("Odd\nagent")
                .context(odd),
        )
        .await?;
    store
        .create(NewBreadcrumb::new("note.v1").context(json!({"a": 1})))
        .await?;

    let checked = (of_store(&store).await?, Vec::new());

    assert_eq!(checked.0.definitions.len(), 2);
    expect(&lines(&checked, "warning"), &[&id, "selected by"]);
    let warning = [
        "Odd agent (",
        ": context.prompt: ",
        "has no effect; did you mean \"system_prompt\"?",
    ];
    expect(&lines(&checked, "warning"), &warning);
    let errors = lines(&checked, "error");
    expect(
        &errors,
        &["Odd agent (", ": context.subscriptions: missing value"],
    );
    assert_eq!(errors.len(), 1, "{errors:?}");
    Ok(())
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_store_file_is_checked() -> Result<(), BoxError> {
    let path = scratch("check-store").join("store.db");
    let store = universal_executor::SqliteStore::builder(&path)
        .open()
        .await?;
    let text = std::fs::read_to_string(data("definitions/adder.json"))?;
    let adder: NewBreadcrumb = serde_json::from_str(&text)?;
    store.create(adder.clone()).await?;
    store.in_tenant("other").create(adder).await?;
    store.close().await;

    let before = std::fs::read(&path)?;

    let of_default = checked(&[], &[&path]).await;
    let of_other = checked(&["--owner", "other"], &[&path]).await;

    for checked in [of_default, of_other] {
        assert_eq!(checked.1, Vec::<String>::new());
        assert_eq!(checked.0.definitions.len(), 1);
        assert_eq!(checked.0.definitions[0].id.as_deref(), Some("adder"));
    }
    assert!(
        std::fs::read(&path)? == before,
        "the check must not change the file"
    );
    Ok(())
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_store_file_of_an_older_version_is_refused_and_not_migrated() -> Result<(), BoxError> {
    let path = scratch("check-older-store").join("store.db");
    let store = universal_executor::SqliteStore::builder(&path);
    store.open().await?.close().await;
    let older = rusqlite::Connection::open(&path)?;
    older.execute_batch("UPDATE ux_schema_version SET version = 1")?;
    drop(older);
    let before = std::fs::read(&path)?;

    let checked = checked(&[], &[&path, &data("definitions/adder.json")]).await;

    assert_eq!(exit_code(&checked), ExitCode::from(1));
    assert_eq!(
        checked.0.definitions.len(),
        1,
        "the other source must still be checked"
    );
    expect(
        &lines(&checked, "error"),
        &[
            "cannot read",
            "store.db",
            "its schema version 1 is older than",
        ],
    );
    assert!(
        std::fs::read(&path)? == before,
        "the check must not change the file"
    );
    Ok(())
}

#[cfg(feature = "yaml")]
#[tokio::test]
async fn a_problem_in_yaml_has_line_and_column() {
    use universal_executor::check::{CheckSource, Kind};

    let text = "agent_id: helper\nsystem_prompt: Help.\nsubscriptions:\n  - schema_name: a.v1\n    role: trigger\n    tags: [b]\n";

    let report = Check::new().all([CheckSource::yaml("helper.yaml", text)]);

    assert_eq!(report.definitions[0].kind, Kind::Agent);
    let checked = (report, Vec::new());
    expect(
        &lines(&checked, "error"),
        &["helper.yaml:6:11: subscriptions[0].tags: "],
    );
}

#[test]
fn unknown_options_are_refused() {
    let error = Arguments::parse(["--jsn".to_owned()]).unwrap_err();

    assert!(
        error.to_string().starts_with("unknown option \"--jsn\""),
        "{error}"
    );
}
