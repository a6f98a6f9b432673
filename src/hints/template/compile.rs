//! Compiler of parsed Handlebars templates into the form that the renderer executes, with resolved names of
//! helpers and paths.

use super::problem::{CompileResult, EXCERPT_BYTES, template_error, unknown};
use super::program::{Block, Call, If, Node, Term};
use super::scopes::Scopes;
use crate::error::excerpt;
use crate::hints::error::HintsProblem;
use handlebars::Template;
use handlebars::template::{HelperTemplate, Parameter, TemplateElement};

const BLOCKS: [&str; 4] = ["if", "unless", "each", "with"];

pub(super) fn compile(text: &str) -> CompileResult<Vec<Node>> {
    let parsed = Template::compile(text).map_err(|error| {
        let reason = error.reason().to_string();
        let reason = excerpt(&reason, EXCERPT_BYTES);
        match error.pos() {
            Some((line, column)) => {
                template_error(format!("line {line}, column {column}: {reason}"))
            }
            None => template_error(reason),
        }
    })?;
    Compiler {
        scopes: Scopes(Vec::new()),
    }
    .nodes(Some(&parsed))
}

struct Compiler<'t> {
    scopes: Scopes<'t>,
}

impl<'t> Compiler<'t> {
    fn nodes(&mut self, template: Option<&'t Template>) -> CompileResult<Vec<Node>> {
        let elements = template.map_or(&[][..], |template| &template.elements);
        let mut nodes = Vec::with_capacity(elements.len());
        for element in elements {
            nodes.push(match element {
                TemplateElement::RawString(text) if text.is_empty() => continue,
                TemplateElement::Comment(_) => continue,
                TemplateElement::RawString(text) => Node::Text(text.clone()),
                TemplateElement::Expression(tag) | TemplateElement::HtmlExpression(tag) => {
                    Node::Show(self.tag(tag)?)
                }
                TemplateElement::HelperBlock(block) => self.block(block)?,
                _ => return Err(template_error("partials and decorators are not supported")),
            });
        }
        Ok(nodes)
    }

    /// Compiles a template tag such as `{{path}}` or `{{helper a b}}`, or a subexpression such as `(helper a b)`.
    fn tag(&self, tag: &'t HelperTemplate) -> CompileResult<Term> {
        let has_values = !(tag.params.is_empty() && tag.hash.is_empty());
        match &tag.name {
            Parameter::Path(path) if !has_values => self.scopes.path(path),
            Parameter::Name(name) if !has_values => Ok(self.scopes.name(name)),
            Parameter::Name(name) => self.call(name, tag),
            Parameter::Subexpression(inner) if !has_values => self.term_of(inner.as_element()),
            Parameter::Literal(literal) if !has_values => Ok(Term::Literal(literal.clone())),
            _ => Err(template_error("a helper name must be a plain word")),
        }
    }

    fn term(&self, parameter: &'t Parameter) -> CompileResult<Term> {
        match parameter {
            Parameter::Path(path) => self.scopes.path(path),
            Parameter::Name(name) => Ok(self.scopes.name(name)),
            Parameter::Literal(literal) => Ok(Term::Literal(literal.clone())),
            Parameter::Subexpression(inner) => self.term_of(inner.as_element()),
            _ => Err(template_error(
                "a value must be a path, a literal or a helper in parentheses",
            )),
        }
    }

    fn term_of(&self, element: &'t TemplateElement) -> CompileResult<Term> {
        match element {
            TemplateElement::Expression(tag) => self.tag(tag),
            _ => Err(template_error(
                "parentheses must contain a helper and its values",
            )),
        }
    }

    fn call(&self, name: &str, tag: &'t HelperTemplate) -> CompileResult<Term> {
        let Some(call) = Call::named(name) else {
            return Err(match BLOCKS.contains(&name) {
                true => template_error(format!("{name:?} is a block: write {{{{#{name} ..}}}}")),
                false => unknown("helper", name, &mut Call::names().chain(BLOCKS)),
            });
        };
        if !tag.hash.is_empty() {
            return Err(template_error(format!("{name:?} takes no name=value")));
        }
        let values = tag.params.iter().map(|value| self.term(value));
        let values = values.collect::<CompileResult<Vec<_>>>()?;
        let (count, allows_more) = call.arity();
        match values.len() == count || (allows_more && values.len() > count) {
            true => Ok(Term::Call(call, values)),
            false => Err(wrong_value_count(name, count)),
        }
    }

    fn block(&mut self, block: &'t HelperTemplate) -> CompileResult<Node> {
        let Parameter::Name(name) = &block.name else {
            return Err(template_error("a block name must be a plain word"));
        };
        let node = match name.as_str() {
            "if" => Node::If(self.condition(block, false)?),
            "unless" => Node::If(self.condition(block, true)?),
            "each" => Node::Each(self.scope(name, block)?),
            "with" => Node::With(self.scope(name, block)?),
            other => match Call::named(other) {
                Some(call) if call.is_boolean() => Node::If(If {
                    test: self.call(other, block)?,
                    includes_zero: false,
                    body: self.nodes(block.template.as_ref())?,
                    otherwise: self.nodes(block.inverse.as_ref())?,
                }),
                Some(_) => return Err(template_error(format!("{other:?} is not a block"))),
                None => {
                    return Err(unknown(
                        "block",
                        other,
                        &mut BLOCKS.into_iter().chain(Call::names()),
                    ));
                }
            },
        };
        match (&node, &block.block_param) {
            (Node::If(_), Some(_)) => Err(template_error(format!("{name:?} takes no |names|"))),
            _ => Ok(node),
        }
    }

    fn condition(&mut self, block: &'t HelperTemplate, negated: bool) -> CompileResult<If> {
        let name = if negated { "unless" } else { "if" };
        let [test] = &block.params[..] else {
            return Err(wrong_value_count(name, 1));
        };
        let mut includes_zero = false;
        for (option, value) in &block.hash {
            match (option.as_str(), value) {
                ("includeZero", Parameter::Literal(serde_json::Value::Bool(yes))) => {
                    includes_zero = *yes
                }
                ("includeZero", _) => {
                    return Err(template_error("includeZero must be true or false"));
                }
                (other, _) => {
                    return Err(unknown("option", other, &mut ["includeZero"].into_iter()));
                }
            }
        }
        let test = self.term(test)?;
        let body = self.nodes(block.template.as_ref())?;
        let otherwise = self.nodes(block.inverse.as_ref())?;
        Ok(match negated {
            false => If {
                test,
                includes_zero,
                body,
                otherwise,
            },
            true => If {
                test,
                includes_zero,
                body: otherwise,
                otherwise: body,
            },
        })
    }

    fn scope(&mut self, name: &str, block: &'t HelperTemplate) -> CompileResult<Block> {
        let [value] = &block.params[..] else {
            return Err(wrong_value_count(name, 1));
        };
        if !block.hash.is_empty() {
            return Err(template_error(format!("{name:?} takes no name=value")));
        }
        let value = self.term(value)?;
        let otherwise = self.nodes(block.inverse.as_ref())?;
        self.scopes.0.push(block.block_param.as_ref());
        let body = self.nodes(block.template.as_ref());
        self.scopes.0.pop();
        Ok(Block {
            value,
            body: body?,
            otherwise,
        })
    }
}

fn wrong_value_count(name: &str, count: usize) -> HintsProblem {
    template_error(format!(
        "{name:?} takes {count} {}",
        if count == 1 { "value" } else { "values" }
    ))
}
