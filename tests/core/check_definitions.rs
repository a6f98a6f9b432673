//! The example that checks definitions, on definitions as they are found and on broken ones.
//!
//! Its file is a module here, as cargo gives a test the path of no example; `make examples` runs the program itself.

#[path = "../../examples/check_definitions.rs"]
#[expect(dead_code, reason = "the program has a main function of its own")]
mod program;

use program::{Report, check, from_folder, from_store};
use std::path::Path;
use std::process::ExitCode;
use universal_executor::{BoxError, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};

fn of(folder: &str) -> std::io::Result<Report> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data");
    Ok(check(&from_folder(&root.join(folder))?))
}

fn has(lines: &[String], words: &[&str]) -> bool {
    lines
        .iter()
        .any(|line| words.iter().all(|word| line.contains(word)))
}

#[test]
fn definitions_as_they_are_found_load_with_warnings() -> std::io::Result<()> {
    let report = of("definitions")?;

    assert_eq!(
        (report.definitions, report.errors.len()),
        (3, 0),
        "{report:?}"
    );
    assert_eq!(report.exit_code(), ExitCode::SUCCESS);
    let selectors = "context.subscriptions.selectors";
    for words in [
        &[
            "greeter.json",
            &format!("{selectors}[0]"),
            "\"latest\" is ignored",
        ][..],
        &[
            "greeter.json",
            &format!("{selectors}[2]"),
            "unknown field \"order_by\" has no effect",
        ],
        &[
            "greeter.json",
            &format!("{selectors}[2]"),
            "the same in another role as subscription 1",
        ],
        &[
            "greeter.json",
            &format!("{selectors}[3]"),
            "limit of 3 is ignored",
        ],
        &[
            "adder.json",
            &format!("{selectors}[1]"),
            "never counts, as all it selects is selected by subscription 0",
        ],
        &[
            "context-builder.json",
            "context.subscriptions[2]",
            "fetches the same under another key as subscription 1",
        ],
        &[
            "a cycle",
            "adder writes tool.response.v1",
            "which triggers greeter, which writes tool.request.v1",
        ],
        &["nobody here writes user.message.v1"],
        &["nobody here writes browser.page.context.v1"],
    ] {
        assert!(
            has(&report.warnings, words),
            "{words:?} in {:#?}",
            report.warnings
        );
    }
    Ok(())
}

#[test]
fn what_is_wrong_is_an_error_with_its_file_and_path() -> std::io::Result<()> {
    let report = of("definitions-broken")?;

    let selectors = "context.subscriptions.selectors";
    assert_eq!(
        (report.definitions, report.errors.len()),
        (0, 3),
        "{report:?}"
    );
    assert_eq!(report.exit_code(), ExitCode::from(1));
    for words in [
        &[
            "mistyped.json",
            &format!("{selectors}[0].role"),
            "did you mean \"trigger\"?",
        ][..],
        &[
            "limit.json",
            &format!("{selectors}[1].fetch.limit"),
            "0 is not between",
        ],
        &["not-json.json", "name"],
    ] {
        assert!(
            has(&report.errors, words),
            "{words:?} in {:#?}",
            report.errors
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_store_is_checked_as_a_folder_is() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let text = std::fs::read_to_string("examples/data/definitions/adder.json")?;
    let adder: NewBreadcrumb = serde_json::from_str(&text)?;
    let id = store.create(adder).await?.id.to_string();

    let report = check(&from_store(&store).await?);

    assert_eq!(report.definitions, 1);
    assert!(has(&report.warnings, &[&id, "never counts"]), "{report:?}");
    Ok(())
}
