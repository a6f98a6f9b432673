//! Resolution of paths in a template: finds the open scope (the body of `each` or `with`) to which each path refers.

use super::problem::{CompileResult, EXCERPT_BYTES, template_error, unknown};
use super::program::{PathStart, Term};
use crate::error::excerpt;
use handlebars::template::{BlockParam, Parameter};
use handlebars::{Path, PathSeg};

const LOCALS: [&str; 5] = ["index", "key", "first", "last", "root"];

/// The block parameters of each open scope of a template, the outermost first.
pub(super) struct Scopes<'t>(pub(super) Vec<Option<&'t BlockParam>>);

impl Scopes<'_> {
    pub(super) fn path(&self, path: &Path) -> CompileResult<Term> {
        let (segments, raw) = match path {
            Path::Relative((segments, raw)) => (segments, raw),
            Path::Local((up, name, raw)) => return local(*up, name, raw),
        };
        let steps: Vec<String> = segments.iter().filter_map(step).collect();
        let begin = raw.trim_start_matches("this");
        if begin.trim_start_matches(['.', '/']).starts_with("@root") {
            let start = PathStart::Root;
            return Ok(Term::Path { start, steps });
        }
        if raw.starts_with('@') {
            return Err(no_path(raw));
        }
        let up = segments.len() - steps.len();
        Ok(self.scoped(up, steps))
    }

    /// Resolves a template path that is a single name.
    pub(super) fn name(&self, name: &str) -> Term {
        self.scoped(0, vec![name.to_owned()])
    }

    /// Resolves a template path that starts at the current scope, at an outer scope (`../`) or at a block parameter of any scope.
    fn scoped(&self, up: usize, mut steps: Vec<String>) -> Term {
        let parameter = match steps.first() {
            Some(first) if up == 0 => self.parameter(first),
            Some(_) | None => None,
        };
        if parameter.is_some() {
            steps.remove(0);
        }
        let start = parameter.unwrap_or(PathStart::Scope(up));
        Term::Path { start, steps }
    }

    fn parameter(&self, name: &str) -> Option<PathStart> {
        let is = |parameter: &Parameter| parameter.as_name() == Some(name);
        let mut scopes = self.0.iter().rev().enumerate();
        scopes.find_map(|(up, scope)| match scope {
            Some(BlockParam::Single(value)) => is(value).then_some(PathStart::Scope(up)),
            Some(BlockParam::Pair((value, _))) if is(value) => Some(PathStart::Scope(up)),
            Some(BlockParam::Pair((_, key))) => is(key).then_some(PathStart::KeyOrIndex(up)),
            _ => None,
        })
    }
}

/// Returns the name of a path segment, or `None` if the segment has no name, such as `..`.
fn step(segment: &PathSeg) -> Option<String> {
    match segment {
        PathSeg::Named(name) => Some(name.clone()),
        _ => None,
    }
}

fn local(up: usize, name: &str, raw: &str) -> CompileResult<Term> {
    let start = match name {
        "index" => PathStart::Index(up),
        "key" => PathStart::Key(up),
        "first" => PathStart::First(up),
        "last" => PathStart::Last(up),
        "root" => PathStart::Root,
        other => return Err(unknown("variable", other, &mut LOCALS.into_iter())),
    };
    // The parser drops the segments after the name of a variable.
    if !raw.ends_with(name) {
        return Err(no_path(raw));
    }
    let steps = Vec::new();
    Ok(Term::Path { start, steps })
}

fn no_path(raw: &str) -> crate::hints::HintsProblem {
    template_error(format!("{:?} is not a path", excerpt(raw, EXCERPT_BYTES)))
}
