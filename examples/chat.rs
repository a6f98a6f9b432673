//! A chat in the terminal: one session with an agent, and the answer while the model writes it.
//!
//! ```text
//! cargo run --example chat                                   # sends two messages
//! cargo run --example chat -- talk                           # you write the messages; an empty line ends the program
//! MODEL_URL=http://localhost:11434/v1 MODEL=llama3.2 cargo run --features openai --example chat -- talk
//! ```
//!
//! With `SqliteStore` instead of `MemoryStore` the session continues after a restart, and the agent can run in another process.
#![expect(clippy::print_stdout, reason = "the output is the point of an example")]

use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use universal_executor::agent::{Agent, ChatEvent, ChatModel, ScriptedModel, StopReason};
use universal_executor::client::{Session, TurnEvent};
use universal_executor::{BoxError, Client, MemoryStore, Runtime, Subscription};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let agent = Agent::new("helper", model()?)
        .instructions("Talk with the user, in short sentences.")
        .on(Subscription::trigger("user.message.v1"));
    let running = Runtime::on(&store).agent(agent).start().await?;
    let session = Client::new(&store).session("helper", "terminal")?;

    if std::env::args().any(|argument| argument == "talk") {
        for line in std::io::stdin().lock().lines() {
            let line = line?;
            if line.is_empty() {
                break;
            }
            say(&session, &line).await?;
        }
    } else {
        for line in ["I am Ann.", "Who am I?"] {
            println!("> {line}");
            say(&session, line).await?;
        }
    }
    running.stop().await?;
    Ok(())
}

/// Sends a message, and prints the answer as it arrives.
async fn say(session: &Session, line: &str) -> Result<(), BoxError> {
    let mut turn = session.send(line).await?;
    let mut printed = String::new();
    while let Some(next) = turn.next().await {
        match next?.event {
            TurnEvent::Text(text) => {
                print!("{text}");
                printed.push_str(&text);
            }
            TurnEvent::Restarted { .. } => {
                println!(" [a worker was lost, the answer starts again]");
                printed.clear();
            }
            // The outcome has the whole answer, or the reason for its absence.
            TurnEvent::End(end) if end.text() != Some(printed.as_str()) => print!("\n{end}"),
            _ => {}
        }
        std::io::stdout().flush()?;
    }
    println!();
    Ok(())
}

/// A model behind an endpoint, if the environment names one. Otherwise a model that repeats the message before the last one.
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
        // The instructions, then the earlier turns, the context and the message.
        let answer = match request.messages.get(1) {
            Some(said) if request.messages.len() > 3 => format!("You said: {}", said.text()),
            Some(_) | None => "Nice to meet you.".to_owned(),
        };
        let words = answer
            .split_inclusive(' ')
            .map(|word| Ok(ChatEvent::Text(word.to_owned())));
        words
            .chain([Ok(ChatEvent::End(StopReason::Finished))])
            .collect()
    })))
}
