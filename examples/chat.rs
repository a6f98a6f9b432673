//! A chat in the terminal: a supervisor, one session, and the answer as it comes.
//!
//! ```text
//! cargo run --example chat                                   # says a few things by itself
//! cargo run --example chat -- talk                           # you say them; an empty line ends it
//! MODEL_URL=http://localhost:11434/v1 MODEL=llama3.2 cargo run --features openai --example chat -- talk
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use serde_json::json;
use std::io::{BufRead as _, Write as _};
use std::pin::pin;
use std::sync::Arc;
use universal_executor::agent::{ChatEvent, ChatModel, ScriptedModel, StopReason};
use universal_executor::workflow::{Parts, Workflow};
use universal_executor::workload::{
    Deps, FlowDefinition, Heard, Subscriber, Supervisor, WorkloadEventKind,
};
use universal_executor::{BoxError, MemoryStore};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let workflow = Workflow::from_json(&json!({
        "agents": {"main": {"instruction": "Talk with the user, in short sentences."}},
        "policies": {"compaction": {"method": "summarise", "at_tokens": 8000, "keep": 20}},
    }))?;
    let parts = Parts::new().default_model(model()?);
    let deps = Deps::new(parts, Arc::new(MemoryStore::default()));
    let supervisor =
        Supervisor::builder(Arc::new(FlowDefinition::new("chat", workflow)?), deps).build()?;
    let mut subscriber = supervisor.subscribe("terminal")?;

    if std::env::args().any(|argument| argument == "talk") {
        for line in std::io::stdin().lock().lines() {
            let line = line?;
            if line.is_empty() {
                break;
            }
            say(&supervisor, &mut subscriber, &line).await?;
        }
    } else {
        for line in ["I am Ann.", "Who am I?"] {
            println!("> {line}");
            say(&supervisor, &mut subscriber, line).await?;
        }
    }
    supervisor.close().await;
    Ok(())
}

/// Says one thing, and shows the answer as it comes, until the turn has ended.
async fn say(supervisor: &Supervisor, heard: &mut Subscriber, line: &str) -> Result<(), BoxError> {
    let turn = supervisor.send("terminal", line)?;
    let run = turn.run().to_owned();
    let mut outcome = pin!(turn.outcome());
    loop {
        // All that is told of a turn is told before its outcome, but a slow listener may have missed it.
        let heard = tokio::select! {
            biased;
            Some(heard) = heard.next() => heard,
            _ = &mut outcome => break,
        };
        match heard {
            Heard::Event(event) if *event.run == *run => match &event.kind {
                WorkloadEventKind::Text(text) => print!("{text}"),
                WorkloadEventKind::Error { failure, .. } => print!("[{}]", failure.message),
                _ => continue,
            },
            Heard::Event(_) => continue,
            Heard::Missed(events) => print!("[{events} events were missed]"),
        }
        std::io::stdout().flush()?;
    }
    println!();
    Ok(())
}

/// A model behind an endpoint, if the environment names one, else one that knows what it was told before.
fn model() -> Result<Arc<dyn ChatModel>, BoxError> {
    #[cfg(feature = "openai")]
    if let (Ok(url), Ok(name)) = (std::env::var("MODEL_URL"), std::env::var("MODEL")) {
        let mut builder = universal_executor::agent::OpenAiCompatible::builder(url).model(name);
        if std::env::var_os("MODEL_KEY").is_some() {
            builder = builder.key_from_env("MODEL_KEY");
        }
        return Ok(Arc::new(builder.build()?));
    }
    Ok(Arc::new(ScriptedModel::streaming(|_, request| {
        // Before the message stand its last answer and what was said then.
        let answer = match request.messages.iter().rev().nth(2) {
            Some(said) => format!("You said: {}", said.text()),
            None => "Nice to meet you.".to_owned(),
        };
        let words = answer
            .split_inclusive(' ')
            .map(|word| Ok(ChatEvent::Text(word.to_owned())));
        words
            .chain([Ok(ChatEvent::End(StopReason::Finished))])
            .collect()
    })))
}
