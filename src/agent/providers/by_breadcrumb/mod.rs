//! A model that is reached as a tool: a request in the words of chat completions is the input of a `tool.request.v1`, and
//! its answer the output of a `tool.response.v1`. One side asks, the other serves a model of its own.

mod ask;
mod read;
mod serve;
#[cfg(test)]
mod tests;

pub(in crate::agent) use ask::{input_of, response_of};
pub use serve::model_tool;
