//! Renderer of the compiled templates of `llm_hints`. Each piece, iteration and value takes a step of the budget.

use super::program::{Block, Call, If, Node, PathStart, Term};
use super::value::TemplateValue;
use crate::hints::budget::{Budget, Text};
use crate::hints::error::HintsReason;
use serde_json::Value;
use std::cmp::Ordering;

/// Renders a compiled template with a breadcrumb's context, and appends the text to `out`. The depth of the template limits the
/// recursion.
pub(super) fn render(
    nodes: &[Node],
    context: &Value,
    out: &mut Text<'_>,
) -> Result<(), HintsReason> {
    let root = TemplateValue::Root(context);
    let mut render = Render {
        root,
        scopes: vec![Scope::of_value(root)],
    };
    render.nodes(nodes, out)
}

struct Render<'v> {
    root: TemplateValue<'v>,
    /// The open scopes of the template, the innermost last.
    scopes: Vec<Scope<'v>>,
}

#[derive(Clone, Copy)]
struct Scope<'v> {
    value: TemplateValue<'v>,
    index: TemplateValue<'v>,
    key: TemplateValue<'v>,
    first: TemplateValue<'v>,
    last: TemplateValue<'v>,
}

impl<'v> Scope<'v> {
    fn of_value(value: TemplateValue<'v>) -> Self {
        let (index, key, first, last) = (
            TemplateValue::Missing,
            TemplateValue::Missing,
            TemplateValue::Missing,
            TemplateValue::Missing,
        );
        Self {
            value,
            index,
            key,
            first,
            last,
        }
    }

    fn of_iteration(
        value: TemplateValue<'v>,
        key: TemplateValue<'v>,
        index: usize,
        len: usize,
    ) -> Self {
        let (first, last) = (
            TemplateValue::Bool(index == 0),
            TemplateValue::Bool(index + 1 == len),
        );
        let index = TemplateValue::Count(index);
        Self {
            value,
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
                Node::If(block) => self.choose(block, out)?,
                Node::Each(block) => self.each(block, out)?,
                Node::With(block) => self.with(block, out)?,
            }
        }
        Ok(())
    }

    fn choose(&mut self, block: &'v If, out: &mut Text<'_>) -> Result<(), HintsReason> {
        let branch = match self
            .term(&block.test, out.budget)?
            .is_true(block.includes_zero)
        {
            true => &block.body,
            false => &block.otherwise,
        };
        self.nodes(branch, out)
    }

    fn with(&mut self, block: &'v Block, out: &mut Text<'_>) -> Result<(), HintsReason> {
        let value = self.term(&block.value, out.budget)?;
        if !value.is_true(false) {
            return self.nodes(&block.otherwise, out);
        }
        let outer = self.scopes.last().copied();
        let scope = Scope {
            value,
            ..outer.unwrap_or(Scope::of_value(value))
        };
        self.in_scope(scope, &block.body, out)
    }

    fn each(&mut self, block: &'v Block, out: &mut Text<'_>) -> Result<(), HintsReason> {
        match self.term(&block.value, out.budget)? {
            TemplateValue::Value(Value::Array(items)) if !items.is_empty() => {
                for (index, item) in items.iter().enumerate() {
                    let scope = Scope::of_iteration(
                        TemplateValue::Value(item),
                        TemplateValue::Missing,
                        index,
                        items.len(),
                    );
                    self.in_scope(scope, &block.body, out)?;
                }
                Ok(())
            }
            TemplateValue::Value(Value::Object(fields)) if !fields.is_empty() => {
                for (index, (name, field)) in fields.iter().enumerate() {
                    let (field, name) = (TemplateValue::Value(field), TemplateValue::Name(name));
                    let scope = Scope::of_iteration(field, name, index, fields.len());
                    self.in_scope(scope, &block.body, out)?;
                }
                Ok(())
            }
            TemplateValue::Root(context) => {
                let scope = Scope::of_iteration(
                    TemplateValue::Value(context),
                    TemplateValue::Name("context"),
                    0,
                    1,
                );
                self.in_scope(scope, &block.body, out)
            }
            TemplateValue::Value(_)
            | TemplateValue::Missing
            | TemplateValue::Count(_)
            | TemplateValue::Bool(_)
            | TemplateValue::Name(_) => self.nodes(&block.otherwise, out),
        }
    }

    fn in_scope(
        &mut self,
        scope: Scope<'v>,
        body: &'v [Node],
        out: &mut Text<'_>,
    ) -> Result<(), HintsReason> {
        out.budget.step(1)?;
        self.scopes.push(scope);
        let result = self.nodes(body, out);
        self.scopes.pop();
        result
    }

    fn term(&self, term: &'v Term, budget: &mut Budget) -> Result<TemplateValue<'v>, HintsReason> {
        budget.step(1)?;
        match term {
            Term::Literal(literal) => Ok(TemplateValue::Value(literal)),
            Term::Path { start, steps } => {
                let mut value = self.start_value(*start);
                for step in steps {
                    value = value.member(step, budget)?;
                }
                Ok(value)
            }
            Term::Call(call, values) => self.call(*call, values, budget),
        }
    }

    fn start_value(&self, start: PathStart) -> TemplateValue<'v> {
        let scope = |up: usize| self.scopes.iter().rev().nth(up);
        let (up, field_of): (usize, fn(&Scope<'v>) -> TemplateValue<'v>) = match start {
            PathStart::Root => return self.root,
            PathStart::Scope(up) => (up, |scope| scope.value),
            PathStart::Index(up) => (up, |scope| scope.index),
            PathStart::Key(up) => (up, |scope| scope.key),
            PathStart::First(up) => (up, |scope| scope.first),
            PathStart::Last(up) => (up, |scope| scope.last),
            PathStart::KeyOrIndex(up) => (up, |scope| match scope.key {
                TemplateValue::Missing => scope.index,
                key => key,
            }),
        };
        scope(up).map_or(TemplateValue::Missing, field_of)
    }

    fn call(
        &self,
        call: Call,
        values: &'v [Term],
        budget: &mut Budget,
    ) -> Result<TemplateValue<'v>, HintsReason> {
        let bool_value = |value| Ok(TemplateValue::Bool(value));
        if let Call::And | Call::Or = call {
            for value in values {
                if self.term(value, budget)?.is_true(false) != (call == Call::And) {
                    return bool_value(call == Call::Or);
                }
            }
            return bool_value(call == Call::And);
        }
        let value = |at: usize, budget: &mut Budget| match values.get(at) {
            Some(value) => self.term(value, budget),
            None => Ok(TemplateValue::Missing),
        };
        let left = value(0, budget)?;
        let right = value(1, budget)?;
        match call {
            Call::Lookup => left.lookup(right, budget),
            Call::Len => left.length(budget),
            Call::Not => bool_value(!left.is_true(false)),
            Call::Eq => bool_value(left.equals(right, budget)?),
            Call::Ne => bool_value(!left.equals(right, budget)?),
            Call::Gt => bool_value(left.order(right, budget)? == Some(Ordering::Greater)),
            Call::Gte => bool_value(left.order(right, budget)?.is_some_and(Ordering::is_ge)),
            Call::Lt => bool_value(left.order(right, budget)? == Some(Ordering::Less)),
            Call::Lte => bool_value(left.order(right, budget)?.is_some_and(Ordering::is_le)),
            Call::And | Call::Or => bool_value(false),
        }
    }
}
