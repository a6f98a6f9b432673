//! Renderer of the compiled templates of hints. Each piece, iteration and value takes a step of the budget.

use super::program::{Block, Call, From, If, Node, Term};
use super::seen::Seen;
use crate::hints::budget::{Budget, Text};
use crate::hints::error::HintsReason;
use serde_json::Value;
use std::cmp::Ordering;

/// Renders a compiled template. The depth of the template limits the recursion.
pub(super) fn render(
    nodes: &[Node],
    context: &Value,
    out: &mut Text<'_>,
) -> Result<(), HintsReason> {
    let root = Seen::Root(context);
    let mut render = Render {
        root,
        scopes: vec![Scope::about(root)],
    };
    render.nodes(nodes, out)
}

struct Render<'v> {
    root: Seen<'v>,
    /// The open scopes of the template, the innermost last.
    scopes: Vec<Scope<'v>>,
}

#[derive(Clone, Copy)]
struct Scope<'v> {
    about: Seen<'v>,
    index: Seen<'v>,
    key: Seen<'v>,
    first: Seen<'v>,
    last: Seen<'v>,
}

impl<'v> Scope<'v> {
    fn about(about: Seen<'v>) -> Self {
        let (index, key, first, last) =
            (Seen::Nothing, Seen::Nothing, Seen::Nothing, Seen::Nothing);
        Self {
            about,
            index,
            key,
            first,
            last,
        }
    }

    fn pass(about: Seen<'v>, key: Seen<'v>, index: usize, of: usize) -> Self {
        let (first, last) = (Seen::Truth(index == 0), Seen::Truth(index + 1 == of));
        let index = Seen::Count(index);
        Self {
            about,
            index,
            key,
            first,
            last,
        }
    }
}

impl<'v> Render<'v> {
    fn nodes(&mut self, nodes: &'v [Node], out: &mut Text<'_>) -> Result<(), HintsReason> {
        for node in nodes {
            out.budget.step(1)?;
            match node {
                Node::Text(text) => out.push(text)?,
                Node::Show(term) => self.term(term, out.budget)?.show(out)?,
                Node::If(choice) => self.choose(choice, out)?,
                Node::Each(block) => self.each(block, out)?,
                Node::With(block) => self.with(block, out)?,
            }
        }
        Ok(())
    }

    fn choose(&mut self, choice: &'v If, out: &mut Text<'_>) -> Result<(), HintsReason> {
        let branch = match self.term(&choice.test, out.budget)?.is_true(choice.zero) {
            true => &choice.body,
            false => &choice.otherwise,
        };
        self.nodes(branch, out)
    }

    fn with(&mut self, block: &'v Block, out: &mut Text<'_>) -> Result<(), HintsReason> {
        let about = self.term(&block.of, out.budget)?;
        if !about.is_true(false) {
            return self.nodes(&block.otherwise, out);
        }
        let outer = self.scopes.last().copied();
        let scope = Scope {
            about,
            ..outer.unwrap_or(Scope::about(about))
        };
        self.inside(scope, &block.body, out)
    }

    fn each(&mut self, block: &'v Block, out: &mut Text<'_>) -> Result<(), HintsReason> {
        match self.term(&block.of, out.budget)? {
            Seen::Value(Value::Array(items)) if !items.is_empty() => {
                for (index, item) in items.iter().enumerate() {
                    let scope = Scope::pass(Seen::Value(item), Seen::Nothing, index, items.len());
                    self.inside(scope, &block.body, out)?;
                }
                Ok(())
            }
            Seen::Value(Value::Object(fields)) if !fields.is_empty() => {
                for (index, (name, field)) in fields.iter().enumerate() {
                    let (field, name) = (Seen::Value(field), Seen::Name(name));
                    let scope = Scope::pass(field, name, index, fields.len());
                    self.inside(scope, &block.body, out)?;
                }
                Ok(())
            }
            Seen::Root(context) => {
                let scope = Scope::pass(Seen::Value(context), Seen::Name("context"), 0, 1);
                self.inside(scope, &block.body, out)
            }
            Seen::Value(_) | Seen::Nothing | Seen::Count(_) | Seen::Truth(_) | Seen::Name(_) => {
                self.nodes(&block.otherwise, out)
            }
        }
    }

    fn inside(
        &mut self,
        scope: Scope<'v>,
        body: &'v [Node],
        out: &mut Text<'_>,
    ) -> Result<(), HintsReason> {
        out.budget.step(1)?;
        self.scopes.push(scope);
        let done = self.nodes(body, out);
        self.scopes.pop();
        done
    }

    fn term(&self, term: &'v Term, budget: &mut Budget) -> Result<Seen<'v>, HintsReason> {
        budget.step(1)?;
        match term {
            Term::Literal(literal) => Ok(Seen::Value(literal)),
            Term::Path { from, steps } => {
                let mut found = self.begin(*from);
                for step in steps {
                    found = found.member(step, budget)?;
                }
                Ok(found)
            }
            Term::Call(call, values) => self.call(*call, values, budget),
        }
    }

    fn begin(&self, from: From) -> Seen<'v> {
        let scope = |up: usize| self.scopes.iter().rev().nth(up);
        let (up, part): (usize, fn(&Scope<'v>) -> Seen<'v>) = match from {
            From::Root => return self.root,
            From::Scope(up) => (up, |scope| scope.about),
            From::Index(up) => (up, |scope| scope.index),
            From::Key(up) => (up, |scope| scope.key),
            From::First(up) => (up, |scope| scope.first),
            From::Last(up) => (up, |scope| scope.last),
            From::KeyOrIndex(up) => (up, |scope| match scope.key {
                Seen::Nothing => scope.index,
                key => key,
            }),
        };
        scope(up).map_or(Seen::Nothing, part)
    }

    fn call(
        &self,
        call: Call,
        values: &'v [Term],
        budget: &mut Budget,
    ) -> Result<Seen<'v>, HintsReason> {
        let truth = |truth| Ok(Seen::Truth(truth));
        if let Call::And | Call::Or = call {
            for value in values {
                if self.term(value, budget)?.is_true(false) != (call == Call::And) {
                    return truth(call == Call::Or);
                }
            }
            return truth(call == Call::And);
        }
        let value = |at: usize, budget: &mut Budget| match values.get(at) {
            Some(value) => self.term(value, budget),
            None => Ok(Seen::Nothing),
        };
        let one = value(0, budget)?;
        let other = value(1, budget)?;
        match call {
            Call::Lookup => one.lookup(other, budget),
            Call::Len => one.length(budget),
            Call::Not => truth(!one.is_true(false)),
            Call::Eq => truth(one.equals(other, budget)?),
            Call::Ne => truth(!one.equals(other, budget)?),
            Call::Gt => truth(one.order(other, budget)? == Some(Ordering::Greater)),
            Call::Gte => truth(one.order(other, budget)?.is_some_and(Ordering::is_ge)),
            Call::Lt => truth(one.order(other, budget)? == Some(Ordering::Less)),
            Call::Lte => truth(one.order(other, budget)?.is_some_and(Ordering::is_le)),
            Call::And | Call::Or => truth(false),
        }
    }
}
