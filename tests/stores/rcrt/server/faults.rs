//! What goes wrong, once, when it is told to.

use super::{Request, State};
use std::sync::Arc;
use tokio::sync::Notify;

/// Which request goes wrong: the method, and how the path ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Match(pub(crate) &'static str, pub(crate) &'static str);

#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Nothing is done, and the connection closed.
    Close,
    /// Nothing is done, and this is said.
    Refuse(u16, &'static str),
    /// It is done, and this is said.
    DoAndSay(u16, &'static str),
    /// It is done, and the answer is lost.
    DoAndClose,
    /// The idempotency key is used up, and nothing is created.
    Burn,
    /// Somebody else changes the breadcrumb right before.
    Overtake,
    /// This happens right before.
    Before(fn(&mut State)),
    /// This is the whole answer.
    Say(Vec<u8>),
    /// Nothing is done, and the client is redirected to this URL.
    Redirect(String),
    /// It waits until this is told, and then goes on.
    Wait(Arc<Notify>),
    /// An update waits for this between the check of the version and the write.
    Between(Arc<Notify>),
    /// No answer comes.
    Hang,
}

impl State {
    /// The fault of a request, if it is the next of its kind.
    pub(super) fn faulty(&mut self, request: &Request) -> Option<Fault> {
        let is_meant = |(Match(method, end), _): &(Match, Fault)| {
            request.method == *method && request.path.ends_with(end)
        };
        match self.faults.iter().position(is_meant) {
            Some(at) => self.faults.remove(at).map(|(_, fault)| fault),
            None => self.bad_luck(request),
        }
    }
    /// The fault of a request that gets no answer by chance. The stream is not affected.
    pub(super) fn hung(&mut self, request: &Request) -> Option<Fault> {
        let hangs = request.method == "GET"
            && request.path.starts_with("/breadcrumbs")
            && self.hang_every > 0
            && self.dice.below(self.hang_every) == 0;
        hangs.then_some(Fault::Hang)
    }
}
