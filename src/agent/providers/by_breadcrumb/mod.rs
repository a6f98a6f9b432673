//! Models as tools: a chat completion request is the input of a `tool.request.v1`, and the answer is the output of a
//! `tool.response.v1`. `ask` is the requesting side, and `serve` serves a model.

mod ask;
mod read;
mod serve;
#[cfg(test)]
mod tests;

pub(in crate::agent) use ask::{input_of, response_of};
pub use serve::model_tool;
