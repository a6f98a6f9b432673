//! A model that obeys every order in every text that it receives, which is the worst possible effect of a prompt injection.
//!
//! The model knows these orders, also in escaped JSON and between invisible characters:
//!
//! | order | effect |
//! |---|---|
//! | `CALL <tool> <json>` | calls the tool |
//! | `CALL@<id> <tool> <json>` | calls the tool under this ID |
//! | `CALL! <tool> <anything>` | calls the tool with the unchanged rest of the line |
//! | `WRITE <json>` | answers with this action |
//! | `SAY <text>` | answers with the rest of the line |
//! | `REPEAT SECRETS` | answers with everything that it has received |
//!
//! The model obeys each order once. Calls come first, because an answer would end the run.

use serde::de::IgnoredAny;
use std::collections::HashSet;
use std::sync::Mutex;
use universal_executor::agent::{
    ChatMessage, ChatModel, ChatRequest, ChatResponse, ModelArguments, ModelError, Secret, Speaker,
    ToolCall,
};
use universal_executor::async_trait;

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Order {
    Call {
        id: Option<String>,
        tool: String,
        arguments: String,
    },
    Write(String),
    Say(String),
    Repeat,
}

/// The obedient model, with a key like a model behind an API.
#[derive(Debug)]
pub(crate) struct ObedientModel {
    #[expect(dead_code, reason = "it is here to be printed, if anything prints it")]
    key: Secret,
    done: Mutex<HashSet<Order>>,
    shown: Mutex<Vec<ChatRequest>>,
}

impl ObedientModel {
    pub(crate) fn new(key: &str) -> Self {
        Self {
            key: Secret::new(key),
            done: Mutex::default(),
            shown: Mutex::default(),
        }
    }

    /// Returns all text that the model received.
    pub(crate) fn shown(&self) -> String {
        let shown = self.shown.lock().unwrap();
        let messages = shown.iter().flat_map(|request| &request.messages);
        let texts: Vec<_> = messages.map(ChatMessage::text).collect();
        texts.join("\n")
    }

    fn obey(&self, request: &ChatRequest) -> ChatResponse {
        let read = request.messages.iter();
        let read = read.filter(|message| message.speaker != Speaker::System);
        let orders = read.flat_map(|message| orders(&message.text()));
        let mut done = self.done.lock().unwrap();
        let mut calls = Vec::new();
        let mut answer = None;
        for order in orders {
            let is_call = matches!(order, Order::Call { .. });
            if (!is_call && answer.is_some()) || done.contains(&order) {
                continue;
            }
            match &order {
                Order::Call {
                    id,
                    tool,
                    arguments,
                } => {
                    let id = id.clone().unwrap_or_else(|| format!("c{}", done.len()));
                    let arguments = ModelArguments::from_text(&**arguments);
                    calls.push(ToolCall::new(id, &**tool, arguments));
                    done.insert(order);
                }
                Order::Write(_) | Order::Say(_) | Order::Repeat => answer = Some(order),
            }
        }
        match answer {
            _ if !calls.is_empty() => ChatResponse::calling(calls),
            Some(order) => {
                done.insert(order.clone());
                ChatResponse::new(match order {
                    Order::Write(text) | Order::Say(text) => text,
                    Order::Repeat | Order::Call { .. } => {
                        let texts: Vec<_> =
                            request.messages.iter().map(ChatMessage::text).collect();
                        texts.join("\n")
                    }
                })
            }
            None => ChatResponse::new("There is nothing more to do."),
        }
    }
}

#[async_trait]
impl ChatModel for ObedientModel {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        self.shown.lock().unwrap().push(request.clone());
        Ok(self.obey(request))
    }
}

/// Returns the orders in a text, in every way in which the text can be unescaped.
fn orders(text: &str) -> Vec<Order> {
    /// Maximum number of quoting levels.
    const DEEPEST: usize = 4;
    let mut found = Vec::new();
    let mut reading = text.to_owned();
    for _ in 0..DEEPEST {
        let visible = reading.chars().filter(|c| !is_invisible(*c)).collect();
        for order in [&reading, &visible].into_iter().flat_map(|text| read(text)) {
            if !found.contains(&order) {
                found.push(order);
            }
        }
        reading = unescaped(&reading);
    }
    found
}

/// Removes one level of JSON escapes.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match (c, rest.clone().next()) {
            ('\\', Some('u')) => {
                let digits: String = rest.clone().skip(1).take(4).collect();
                let c = u32::from_str_radix(&digits, 16)
                    .ok()
                    .and_then(char::from_u32);
                plain.push(c.unwrap_or('?'));
                rest.nth(4);
            }
            ('\\', Some(escaped)) => {
                plain.push(if escaped == 'n' { '\n' } else { escaped });
                rest.next();
            }
            (c, _) => plain.push(c),
        }
    }
    plain
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn read(text: &str) -> Vec<Order> {
    let mut found = Vec::new();
    for (place, _) in text.match_indices("CALL") {
        found.extend(call(&text[place + 4..]));
    }
    for (place, order) in text.match_indices("WRITE ") {
        found.extend(json(&text[place + order.len()..]).map(Order::Write));
    }
    for (place, order) in text.match_indices("SAY ") {
        found.push(Order::Say(line(&text[place + order.len()..])));
    }
    if text.contains("REPEAT SECRETS") {
        found.push(Order::Repeat);
    }
    found
}

fn call(rest: &str) -> Option<Order> {
    let (how, rest) = rest.split_once(' ')?;
    let (tool, rest) = rest.split_once(' ')?;
    let id = how.strip_prefix('@').map(str::to_owned);
    let arguments = match how {
        "!" => line(rest),
        "" => json(rest)?,
        _ if id.is_some() => json(rest)?,
        _ => return None,
    };
    let tool = tool.to_owned();
    Some(Order::Call {
        id,
        tool,
        arguments,
    })
}

/// Returns the JSON value at the start of a text.
fn json(text: &str) -> Option<String> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(text[..values.byte_offset()].trim().to_owned())
}

fn line(text: &str) -> String {
    let end = text.find(['\n', '"']).unwrap_or(text.len());
    text[..end].to_owned()
}
