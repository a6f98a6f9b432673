//! Random faults. The random numbers come from a seed, but the order of the calls does not.

use super::faults::Fault;
use super::{Request, State};

/// Probabilities of random faults. By default, there are no faults.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    /// One of this number of calls fails.
    pub(crate) calls: u64,
    /// One of this number of frames is lost.
    pub(crate) lost: u64,
    /// Each frame is sent up to this number of times.
    pub(crate) copies: u64,
    /// Up to this number of frames is held back and sent in random order.
    pub(crate) window: usize,
    /// One of this number of frames is followed by noise. If not 0, all frames are split into random pieces.
    pub(crate) noise: u64,
    /// One of this number of frames closes the stream.
    pub(crate) cuts: u64,
}

/// An action on a stream.
pub(super) enum Act {
    /// Writes these bytes, in pieces of this size.
    Write(Vec<u8>, usize),
    End,
}

/// Bytes that are not an event, or that end an event without a start.
const NOISE: [&[u8]; 9] = [
    b": comment\r\n\r\n",
    b"\r\r\n\n",
    b"retry: 999999999\n\n",
    b"data: {\"type\":\"breadcrumb.lost\"}\n\n",
    b"data: {\"type\":\"breadcrumb.updated\",\"breadcrumb_id\":\n\n",
    b"data: \xff\xfe\xf0\n\n",
    b"event: breadcrumb.updated\ndata: 1\ndata: 2\n\n",
    b"id: 1\0\ndata:[[[[[[[[[[[[[[[[\n\n",
    b"no field at all\n\n",
];

/// A size that exceeds the maximum line length of a stream.
const ENDLESS: usize = 5 << 20;

/// A SplitMix64 random number generator (Steele, Lea and Flood).
#[derive(Clone, Debug, Default)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a random number below `n`, or 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)).checked_rem(n).unwrap_or(0)
    }

    /// Returns `true` with a probability of 1 in `n`, and never if `n` is 0.
    fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }

    fn place(&mut self, len: usize) -> usize {
        usize::try_from(self.below(u64::try_from(len).unwrap())).unwrap()
    }
}

impl State {
    /// Returns a random fault for a call.
    pub(super) fn bad_luck(&mut self, request: &Request) -> Option<Fault> {
        const ERROR: &str = "database error";
        if request.path == "/events/stream" || !self.dice.one_in(self.weather.calls) {
            return None;
        }
        self.spoilt += 1;
        Some(match (&*request.method, self.dice.below(6)) {
            ("POST", 0) => Fault::Burn,
            // An intermediary sent the request twice.
            ("POST", 1) => Fault::DoAndSay(409, "duplicate request"),
            ("PATCH", 0 | 1) => Fault::Overtake,
            ("POST" | "PATCH", 2) => Fault::DoAndSay(500, ERROR),
            ("POST" | "PATCH", 3) => Fault::DoAndClose,
            (_, 4) => Fault::Close,
            (_, 5) => Fault::Refuse(503, "try again"),
            (_, _) => Fault::Refuse(500, ERROR),
        })
    }

    /// Returns the actions for a frame and for frames that were held back.
    pub(super) fn weathered(
        &mut self,
        frame: String,
        is_ping: bool,
        piece: usize,
        held: &mut Vec<Vec<u8>>,
    ) -> Vec<Act> {
        let (weather, dice) = (self.weather, &mut self.dice);
        let frame = frame.into_bytes();
        let mut out = Vec::new();
        if is_ping {
            out.append(held);
            for at in (1..out.len()).rev() {
                out.swap(at, dice.place(at + 1));
            }
            out.push(frame.clone());
        } else if !dice.one_in(weather.lost) {
            for _ in 0..=dice.below(weather.copies) {
                held.push(frame.clone());
            }
            while held.len() > weather.window {
                out.push(held.swap_remove(dice.place(held.len())));
            }
        }
        let noisy = weather.noise > 0;
        if dice.one_in(weather.noise) {
            out.push(NOISE[dice.place(NOISE.len())].to_vec());
        }
        let mut acts = Vec::new();
        for bytes in out {
            let piece = if noisy { 1 + dice.place(64) } else { piece };
            acts.push(Act::Write(bytes, piece));
        }
        if !is_ping && dice.one_in(weather.cuts) {
            self.cuts += 1;
            match dice.below(3) {
                0 => acts.push(Act::Write(frame[..frame.len() / 2].to_vec(), piece)),
                1 => acts.push(Act::Write(vec![b'x'; ENDLESS], 64 << 10)),
                _ => {}
            }
            acts.push(Act::End);
        }
        acts
    }
}
