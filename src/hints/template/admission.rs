//! Check of a template before the recursive parser of `handlebars` reads it.
//!
//! The check reads tags like the parser, so it counts the blocks and parentheses that the parser enters. Syntax that the two can read
//! differently is rejected: raw blocks, and quotes, brackets or braces inside brackets.

use super::problem::template_error;
use crate::hints::MAX_TEMPLATE_BYTES;
use crate::hints::error::HintsProblem;

/// Maximum nesting depth of blocks in a template. Each `else` branch counts as a level.
const MAX_BLOCKS: usize = 32;
/// Maximum nesting depth of parentheses in a tag of a template.
const MAX_PARENTHESES: usize = 8;
const MAX_BACKSLASHES: usize = 32;

const RAW: &str = "raw blocks are not supported; write \\{{ for literal braces";
const PARTIAL: &str =
    "partials and decorators are not supported; write their content in the template";
const BRACKETS: &str = "brackets can contain only a plain name or a number";
const BRACES: &str = "a tag contains a brace; object literals are not supported";
const BACKSLASHES: &str = "more than 32 backslashes in a row are not allowed";
const OPEN: &str = "a tag, quote or bracket is not closed";

pub(super) fn admit(text: &str) -> Result<(), HintsProblem> {
    let limit = MAX_TEMPLATE_BYTES;
    if text.len() > limit {
        return Err(HintsProblem::TooLarge { limit });
    }
    if text.contains("{{{{") {
        return Err(template_error(RAW));
    }
    // The parser takes quadratic time: at each backslash, it reads all remaining ones.
    if text.contains(&"\\".repeat(MAX_BACKSLASHES + 1)) {
        return Err(template_error(BACKSLASHES));
    }
    let (mut rest, mut blocks) = (text, Blocks::default());
    while let Some((before, tag)) = rest.split_once("{{") {
        rest = match is_escaped(before) {
            true => tag,
            false => after_tag(tag, &mut blocks)?,
        };
    }
    Ok(())
}

/// The numbers of nesting levels of the open blocks of a template: for each block, one level and one more for each of its `else`.
#[derive(Default)]
struct Blocks(Vec<usize>);

impl Blocks {
    fn check_depth(&mut self, levels: usize) -> Result<(), HintsProblem> {
        match levels + self.0.iter().sum::<usize>() > MAX_BLOCKS {
            true => Err(template_error(format!(
                "blocks nest more than {MAX_BLOCKS} levels deep, with a level for each else; flatten them"
            ))),
            false => Ok(()),
        }
    }

    fn open(&mut self) -> Result<(), HintsProblem> {
        self.check_depth(1)?;
        self.0.push(1);
        Ok(())
    }

    fn branch(&mut self) -> Result<(), HintsProblem> {
        self.check_depth(1)?;
        self.0
            .last_mut()
            .into_iter()
            .for_each(|levels| *levels += 1);
        Ok(())
    }
}

/// Returns `true` if a single backslash before the braces of a template tag makes the braces literal. Several backslashes are
/// literal themselves.
fn is_escaped(before: &str) -> bool {
    before.ends_with('\\') && !before.ends_with("\\\\")
}

/// Reads a template tag after its opening braces, and returns the text after the tag.
fn after_tag<'t>(tag: &'t str, blocks: &mut Blocks) -> Result<&'t str, HintsProblem> {
    if let Some(comment) = tag.strip_prefix('!') {
        // The parser searches the rest of the text for the end of each unclosed comment, which takes quadratic time.
        let end = match comment.trim_start_matches(is_blank).strip_prefix("--") {
            Some(long) => long.split_once("--}}"),
            None => comment.split_once("}}"),
        };
        return end
            .map(|(_, rest)| rest)
            .ok_or_else(|| template_error(OPEN));
    }
    let content = tag.trim_start_matches(|c| is_blank(c) || c == '~');
    let next = content.chars().next();
    if let Some('#' | '^') = next {
        let name = content.get(1..).unwrap_or_default();
        let name = name.trim_start_matches(|c| is_blank(c) || c == '~');
        if name.starts_with(['*', '>']) {
            return Err(template_error(PARTIAL));
        }
    }
    match next {
        Some('*' | '>') => return Err(template_error(PARTIAL)),
        Some('#') => blocks.open()?,
        Some('^') => blocks.branch()?,
        Some('/') => {
            blocks.0.pop();
        }
        Some(_) | None if content.starts_with("else") => blocks.branch()?,
        Some(_) | None => {}
    }
    match content.strip_prefix('{') {
        Some(content) => after_tag_content(content),
        None => after_tag_content(content),
    }
}

/// Reads the content and the closing braces of a template tag that is not a comment, and returns the text after the tag.
fn after_tag_content(tag: &str) -> Result<&str, HintsProblem> {
    let (mut rest, mut parentheses) = (tag.chars(), 0);
    loop {
        match rest.next().ok_or_else(|| template_error(OPEN))? {
            '}' if rest.as_str().starts_with('}') => {
                return Ok(rest.as_str().trim_start_matches('}'));
            }
            // The inner end of a triple tag, as in `{{~{a}~}}`.
            '}' if rest.as_str().starts_with('~') => {}
            '{' | '}' => return Err(template_error(BRACES)),
            quote @ ('"' | '\'') => skip_string(&mut rest, quote)?,
            '[' => {
                let (name, after) = rest
                    .as_str()
                    .split_once(']')
                    .ok_or_else(|| template_error(OPEN))?;
                if name.contains(['"', '\'', '[', '{', '}', '(', ')']) {
                    return Err(template_error(BRACKETS));
                }
                rest = after.chars();
            }
            '(' => {
                parentheses += 1;
                if parentheses > MAX_PARENTHESES {
                    return Err(template_error(format!(
                        "parentheses nest more than {MAX_PARENTHESES} levels deep; flatten them"
                    )));
                }
            }
            ')' => parentheses = parentheses.saturating_sub(1),
            _ => {}
        }
    }
}

fn skip_string(rest: &mut std::str::Chars<'_>, quote: char) -> Result<(), HintsProblem> {
    loop {
        match rest.next().ok_or_else(|| template_error(OPEN))? {
            '\\' => drop(rest.next()),
            c if c == quote => return Ok(()),
            _ => {}
        }
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}
