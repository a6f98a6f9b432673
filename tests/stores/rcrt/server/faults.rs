//! Faults of the server, each for one request.

use super::{Request, State};
use std::sync::Arc;
use tokio::sync::Notify;

/// The requests with a fault: the method, and the end of the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Match(pub(crate) &'static str, pub(crate) &'static str);

#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Closes the connection without processing the request.
    Close,
    /// Answers with this status and text without processing the request.
    Refuse(u16, &'static str),
    /// Processes the request and answers with this status and text.
    DoAndSay(u16, &'static str),
    /// Processes the request and closes the connection without an answer.
    DoAndClose,
    /// Records the idempotency key without creating anything.
    Burn,
    /// Lets another client change the breadcrumb immediately before the request.
    Overtake,
    /// Calls this function immediately before the request.
    Before(fn(&mut State)),
    /// Sends these bytes as the whole answer.
    Say(Vec<u8>),
    /// Redirects the client to this URL without processing the request.
    Redirect(String),
    /// Waits for this notification, then processes the request.
    Wait(Arc<Notify>),
    /// Lets an update wait for this notification between its version check and its write.
    Between(Arc<Notify>),
    /// Never answers.
    Hang,
}

impl State {
    /// Returns and removes the next fault that is planned for a request, or a random fault.
    pub(super) fn faulty(&mut self, request: &Request) -> Option<Fault> {
        let is_meant = |(Match(method, end), _): &(Match, Fault)| {
            request.method == *method && request.path.ends_with(end)
        };
        match self.faults.iter().position(is_meant) {
            Some(at) => self.faults.remove(at).map(|(_, fault)| fault),
            None => self.bad_luck(request),
        }
    }
    /// Returns a random [`Fault::Hang`] for reads of breadcrumbs. The event stream is not affected.
    pub(super) fn hung(&mut self, request: &Request) -> Option<Fault> {
        let hangs = request.method == "GET"
            && request.path.starts_with("/breadcrumbs")
            && self.hang_every > 0
            && self.dice.below(self.hang_every) == 0;
        hangs.then_some(Fault::Hang)
    }
}
