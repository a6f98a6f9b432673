//! Parser of definitions in YAML, such as workflow definitions. Returns the same value as for JSON, with the position of each
//! part in the text.

use crate::model::Json;
use crate::model::{DefinitionPath, DefinitionPathPart, Position};
use crate::workflow::error::LoadProblem;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Location, Options, Spanned};
use std::fmt;

/// Maximum number of nested levels of lists and objects in the YAML text of a definition, such as a workflow definition. Fewer
/// than in JSON, because the parser needs 40 KiB of stack for each level without optimisation, and threads have 2 MiB.
const MAX_LEVELS: usize = 32;

/// A definition parsed from YAML, with the position of each value in the text.
#[derive(Debug)]
pub(crate) struct Document(Spanned<Node>);

#[derive(Debug)]
enum Node {
    Scalar(Value),
    List(Vec<Spanned<Self>>),
    Object(Vec<(String, Spanned<Self>)>),
}

/// Parses the text of a definition in YAML, which is one document. Only `true` and `false` are booleans.
///
/// # Errors
/// Returns the problem, and its position if it is known. YAML that JSON cannot represent is refused: keys that are not strings,
/// duplicate keys, and numbers that are not finite.
pub(super) fn read(text: &str) -> Result<Document, (LoadProblem, Option<Position>)> {
    const NODES: usize = 100_000;
    let (size, most) = (text.len(), Json::MAX_BYTES);
    if size > most {
        let (what, found) = ("bytes", size);
        return Err((LoadProblem::TooMany { what, found, most }, None));
    }
    let mut options = Options::default();
    options.strict_booleans = true;
    options.with_snippet = false;
    options.alias_limits.max_total_replayed_events = NODES;
    if let Some(budget) = &mut options.budget {
        budget.max_depth = MAX_LEVELS;
        budget.max_nodes = NODES;
    }
    let read = serde_saphyr::from_str_with_options(text, options);
    read.map(Document).map_err(|error| {
        let error = error.without_snippet();
        let position = error.location().and_then(position);
        let reason = reason(&error.to_string(), position.as_ref());
        (LoadProblem::Syntax { reason }, position)
    })
}

/// Returns the YAML parser's error message without its position and its advice on parser options. The load error shows the position itself,
/// and users cannot set parser options.
fn reason(message: &str, position: Option<&Position>) -> String {
    if message.contains("budget breached: Depth") || message.contains("recursion limit exceeded") {
        return format!("nesting deeper than {MAX_LEVELS} levels is not allowed");
    }
    let location = position.map(|at| format!(" at line {}, column {}", at.line, at.column));
    let message = location
        .and_then(|location| message.strip_suffix(&location))
        .unwrap_or(message);
    let message = message
        .split(", set DuplicateKeyPolicy")
        .next()
        .unwrap_or(message);
    let is_syntax = message.starts_with("while parsing") || message.starts_with("while scanning");
    let remedy = match is_syntax {
        true => "; check the indentation and the quotes up to this line",
        false => "",
    };
    format!("{}{remedy}", crate::error::excerpt(message, 500))
}

impl Document {
    pub(super) fn value(&self) -> Value {
        self.0.value.to_value()
    }

    /// Returns the line and column of a value in the YAML text. For a missing value, returns the position of the innermost existing value
    /// on its path.
    pub(super) fn locate(&self, location: &DefinitionPath) -> Option<Position> {
        let mut at = &self.0;
        for part in location.parts() {
            let found = match (part, &at.value) {
                (DefinitionPathPart::Item(item), Node::List(items)) => items.get(*item),
                (DefinitionPathPart::Field(name), Node::Object(fields)) => {
                    let found = fields.iter().find(|(field, _)| field == name);
                    found.map(|(_, value)| value)
                }
                (DefinitionPathPart::Item(_) | DefinitionPathPart::Field(_), _) => None,
            };
            match found {
                Some(found) => at = found,
                None => break,
            }
        }
        position(at.referenced)
    }
}

fn position(location: Location) -> Option<Position> {
    let line = usize::try_from(location.line()).ok()?;
    let column = usize::try_from(location.column()).ok()?;
    (line > 0).then_some(Position {
        file: None,
        line,
        column,
    })
}

impl Node {
    /// Converts the YAML node to JSON. Recurses at most [`MAX_LEVELS`] levels, which the parser enforces.
    fn to_value(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::List(items) => items.iter().map(|item| item.value.to_value()).collect(),
            Self::Object(fields) => {
                let fields = fields.iter();
                let fields = fields.map(|(name, value)| (name.clone(), value.value.to_value()));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can represent")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E: Error>(self) -> Result<Node, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        let number = Number::from_f64(value);
        let number =
            number.ok_or_else(|| E::custom("number is not finite, which JSON cannot represent"))?;
        Ok(Node::Scalar(number.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            fields.push(entry);
        }
        Ok(Node::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use crate::workflow::{Workflow, WorkflowLoadError};
    use proptest::prelude::*;
    use serde_json::json;

    const DESK: &str = "\
name: desk
tools:
  search: {}
flows:
  main:
    steps:
      - id: found
        tool: search
        input:
          query: ${input.topic}
        retry: 3
      - return: ${found}
";

    fn problem(text: &str) -> String {
        Workflow::from_yaml(text).unwrap_err().to_string()
    }

    #[test]
    fn a_yaml_definition_equals_the_same_definition_in_json() {
        let json = json!({
            "name": "desk",
            "tools": {"search": {}},
            "flows": {"main": {"steps": [
                {"id": "found", "tool": "search", "input": {"query": "${input.topic}"}, "retry": 3},
                {"return": "${found}"},
            ]}},
        });

        let read = Workflow::from_yaml(DESK).unwrap();

        assert_eq!(read.hash(), Workflow::from_json(&json).unwrap().hash());
    }

    #[test]
    fn an_error_states_the_line_and_column_of_the_problem() {
        let misspelt = DESK.replace("tool: search", "tool: serch");
        let wrong = DESK.replace("retry: 3", "retry: often");
        let unknown = DESK.replace("    steps:", "    stepps: 1\n    steps:");

        assert!(
            problem(&misspelt).starts_with("line 8 column 15: "),
            "{}",
            problem(&misspelt)
        );
        assert!(problem(&misspelt).ends_with("unknown tool \"serch\"; did you mean \"search\"?"));
        assert!(
            problem(&wrong).starts_with("line 11 column 16: "),
            "{}",
            problem(&wrong)
        );
        assert!(
            problem(&unknown).starts_with("line 6 column"),
            "{}",
            problem(&unknown)
        );
    }

    #[test]
    fn a_yaml_syntax_error_states_its_position_once() {
        assert_eq!(
            problem("name: a\nname: b"),
            "line 2 column 1: the definition: duplicate mapping key: name"
        );
        assert_eq!(problem("flows:\n\tmain: {}").matches("line 2").count(), 1);
    }

    #[test]
    fn a_warning_states_the_line_and_column() {
        let workflow =
            Workflow::from_yaml(&DESK.replace("  search: {}", "  search: {}\n  shell: {}"));

        let workflow = workflow.unwrap();

        let warnings: Vec<String> = workflow
            .warnings()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            warnings,
            ["line 4 column 10: tools.shell: the tool \"shell\" is not used"]
        );
    }

    #[test]
    fn yaml_features_that_json_lacks_are_refused() {
        for text in [
            "name: a\nname: b",
            "tools: {1: {}}\n? [a]\n: b",
            "models: {m: {temperature: .nan}}",
            "a: &a [*a]",
            "name: [",
            "--- \nname: a\n--- \nname: b",
        ] {
            assert!(Workflow::from_yaml(text).is_err(), "{text}");
        }
    }

    #[test]
    fn aliases_that_grow_without_measure_are_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let last = level - 1;
            let items = vec![format!("*a{last}"); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }

        assert!(Workflow::from_yaml(&text).is_err());
    }

    #[test]
    fn words_that_some_take_for_truth_values_are_texts() {
        let workflow = Workflow::from_yaml("name: no").unwrap();

        assert_eq!(workflow.name.as_deref(), Some("no"));
    }

    /// Parses a text on a thread with a stack of 2 MiB, which is the stack size of `tokio` threads.
    fn read_on_small_stack(text: &str) -> Result<Workflow, WorkflowLoadError> {
        let text = text.to_owned();
        let thread = std::thread::Builder::new().stack_size(2 << 20);
        let read = thread.spawn(move || Workflow::from_yaml(&text));
        read.unwrap().join().unwrap()
    }

    #[test]
    fn a_text_that_nests_too_deep_is_refused_without_overflowing_the_stack() {
        for (open, close) in [("[", "]"), ("{a: ", "}")] {
            for depth in [31, 32, 33, 64, 65, 1_000, 100_000] {
                let text = format!(
                    "description: {}1{}",
                    open.repeat(depth),
                    close.repeat(depth)
                );

                let problem = read_on_small_stack(&text).unwrap_err().to_string();

                assert_eq!(
                    problem.contains("32 levels"),
                    depth >= 32,
                    "{depth}: {problem}"
                );
            }
        }
    }

    #[test]
    fn aliases_that_nest_too_deep_are_refused_without_overflowing_the_stack() {
        let mut text = format!("a0: &a0 {}1{}\n", "[".repeat(20), "]".repeat(20));
        for level in 1..60 {
            let (open, close) = ("[".repeat(20), "]".repeat(20));
            text.push_str(&format!(
                "a{level}: &a{level} {open}*a{}{close}\n",
                level - 1
            ));
        }

        let problem = read_on_small_stack(&text).unwrap_err().to_string();

        assert!(problem.contains("32 levels"), "{problem}");
    }

    proptest! {
        #![proptest_config(crate::fuzz::config())]

        #[test]
        fn reading_an_arbitrary_text_never_panics(text in "[-:&*{}\\[\\]a-c \\n'\"|>#?!0-9]{0,200}") {
            let read: Result<Workflow, WorkflowLoadError> = Workflow::from_yaml(&text);
            drop(read);
        }
    }
}
