//! Definitions on a server, as the example `check_definitions` reads them. All definitions of an RCRT (Right Context Right Time)
//! distribution have only warnings, whose paths start at the top of the record.

use super::server::{Server, token_of};
use super::{OWNER, store};
use program::arguments::Arguments;
use program::{Checked, check, exit_code, print};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use universal_executor::check::Severity;
use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb, Secret};

#[path = "../../../examples/check_definitions/main.rs"]
#[expect(dead_code, reason = "the program has a main function of its own")]
mod program;

async fn checked(server: &Server, options: &[&str], token: Option<String>) -> Checked {
    let options = options.iter().map(|&option| option.to_owned());
    let mut arguments = Arguments::parse(options.chain([server.base_url()])).unwrap();
    arguments.token = token.map(Secret::new);
    check(&arguments).await
}

#[tokio::test]
async fn definitions_on_a_server_are_checked_with_the_paths_of_their_records() {
    let server = Server::start().await;
    let store = store(&server);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/rcrt-definitions");
    for folder in ["agents", "tools"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let definition: NewBreadcrumb = serde_json::from_str(&text).unwrap();
            store.create(definition).await.unwrap();
        }
    }
    let broken = NewBreadcrumb::new("agent.def.v1").context(json!({"agent_id": "broken"}));
    store.create(broken).await.unwrap();
    let written = server.seen("POST", "/breadcrumbs").len();

    let options = ["--rcrt", "--owner", OWNER];
    let checked = checked(&server, &options, Some(token_of(OWNER))).await;

    let (report, unread) = &checked;
    assert_eq!(*unread, Vec::<String>::new());
    assert_eq!(report.definitions.len(), 19);
    assert_eq!(report.remote_tools().count(), 13);
    let all = report.definitions.iter().flat_map(|one| &one.findings);
    let errors = all.filter(|finding| finding.severity == Severity::Error);
    let errors: Vec<String> = errors.map(|error| error.path.to_string()).collect();
    assert_eq!(errors, ["context.subscriptions"]);
    assert_eq!(exit_code(&checked), ExitCode::from(1));
    assert_eq!(server.seen("POST", "/breadcrumbs").len(), written);
}

#[tokio::test]
async fn a_server_that_cannot_be_read_is_named_with_the_cause_and_without_the_token() {
    let server = Server::start().await;
    let token = "a-secret-token";
    let url = server.base_url();
    for (options, token, cause) in [
        (&["--owner", OWNER][..], Some(token), "401"),
        (&["--owner", OWNER], None, "RCRT_TOKEN"),
        (&[], Some(token), "--owner <id>"),
    ] {
        let checked = checked(&server, options, token.map(str::to_owned)).await;

        let text = print::text(&checked);
        let start = format!("error: cannot read {url}: ");
        assert!(text.starts_with(&start) && text.contains(cause), "{text}");
        assert!(!text.contains("a-secret-token"), "{text}");
        assert_eq!(exit_code(&checked), ExitCode::from(1));
    }
}

#[tokio::test]
async fn a_server_without_definitions_passes_the_check() {
    let server = Server::start().await;

    let checked = checked(&server, &["--owner", OWNER], Some(token_of(OWNER))).await;

    assert_eq!(checked.1, Vec::<String>::new());
    assert_eq!(exit_code(&checked), ExitCode::SUCCESS);
}
