//! What goes wrong by chance: the dice are those of a seed, and who calls when is not.

use super::faults::Fault;
use super::{Request, State};

/// How much goes wrong; nothing by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    /// One in so many calls.
    pub(crate) calls: u64,
    /// One in so many frames is lost.
    pub(crate) lost: u64,
    /// A frame comes up to so many times.
    pub(crate) copies: u64,
    /// So many frames are held back, and come in any order.
    pub(crate) window: usize,
    /// One in so many frames has something behind it that is none, and all are in pieces.
    pub(crate) noise: u64,
    /// One in so many frames ends the stream.
    pub(crate) cuts: u64,
}

/// What is done to a stream.
pub(super) enum Act {
    /// Bytes, and how many of them at a time.
    Write(Vec<u8>, usize),
    End,
}

/// What is no event, or ends an event that nobody began.
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

/// Longer than a line of a stream may be.
const ENDLESS: usize = 5 << 20;

/// SplitMix64 of Steele, Lea and Flood.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below another; 0 below 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)).checked_rem(n).unwrap_or(0)
    }

    /// One time in so many; never in none.
    fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }

    fn place(&mut self, len: usize) -> usize {
        usize::try_from(self.below(u64::try_from(len).unwrap())).unwrap()
    }
}

impl State {
    /// What goes wrong with a call.
    pub(super) fn bad_luck(&mut self, request: &Request) -> Option<Fault> {
        const ERROR: &str = "database error";
        if request.path == "/events/stream" || !self.dice.one_in(self.weather.calls) {
            return None;
        }
        self.spoilt += 1;
        Some(match (&*request.method, self.dice.below(6)) {
            ("POST", 0) => Fault::Burn,
            // Somebody on the way sent it twice.
            ("POST", 1) => Fault::DoAndSay(409, "duplicate request"),
            ("PATCH", 0 | 1) => Fault::Overtake,
            ("POST" | "PATCH", 2) => Fault::DoAndSay(500, ERROR),
            ("POST" | "PATCH", 3) => Fault::DoAndClose,
            (_, 4) => Fault::Close,
            (_, 5) => Fault::Refuse(503, "try again"),
            (_, _) => Fault::Refuse(500, ERROR),
        })
    }

    /// What becomes of a frame, and of those that were held back.
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
