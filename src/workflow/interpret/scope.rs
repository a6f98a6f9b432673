use super::progress::Vars;
use crate::model::Json;
use crate::workflow::expression::Variables;

/// The variables that a step sees: those that are there by themselves, those of its flow or branch, and in a branch
/// those outside of it.
pub(super) struct Scope<'s> {
    pub(super) vars: Vars,
    /// The innermost last.
    locals: Vec<(String, Json)>,
    outside: Option<&'s Self>,
}

impl<'s> Scope<'s> {
    pub(super) fn of_flow(vars: Vars) -> Self {
        Self {
            vars,
            locals: Vec::new(),
            outside: None,
        }
    }

    pub(super) fn of_branch(vars: Vars, outside: &'s Self) -> Self {
        Self {
            vars,
            locals: Vec::new(),
            outside: Some(outside),
        }
    }

    /// Adds a variable that is there by itself, until it is [taken off](Self::pop).
    pub(super) fn push(&mut self, name: &str, value: impl Into<Json>) {
        self.locals.push((name.to_owned(), value.into()));
    }

    pub(super) fn pop(&mut self) {
        self.locals.pop();
    }
}

impl Variables for Scope<'_> {
    fn get(&self, name: &str) -> Option<Json> {
        let mut scope = self;
        loop {
            let local = scope.locals.iter().rev().find(|(local, _)| local == name);
            let value = local.map(|(_, value)| value);
            if let Some(value) = value.or_else(|| scope.vars.get(name)) {
                return Some(value.clone());
            }
            scope = scope.outside?;
        }
    }
}
