//! A chat in the terminal that continues after `kill -9`: one session with an agent, and the answer while the model writes it.
//!
//! ```text
//! cargo run --features sqlite --example chat             # sends two messages
//! cargo run --features sqlite --example chat -- talk     # you write the messages; an empty line ends the program
//! MODEL_URL=http://localhost:11434/v1 MODEL=llama3.2 cargo run --features openai,sqlite --example chat -- talk
//! ```
//!
//! The state is in a SQLite file next to the executable. Kill the program while it prints an answer and start it again: it prints the
//! conversation and finishes the answer, after the lease of the killed process. The agent can also run in another process.
#![expect(clippy::print_stdout, reason = "the output is the point of an example")]

use futures::stream::{self, BoxStream, StreamExt as _};
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use universal_executor::agent::{
    Agent, ChatEvent, ChatModel, ChatRequest, ChatResponse, ModelError, Speaker, StopReason,
};
use universal_executor::client::{Session, Turn, TurnEvent};
use universal_executor::{BoxError, Client, Runtime, SqliteStore, Subscription, async_trait};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let store = SqliteStore::open(std::env::current_exe()?.with_extension("db")).await?;
    let agent = Agent::new("helper", model()?)
        .instructions("Talk with the user, in short sentences.")
        .on(Subscription::trigger("user.message.v1"))
        .profile(|profile| profile.lease(Duration::from_secs(5)));
    let running = Runtime::on(&store).agent(agent).start().await?;
    let client = Client::new(&store);

    if std::env::args().any(|argument| argument == "talk") {
        let session = client.session("helper", "talk")?;
        catch_up(&session).await?;
        let mut lines = lines();
        while let Some(line) = lines.recv().await.filter(|line| !line.is_empty()) {
            show(session.send(line).await?).await?;
        }
    } else {
        let session = client.session("helper", "demonstration")?;
        catch_up(&session).await?;
        for line in ["I am Ann.", "Who am I?"] {
            println!("user: {line}");
            show(session.send(line).await?).await?;
        }
        session.delete().await?;
    }
    running.stop().await?;
    Ok(())
}

/// Maximum time for which the program follows the answer of an earlier process.
const CATCH_UP: Duration = Duration::from_secs(120);

/// Prints the conversation, and follows the turns that an earlier process left open.
async fn catch_up(session: &Session) -> Result<(), BoxError> {
    // This call comes before `history`, so an answer that ends in between is not lost.
    let mut open = session.open_turns().await?;
    for past in session.history().await? {
        println!("user: {}", past.message);
        let mut turns = open.iter();
        let index = turns.position(|turn| turn.request().id() == past.request);
        match (index, past.end) {
            (Some(index), _) => match timeout(CATCH_UP, show(open.remove(index))).await {
                Ok(shown) => shown?,
                Err(_) => println!("(no answer yet)"),
            },
            (None, Some(end)) => println!("agent: {end}"),
            (None, None) => println!("agent: (no answer)"),
        }
    }
    Ok(())
}

/// Prints an answer as it arrives.
async fn show(mut turn: Turn) -> Result<(), BoxError> {
    let mut shown = String::new();
    print!("agent: ");
    while let Some(next) = turn.next().await {
        match next?.event {
            TurnEvent::Text(text) => {
                print!("{text}");
                shown.push_str(&text);
            }
            TurnEvent::Restarted { .. } if !shown.is_empty() => {
                println!(" [a worker was lost, the answer starts again]");
                shown.clear();
            }
            // The outcome has the whole answer, or the reason for its absence.
            TurnEvent::End(end) if end.text() != Some(&*shown) => print!("\n{end}"),
            _ => {}
        }
        std::io::stdout().flush()?;
    }
    println!();
    Ok(())
}

/// Reads the terminal on a separate thread. A read blocks its thread, and the worker needs the thread of `main` for its heartbeats.
fn lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// A model behind an endpoint, if the environment names one. Otherwise a model without a network.
fn model() -> Result<Arc<dyn ChatModel>, BoxError> {
    #[cfg(feature = "openai")]
    if let (Ok(url), Ok(name)) = (std::env::var("MODEL_URL"), std::env::var("MODEL")) {
        let mut builder = universal_executor::agent::OpenAiCompatible::builder(url).model(name);
        if std::env::var_os("MODEL_KEY").is_some() {
            builder = builder.key_from_env("MODEL_KEY");
        }
        return Ok(Arc::new(builder.build()?));
    }
    Ok(Arc::new(Slow))
}

/// A model that repeats the message before the last one, with a pause after each word: time to kill the program.
struct Slow;

#[async_trait]
impl ChatModel for Slow {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        ChatResponse::collect(self.stream(request).await?).await
    }

    async fn stream(
        &self,
        request: &ChatRequest,
    ) -> Result<BoxStream<'static, Result<ChatEvent, ModelError>>, ModelError> {
        const PAUSE: Duration = Duration::from_millis(200);
        // The last turn, which is a message and its answer, comes before the new message.
        let earlier = request.messages.iter().rev().nth(2);
        let answer = match earlier {
            Some(said) if said.speaker == Speaker::User => format!("You said: {}", said.text()),
            Some(_) | None => "Nice to meet you.".to_owned(),
        };
        let words = answer.split_inclusive(' ');
        let mut events: Vec<ChatEvent> =
            words.map(|word| ChatEvent::Text(word.to_owned())).collect();
        events.push(ChatEvent::End(StopReason::Finished));
        let paused = stream::iter(events).then(|event| async move {
            tokio::time::sleep(PAUSE).await;
            Ok(event)
        });
        Ok(paused.boxed())
    }
}
