//! Compiler of the steps of a workflow definition that contain other steps, such as `parallel`, `loop` and `if`.

use super::steps::{Compiler, check_variable, duplicate_id};
use crate::workflow::ast::{Arm, Block, Branch, ForEach, Work};
use crate::workflow::error::{LoadProblem, WorkflowLoadError};
use crate::workflow::expression::{Expression, Test};
use crate::workflow::syntax::{self, BRANCHES, Case, ForEachStep, Join, Written};
use serde_json::Value;
use std::collections::BTreeSet;

impl Compiler<'_> {
    pub(super) fn parallel(
        &mut self,
        join: Join,
        step: &Written<'_>,
    ) -> Result<Work, WorkflowLoadError> {
        let mut seen = BTreeSet::new();
        let mut branches = Vec::new();
        let all = list(step, "parallel", "a list of branches")?;
        for (at, written) in all.iter().enumerate() {
            let branch = self.branch(at, written)?;
            if !seen.insert(branch.segment.clone()) {
                return Err(duplicate_id(&written.path, &branch.segment));
            }
            branches.push(branch);
        }
        Ok(Work::Parallel { branches, join })
    }

    /// Compiles a branch of a `parallel` step. A branch is a single step, or a list of steps with its own ID and input.
    fn branch(&mut self, at: usize, written: &Written<'_>) -> Result<Branch, WorkflowLoadError> {
        let step = syntax::Step::read(written)?;
        let syntax::Step::Steps(branch) = step else {
            let mut step = self.step(at, step, written)?;
            // The ID of the step becomes the ID of the branch.
            let segment = std::mem::replace(&mut step.segment, "0".to_owned());
            step.into = None;
            let (input, body) = (None, Block(vec![step]));
            return Ok(Branch {
                segment,
                input,
                body,
            });
        };
        if let Some(id) = &branch.id {
            check_variable(id, &written.path.field("id"))?;
        }
        let input = branch.input.as_ref();
        let input = input.map(|input| Expression::compile(input, &written.path.field("input")));
        Ok(Branch {
            segment: branch.id.unwrap_or_else(|| at.to_string()),
            input: input.transpose()?,
            body: self.block(written, "steps")?,
        })
    }

    pub(super) fn for_each(
        &mut self,
        step: ForEachStep,
        written: &Written<'_>,
    ) -> Result<Work, WorkflowLoadError> {
        let location = &written.path;
        let item = step.item.unwrap_or_else(|| "item".to_owned());
        if item != "item" {
            check_variable(&item, &location.field("item"))?;
        }
        Ok(Work::ForEach(Box::new(ForEach {
            list: Expression::compile(&step.for_each, &location.field("for_each"))?,
            item,
            at_once: step.at_once,
            join: step.join,
            body: self.block(written, "steps")?,
        })))
    }

    pub(super) fn repeat(
        &mut self,
        most: u32,
        step: &Written<'_>,
    ) -> Result<Work, WorkflowLoadError> {
        let until = step.field("until");
        let until = until.map(|until| Test::compile(&until)).transpose()?;
        let body = self.block(step, "loop")?;
        Ok(Work::Loop { most, until, body })
    }

    pub(super) fn choice(&mut self, step: &Written<'_>) -> Result<Work, WorkflowLoadError> {
        let mut arms = vec![Arm {
            segment: "then".to_owned(),
            test: Some(Test::of_field(step, "if")?),
            body: self.block(step, "then")?,
        }];
        arms.extend(self.otherwise(step)?);
        Ok(Work::Choose { on: None, arms })
    }

    pub(super) fn cases(
        &mut self,
        on: &Value,
        step: &Written<'_>,
    ) -> Result<Work, WorkflowLoadError> {
        let cases = list(step, "cases", "a list of cases")?;
        let cases = cases.iter().enumerate();
        let cases = cases.map(|(at, case)| self.case(at, case));
        let mut arms = cases.collect::<Result<Vec<_>, _>>()?;
        arms.extend(self.otherwise(step)?);
        let on = Expression::compile(on, &step.path.field("match"))?;
        Ok(Work::Choose { on: Some(on), arms })
    }

    fn case(&mut self, at: usize, written: &Written<'_>) -> Result<Arm, WorkflowLoadError> {
        let location = &written.path;
        let test = match Case::read(written)? {
            Case::Is(case) => Test::of_variable(MATCHED, "$", "eq", Some(&case.is), location)?,
            Case::Op(case) => {
                let (path, value) = (case.path.as_deref().unwrap_or("$"), case.value.as_ref());
                Test::of_variable(MATCHED, path, &case.op, value, location)?
            }
        };
        Ok(Arm {
            segment: format!("case{at}"),
            test: Some(test),
            body: self.block(written, "then")?,
        })
    }

    fn otherwise(&mut self, step: &Written<'_>) -> Result<Option<Arm>, WorkflowLoadError> {
        if step.field("else").is_none() {
            return Ok(None);
        }
        Ok(Some(Arm {
            segment: "else".to_owned(),
            test: None,
            body: self.block(step, "else")?,
        }))
    }
}

/// Name of the variable that has the value of a `match` step while its cases are tested.
pub(in crate::workflow) const MATCHED: &str = "matched";

/// Returns the branches of a `parallel` step, or the cases of a `match` step.
///
/// # Errors
/// Returns an error if the list is empty or has more than [`BRANCHES`] items.
fn list<'v>(
    object: &Written<'v>,
    field: &str,
    expected: &str,
) -> Result<Vec<Written<'v>>, WorkflowLoadError> {
    let items = object.list(field)?;
    let (what, found, most) = ("items", items.len(), BRANCHES);
    let location = object.path.field(field);
    match found {
        0 => Err(WorkflowLoadError::missing(location, expected)),
        found if found > most => {
            let problem = LoadProblem::TooMany { what, found, most };
            Err(WorkflowLoadError::new(location, problem))
        }
        _ => Ok(items),
    }
}
