use super::budget::WorkBudget;
use super::progress::Vars;
use crate::model::{Json, Path};
use crate::workflow::expression::{Unresolved, Variables};
use serde_json::Value;
use std::rc::Rc;

/// The variables that one step of a flow can read. These are the interpreter's variables and the variables of the step's flow or
/// branch. A step in a branch also reads the outer variables.
pub(super) struct Scope<'s> {
    pub(super) vars: Vars,
    /// Variables that the interpreter sets, such as `item` and `error`, the innermost last.
    locals: Vec<(String, Json)>,
    outside: Option<&'s Self>,
    work: Rc<WorkBudget>,
}

impl<'s> Scope<'s> {
    pub(super) fn of_flow(vars: Vars, work: &Rc<WorkBudget>) -> Self {
        Self {
            vars,
            locals: Vec::new(),
            outside: None,
            work: Rc::clone(work),
        }
    }

    pub(super) fn of_branch(vars: Vars, outside: &'s Self) -> Self {
        Self {
            vars,
            locals: Vec::new(),
            outside: Some(outside),
            work: Rc::clone(&outside.work),
        }
    }

    /// Adds a variable that the interpreter sets, such as `item` or `error`, until [`pop`](Self::pop) removes it.
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

    fn search(&self, path: &Path, value: &Value) -> Result<(), Unresolved> {
        self.work.search(path, value)
    }

    fn compile_pattern(&self) -> Result<(), Unresolved> {
        self.work.compile_pattern()
    }
}
