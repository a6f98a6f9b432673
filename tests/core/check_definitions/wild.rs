//! Definitions in the shapes of an RCRT (Right Context Right Time) distribution: five agents and thirteen tools, which load unchanged.

use super::{checked, data, expect, lines};
use crate::support::{all, eventually, put};
use serde_json::Value;
use std::process::ExitCode;
use std::sync::Arc;
use universal_executor::agent::{AgentDefinition, AgentExecutor, ScriptedModel};
use universal_executor::check::{Check, CheckSource, Kind, Severity};
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::{MemoryStore, Runtime, Services};

fn files(folder: &str) -> Vec<Value> {
    let folder = data("rcrt-definitions").join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let texts = paths
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap());
    texts
        .map(|text| serde_json::from_str(&text).unwrap())
        .collect()
}

#[test]
fn the_five_agents_of_an_rcrt_distribution_load_unchanged() {
    let agents = files("agents");
    assert_eq!(agents.len(), 5);

    for definition in agents {
        let read = AgentDefinition::from_json(&definition).unwrap();

        let unknown: Vec<String> = read
            .warnings()
            .iter()
            .map(|warning| warning.path.to_string())
            .collect();
        for place in &unknown {
            let expected = ["llm_config_id", "capabilities.can_use_tools"];
            assert!(expected.contains(&&**place), "{place} of {}", read.agent_id);
        }
        assert_eq!(read.responds_with, [AgentExecutor::RESPONSE]);
        let model = Arc::new(ScriptedModel::new(["Hello."]));
        AgentExecutor::new(read, model, Arc::new(MemoryStore::default())).unwrap();
    }
}

#[tokio::test]
async fn a_check_of_an_rcrt_distribution_finds_warnings_and_no_errors() {
    let checked = checked(&["--rcrt"], &[&data("rcrt-definitions")]).await;

    assert_eq!(lines(&checked, "error"), Vec::<String>::new());
    assert_eq!(super::exit_code(&checked), ExitCode::SUCCESS);
    let kinds = |kind| {
        checked
            .0
            .definitions
            .iter()
            .filter(|one| one.kind == kind)
            .count()
    };
    assert_eq!((kinds(Kind::Agent), kinds(Kind::RemoteTool)), (5, 13));
    let warnings = lines(&checked, "warning");
    for words in [
        &["note-tagger.json", "capabilities.can_use_tools"][..],
        &["note-tagger.json", "fetch method \"latest\" has no effect"],
        &[
            "page-helper.json",
            "[5]: selects the same breadcrumbs in another role as subscription 4",
        ],
        &[
            "calculator.json",
            "context.code: remote tool: its code (typescript) needs another runtime",
        ],
    ] {
        expect(&warnings, words);
    }
    assert!(
        !warnings.iter().any(|line| line.contains("llm_config")),
        "{warnings:#?}"
    );
    assert!(
        !warnings.iter().any(|line| line.contains("comment")),
        "{warnings:#?}"
    );
}

#[tokio::test]
async fn a_schema_that_an_agent_without_a_list_may_create_counts_as_written() {
    let checked = checked(&["--rcrt"], &[&data("rcrt-definitions")]).await;

    let warnings = lines(&checked, "warning");
    let is_unwritten = |schema: &str| {
        let message = format!("no definition writes {schema};");
        warnings.iter().any(|line| line.contains(&message))
    };
    assert!(!is_unwritten("note.tags.v1"), "{warnings:#?}");
    assert!(is_unwritten("user.message.v1"), "{warnings:#?}");
}

#[tokio::test]
async fn the_thirteen_tools_are_listed_as_remote_tools_with_one_warning_each() {
    let checked = checked(&["--rcrt"], &[&data("rcrt-definitions/tools")]).await;

    let remote: Vec<&str> = checked.0.remote_tools().collect();
    assert_eq!(remote.len(), 13);
    let listed = lines(&checked, "remote tools: ");
    assert!(
        listed[0].contains("breadcrumb-create, breadcrumb-search, calculator"),
        "{listed:?}"
    );
    for tool in &checked.0.definitions {
        assert_eq!(tool.findings.len(), 1, "{tool:?}");
        assert_eq!(tool.findings[0].severity, Severity::Warning);
    }
}

#[test]
fn a_file_for_an_rcrt_server_needs_the_option_for_its_fields() {
    let definition = files("agents").into_iter().find(|one| {
        let id = one["context"].get("llm_config_id");
        id.is_some_and(Value::is_string)
    });
    let text = definition.unwrap().to_string();
    let source = || CheckSource::json("agent.json", &*text);

    let without = Check::new().one(&source());
    let with = Check::new().rcrt().one(&source());

    let errors = |findings: &[universal_executor::check::Finding]| {
        let errors = findings
            .iter()
            .filter(|one| one.severity == Severity::Error);
        errors.map(|one| one.path.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(errors(&without.findings), ["context.llm_config_id"]);
    assert_eq!(errors(&with.findings), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_loads_all_agents_of_an_rcrt_distribution_beside_its_tools() {
    let store = MemoryStore::default();
    let definitions = files("agents").into_iter().chain(files("tools"));
    for definition in definitions {
        let schema = definition["schema_name"].as_str().unwrap();
        put(&store, schema, definition["context"].clone()).await;
    }
    let services = Services::new().default_model(ScriptedModel::new(["Hello."]));
    let definitions = StoredDefinitions::new(&store, &services).agents();
    let runtime = Runtime::builder(store.events()).definitions(definitions);
    let runtime = runtime.build().unwrap();

    let loaded = async { eventually(async || runtime.executors().len() == 5).await };
    runtime.run_until(loaded).await.unwrap();

    assert!(all(&store, StoredDefinitions::REJECTED).await.is_empty());
}
