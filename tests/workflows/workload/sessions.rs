//! The memory of a session: questions and answers, the calls of agents, and the messages of each agent in a flow.

use crate::workload::{Setup, agent, asked, code, flow, history, parrot, says, setup, setup_on};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::agent::guardrail::{Decision, on_input};
use universal_executor::agent::{
    ChatMessage, ChatResponse, Opaque, Part, PartOrigin, Reasoning, ScriptedModel, Speaker,
    ToolCall,
};
use universal_executor::store::{Fault, Faulty, Moment, Operation};
#[cfg(feature = "validate")]
use universal_executor::tool::deferred;
use universal_executor::tool::{Approval, ToolRegistry, json_tool};
use universal_executor::workflow::{FlowEventKind, MayRetry, StepPath};
use universal_executor::workload::{
    FlowDefinition, Restart, SubscriberItem, Supervisor, TurnAnswerError, TurnStatus,
    WorkloadEventKind,
};
use universal_executor::{MemoryStore, Services};

fn supervisor(definition: FlowDefinition, setup: &Setup) -> Supervisor {
    setup.supervisor(Arc::new(definition)).build().unwrap()
}

async fn turn(supervisor: &Supervisor, session: &str, message: &str) -> Option<String> {
    supervisor
        .send(session, message)
        .unwrap()
        .outcome()
        .await
        .final_text()
}

#[tokio::test]
async fn an_agent_is_shown_the_messages_of_its_own_session_only() {
    let model = says(["Hello, Ann.", "You are Ann.", "Who?"]);
    let supervisor = supervisor(agent(), &setup(&model, &MemoryStore::default()));

    turn(&supervisor, "one", "I am Ann.").await;
    turn(&supervisor, "one", "Who am I?").await;
    turn(&supervisor, "two", "Who am I?").await;

    let requests = model.requests();
    assert_eq!(history(&requests[0]), [""; 0]);
    assert_eq!(history(&requests[1]), ["I am Ann.", "Hello, Ann."]);
    assert_eq!(history(&requests[2]), [""; 0]);
}

#[tokio::test]
async fn reasoning_and_provider_state_of_earlier_turns_stay_with_their_calls() {
    let origin = PartOrigin::new("test", Some("tiny"));
    let thought = Part::Reasoning(Reasoning::new("Doubles.", "thought", origin.clone()));
    let state = Opaque::new("signature", json!("s"), origin).of_call("c1");
    let call = ToolCall::new("c1", "double", json!({"n": 2}));
    let asks = ChatResponse::calling(vec![call])
        .with(thought)
        .with(Part::Opaque(state));
    let said = asks.message();
    let model = Arc::new(ScriptedModel::script(
        [asks, ChatResponse::new("4"), ChatResponse::new("Yes.")].map(Ok),
    ));
    let doubles = flow(json!({
        "tools": {"double": {}},
        "agents": {"main": {"instruction": "Help.", "tools": ["double"]}},
    }));
    let supervisor = supervisor(doubles, &setup(&model, &MemoryStore::default()));

    turn(&supervisor, "one", "Two twice?").await;
    turn(&supervisor, "one", "Sure?").await;

    let expected = [
        ChatMessage::system("Help."),
        ChatMessage::user("Two twice?"),
        said,
        ChatMessage::tool_result("c1", "4"),
        ChatMessage::assistant("4"),
        ChatMessage::user("Sure?"),
    ];
    assert_eq!(model.requests()[2].messages, expected);
}

#[tokio::test]
async fn a_flow_is_in_the_memory_of_its_session_with_question_and_result() {
    let model = parrot();
    let reviewed = flow(json!({
        "agents": {"a": {"instruction": "Help."}},
        "flows": {"main": {"steps": [{"agent": "a"}, {"return": "the result"}]}},
    }));
    let supervisor = supervisor(reviewed, &setup(&model, &MemoryStore::default()));

    turn(&supervisor, "one", "first").await;
    turn(&supervisor, "one", "second").await;

    // The conversation of the session comes first, then the agent's conversation at this step.
    let shown = history(&model.requests()[1]).join("|");
    assert_eq!(shown, "first|the result|first|said: first");
}

#[tokio::test]
async fn agents_at_other_steps_and_iterations_do_not_see_each_others_messages() {
    let model = parrot();
    let twice = flow(json!({
        "agents": {"a": {"instruction": "Help."}},
        "flows": {"main": {"steps": [{"loop": [{"agent": "a", "input": "${iteration}"}], "max": 2}]}},
    }));
    let setup = setup(&model, &MemoryStore::default());
    let supervisor = supervisor(twice, &setup);

    turn(&supervisor, "one", "go").await;

    assert!(
        model
            .requests()
            .iter()
            .all(|request| history(request).is_empty())
    );
    let session = supervisor.sessions().session("one");
    let first = session
        .child(&StepPath::new("main/0#1/0"))
        .load()
        .await
        .unwrap();
    assert_eq!(first.messages().len(), 2, "{first:?}");
}

#[tokio::test]
async fn a_called_agent_is_shown_all_of_its_messages_from_earlier_turns() {
    // The writer calls the critic twice in each turn, one call after the other.
    let model = Arc::new(ScriptedModel::answering(|number, request| {
        let is_critic = request.messages[0].text().contains("Criticise.");
        let shown = request.messages.iter();
        let task = request
            .messages
            .iter()
            .rposition(|message| message.speaker == Speaker::User);
        let results = shown.skip(task.unwrap());
        let results = results.filter(|message| message.speaker == Speaker::Tool);
        let ask = |prompt: String| {
            let call = ToolCall::new(number.to_string(), "critic", json!({"prompt": prompt}));
            ChatResponse::calling(vec![call])
        };
        Ok(match (is_critic, results.count()) {
            (true, _) => ChatResponse::new(format!("fine {}", asked(request))),
            (false, results @ (0 | 1)) => ask(format!("{number}-{results}")),
            (false, _) => ChatResponse::new("done"),
        })
    }));
    let definition = flow(json!({"agents": {
        "main": {"instruction": "Write.", "use": ["critic"]},
        "critic": {"instruction": "Criticise."},
    }}));
    let supervisor = supervisor(definition, &setup(&model, &MemoryStore::default()));

    for message in ["one", "two"] {
        turn(&supervisor, "one", message).await;
    }

    let requests = model.requests();
    let critic = requests
        .iter()
        .filter(|request| request.messages[0].text().contains("Criticise."));
    let shown: Vec<_> = critic.map(|request| history(request).join("|")).collect();
    // The session's messages come before the critic's own messages.
    let own: Vec<_> = shown
        .iter()
        .map(|shown| shown.rsplit_once("done|").map_or("", |(_, own)| own))
        .collect();
    let first = "1-0|fine 1-0|3-1|fine 3-1";
    assert_eq!(own, ["", "", first, first]);
}

#[tokio::test]
async fn an_agent_is_shown_at_most_the_history_of_its_definition() {
    let model = parrot();
    let short = flow(json!({"agents": {"main": {"instruction": "Help.", "history": 2}}}));
    let none = flow(json!({"agents": {"main": {"instruction": "Help.", "history": "none"}}}));
    let setup = setup(&model, &MemoryStore::default());
    let (short, none) = (supervisor(short, &setup), supervisor(none, &setup));

    for message in ["a", "b", "c"] {
        turn(&short, "one", message).await;
    }
    turn(&none, "one", "d").await;

    let requests = model.requests();
    assert_eq!(history(&requests[2]), ["b", "said: b"]);
    assert_eq!(history(&requests[3]), [""; 0]);
}

#[tokio::test]
async fn a_conversation_that_a_guardrail_denies_is_not_shown_to_the_model_that_sums_up() {
    let model = parrot();
    let no_transcripts = on_input("no transcripts", |messages| {
        let transcript =
            |message: &ChatMessage| message.text().contains(r#""role":"user","text":"a""#);
        match messages.iter().any(transcript) {
            true => Decision::deny("it stays here"),
            false => Decision::Allow,
        }
    });
    let services = Services::new()
        .default_model(Arc::clone(&model))
        .guardrail(no_transcripts);
    let long = flow(json!({
        "agents": {"main": {"instruction": "Help."}},
        "policies": {
            "compaction": {"method": "summarise", "at_tokens": 4, "keep": 2},
            "guardrails": {"input": ["no transcripts"]},
        },
    }));
    let setup = Setup::new(services, Arc::new(MemoryStore::default()));
    let supervisor = supervisor(long, &setup);

    for message in ["a", "b", "c"] {
        turn(&supervisor, "one", message).await;
    }

    let requests = model.requests();
    assert_eq!(requests.len(), 3);
    let shown = ["a", "said: a", "b", "said: b"];
    assert_eq!(history(&requests[2]), shown);
}

#[tokio::test]
async fn calls_of_tools_are_replayed_with_their_results() {
    let model = Arc::new(ScriptedModel::answering(|number, _| {
        Ok(match number {
            1 => ChatResponse::calling(vec![ToolCall::new("1", "double", json!({"n": 21}))]),
            _ => ChatResponse::new("42."),
        })
    }));
    let definition = flow(json!({
        "tools": {"double": {}},
        "agents": {"main": {"instruction": "Help.", "tools": ["double"]}},
    }));
    let supervisor = supervisor(definition, &setup(&model, &MemoryStore::default()));

    turn(&supervisor, "one", "Twice 21?").await;
    turn(&supervisor, "one", "Sure?").await;

    let shown = &model.requests()[2].messages[1..5];
    let speakers: Vec<_> = shown.iter().map(|message| message.speaker).collect();
    let expected = [
        Speaker::User,
        Speaker::Assistant,
        Speaker::Tool,
        Speaker::Assistant,
    ];
    assert_eq!(speakers, expected);
    assert_eq!(shown[1].tool_calls()[0].name, "double");
    assert_eq!(shown[2].call_id(), Some(&*shown[1].tool_calls()[0].id));
    assert_eq!(shown[2].text(), "42");
}

#[tokio::test]
async fn a_question_can_be_answered_after_a_restart_of_the_process() {
    use universal_executor::BreadcrumbStoreExt as _;
    let store = MemoryStore::default();
    let setup = setup(&parrot(), &store);
    let asks = || {
        flow(json!({"flows": {"main": {"steps": [
            {"id": "answer", "ask": "Go on?"}, {"return": "${input}: ${answer}"},
        ]}}}))
    };
    let before = supervisor(asks(), &setup);
    let asked = before.send("one", "publish").unwrap().outcome().await;
    drop(before);
    let after = supervisor(asks(), &setup);

    let refused = after.send("one", "other").unwrap().outcome().await;
    let still = after.resume("one").unwrap().outcome().await;
    let question = store.latest("human.request.v1").await.unwrap().unwrap();
    let ticket = question.context.text("requestId").unwrap();
    after.answer(ticket, json!("yes"), "ann").await.unwrap();
    let done = after.resume("one").unwrap().outcome().await;
    let nothing = after.resume("one").unwrap().outcome().await;

    assert!(
        matches!(asked.status, TurnStatus::Suspended { .. }),
        "{asked:?}"
    );
    assert_eq!(code(&refused.status), "suspended");
    assert!(
        matches!(still.status, TurnStatus::Suspended { .. }),
        "{still:?}"
    );
    assert_eq!(done.final_text().as_deref(), Some("publish: yes"));
    assert_eq!(code(&nothing.status), "not_suspended");
    let log = after.sessions().session("one").load().await.unwrap();
    assert_eq!(log.messages().len(), 2, "{log:?}");
}

#[tokio::test]
async fn an_answer_without_an_effect_is_an_error() {
    use universal_executor::BreadcrumbStoreExt as _;
    let store = MemoryStore::default();
    let pay = json_tool("pay", "Pays.", json!({}), |_, _| async {
        Ok(json!("paid"))
    });
    let pay = pay.needs_approval(Approval::always().by("ann"));
    let services = Services::new().tool(pay).unwrap();
    let asks = flow(json!({"tools": {"pay": {}}, "flows": {"main": {"steps": [
        {"id": "city", "ask": "Which city?", "of": ["ann"]},
        {"id": "receipt", "tool": "pay", "input": {}},
        {"return": "${city}: ${receipt}"},
    ]}}}));
    let supervisor = supervisor(asks, &Setup::new(services, Arc::new(store.clone())));
    let ticket = async || {
        let asked = store.latest("human.request.v1").await.unwrap().unwrap();
        asked.context.text("requestId").unwrap().to_owned()
    };
    supervisor.send("one", "go").unwrap().outcome().await;
    let city = ticket().await;

    let (bern, rome) = (json!("Bern"), json!("Rome"));
    let unknown = supervisor.answer("nothing", bern.clone(), "ann").await;
    let stranger = supervisor.answer(&city, bern.clone(), "bob").await;
    let answered = supervisor.answer(&city, bern.clone(), "ann").await;
    let again = supervisor.answer(&city, bern, "ann").await;
    let other = supervisor.answer(&city, rome, "ann").await;
    supervisor.resume("one").unwrap().outcome().await;
    let payment = ticket().await;
    let unfit = supervisor.answer(&payment, json!("yes"), "ann").await;
    let approved = supervisor.answer(&payment, json!(true), "ann").await;
    let done = supervisor.resume("one").unwrap().outcome().await;

    assert!(matches!(unknown, Err(TurnAnswerError::Unknown { .. })));
    assert!(matches!(stranger, Err(TurnAnswerError::NotAllowed { .. })));
    assert_eq!(answered.unwrap().id, again.unwrap().id);
    assert!(matches!(other, Err(TurnAnswerError::NotOpen { .. })));
    assert!(matches!(unfit, Err(TurnAnswerError::Invalid { .. })));
    assert!(approved.is_ok(), "{approved:?}");
    assert_eq!(done.final_text().as_deref(), Some("Bern: paid"));
    let answers = store.recent("human.response.v1", 10).await.unwrap();
    assert_eq!(answers.len(), 2, "{answers:?}");
}

#[tokio::test]
async fn a_turn_that_starts_again_and_asks_with_another_text_gets_its_answer() {
    use universal_executor::BreadcrumbStoreExt as _;
    const BEFORE_THE_DRAFT: usize = 100;
    let store = MemoryStore::default();
    let commits = Arc::new(AtomicUsize::new(BEFORE_THE_DRAFT));
    let (drafts, since_draft) = (AtomicUsize::new(0), Arc::clone(&commits));
    let draft = json_tool("draft", "Drafts.", json!({}), move |_, _| {
        let number = drafts.fetch_add(1, Ordering::SeqCst);
        if number == 0 {
            since_draft.store(0, Ordering::SeqCst);
        }
        async move { Ok(json!(format!("draft {number}"))) }
    });
    // After the first draft, the first commit writes the question, and the second one saves the turn as waiting.
    let faulty = Faulty::new(store.clone(), move |operation, moment| {
        let is_commit = operation == Operation::Commit && moment == Moment::Before;
        match is_commit && commits.fetch_add(1, Ordering::SeqCst) == 1 {
            true => Fault::Fail,
            false => Fault::None,
        }
    });
    let asks = flow(json!({"tools": {"draft": {}}, "flows": {"main": {"steps": [
        {"id": "text", "tool": "draft", "input": {}},
        {"id": "answer", "ask": "Send ${text}?", "of": ["ann"]},
        {"return": "${text}: ${answer}"},
    ]}}}));
    let services = Services::new().tool(draft).unwrap();
    let setup = Setup::new(services, Arc::new(faulty));
    let restart = Restart {
        attempts: std::num::NonZeroU32::new(2).unwrap(),
        delay: Duration::from_millis(1),
    };
    let supervisor = setup.supervisor(Arc::new(asks)).restart(restart);
    let supervisor = supervisor.build().unwrap();

    let asked = supervisor.send("one", "go").unwrap().outcome().await;
    let questions = store.recent("human.request.v1", 10).await.unwrap();
    let newest = store.latest("human.request.v1").await.unwrap().unwrap();
    let ticket = newest.context.text("requestId").unwrap();
    let answered = supervisor.answer(ticket, json!("yes"), "ann").await;
    let done = supervisor.resume("one").unwrap().outcome().await;

    assert!(
        matches!(asked.status, TurnStatus::Suspended { .. }),
        "{asked:?}"
    );
    assert_eq!(questions.len(), 2, "{questions:?}");
    assert!(answered.is_ok(), "{answered:?}");
    assert_eq!(done.final_text().as_deref(), Some("draft 1: yes"));
}

#[cfg(feature = "validate")]
#[tokio::test]
async fn a_turn_takes_no_answer_that_the_question_of_a_tool_excludes() {
    use universal_executor::BreadcrumbStoreExt as _;
    let store = MemoryStore::default();
    let asks = json_tool("asks", "Asks.", json!({}), |_, _| async {
        let schema = json!({"enum": ["Bern", "Basel"]});
        let question = json!({"question": "Which city?", "schema": schema});
        Err(deferred("question", question))
    });
    let services = Services::new().tool(asks).unwrap();
    let definition = flow(json!({"tools": {"asks": {}}, "flows": {"main": {"steps": [
        {"id": "city", "tool": "asks", "input": {}}, {"return": "${city}"},
    ]}}}));
    let supervisor = supervisor(definition, &Setup::new(services, Arc::new(store.clone())));

    supervisor.send("one", "go").unwrap().outcome().await;
    answer(&store, "Paris").await;
    let question = store.latest("human.request.v1").await.unwrap().unwrap();
    let ticket = question.context.text("requestId").unwrap();
    let answered = supervisor.answer(ticket, json!("Bern"), "ann").await;
    let done = supervisor.resume("one").unwrap().outcome().await;

    assert!(answered.is_ok(), "{answered:?}");
    assert_eq!(done.final_text().as_deref(), Some("Bern"));
}

#[tokio::test]
async fn the_question_of_an_agent_is_answered_by_the_ticket_of_the_event() {
    use universal_executor::BreadcrumbStoreExt as _;
    let store = MemoryStore::default();
    let pay = json_tool("pay", "Pays.", json!({}), |_, _| async {
        Ok(json!("paid"))
    });
    let pay = pay.needs_approval(Approval::always().by("ann"));
    let call = ToolCall::new("1", "pay", json!({}));
    let script = [
        ChatResponse::calling(vec![call]),
        ChatResponse::new("It is paid."),
    ];
    let model = Arc::new(ScriptedModel::script(script.map(Ok)));
    let services = Services::new().tool(pay).unwrap().default_model(model);
    let pays = flow(json!({
        "tools": {"pay": {}},
        "agents": {"teller": {"instruction": "Pay.", "tools": ["pay"]}},
        "flows": {"main": {"steps": [
            {"id": "receipt", "agent": "teller"}, {"return": "${receipt}"},
        ]}},
    }));
    let supervisor = supervisor(pays, &Setup::new(services, Arc::new(store.clone())));
    let mut events = supervisor.subscribe("one").unwrap();

    let asked = supervisor.send("one", "Pay.").unwrap().outcome().await;
    let ticket = loop {
        let Some(SubscriberItem::Event(event)) = events.next().await else {
            panic!("no event has the question's ticket: {asked:?}");
        };
        let has_ended = matches!(event.kind, WorkloadEventKind::Suspended { .. });
        assert!(!has_ended, "no event has the question's ticket: {asked:?}");
        if let WorkloadEventKind::Step(FlowEventKind::Suspended { ticket }) = &event.kind {
            break ticket.clone();
        }
    };
    let question = store.latest("human.request.v1").await.unwrap().unwrap();
    let stranger = supervisor.answer(&ticket, json!(true), "bob").await;
    let approved = supervisor.answer(&ticket, json!(true), "ann").await;
    let done = supervisor.resume("one").unwrap().outcome().await;

    assert_eq!(question.context.text("requestId"), Some(&*ticket));
    assert!(matches!(stranger, Err(TurnAnswerError::NotAllowed { .. })));
    assert!(approved.is_ok(), "{approved:?}");
    assert_eq!(done.final_text().as_deref(), Some("It is paid."));
}

#[tokio::test]
async fn looking_for_an_answer_often_leaves_the_conversation_before_as_it_is() {
    let store = MemoryStore::default();
    let setup = setup(&parrot(), &store);
    let asks = flow(json!({"flows": {"main": {"steps": [
        {"if": {"path": "input", "op": "eq", "value": "publish"}, "then": [{"ask": "Go on?"}]},
        {"return": "done"},
    ]}}}));
    let supervisor = supervisor(asks, &setup);
    turn(&supervisor, "one", "before").await;
    turn(&supervisor, "one", "publish").await;

    // The number is larger than the number of session entries that are read.
    for _ in 0..1_001 {
        supervisor.resume("one").unwrap().outcome().await;
    }
    answer(&store, "yes").await;
    let done = supervisor.resume("one").unwrap().outcome().await;

    assert_eq!(done.final_text().as_deref(), Some("done"));
    let log = supervisor.sessions().session("one").load().await.unwrap();
    let said: Vec<_> = log
        .messages()
        .into_iter()
        .map(|said| said.text().into_owned())
        .collect();
    assert_eq!(said, ["before", "done", "publish", "done"]);
}

#[tokio::test]
async fn a_turn_that_fails_for_good_after_it_has_waited_does_not_block_its_session() {
    let store = MemoryStore::default();
    let called = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&called);
    let charge = json_tool("charge", "Takes money.", json!({}), move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async move { Ok(json!("charged")) }
    });
    let tools = ToolRegistry::default().with(charge).unwrap();
    let setup = Setup::new(Services::new().tools(tools), Arc::new(store.clone()));
    let asks = flow(json!({
        "tools": {"charge": {}},
        "flows": {"main": {"steps": [
            {"ask": "Go on?"}, {"tool": "charge", "input": {}}, {"fail": "never"},
        ]}},
    }));
    let supervisor = supervisor(asks, &setup);
    supervisor.send("one", "publish").unwrap().outcome().await;
    answer(&store, "yes").await;

    let failed = supervisor.resume("one").unwrap().outcome().await;
    let again = supervisor.resume("one").unwrap().outcome().await;
    let next = supervisor.send("one", "other").unwrap().outcome().await;

    assert_eq!(code(&failed.status), "failed", "{failed:?}");
    assert_eq!(code(&again.status), "not_suspended");
    assert!(
        matches!(next.status, TurnStatus::Suspended { .. }),
        "{next:?}"
    );
    assert_eq!(called.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_failure_of_a_flow_ends_its_turn_regardless_of_its_code() {
    for failure in ["refused", "not_made"] {
        let store = MemoryStore::default();
        let asks = flow(json!({"flows": {"main": {"steps": [
            {"ask": "Go on?"}, {"fail": "No.", "code": failure},
        ]}}}));
        let supervisor = supervisor(asks, &setup(&parrot(), &store));
        supervisor.send("one", "publish").unwrap().outcome().await;
        answer(&store, "yes").await;

        let failed = supervisor.resume("one").unwrap().outcome().await;
        let next = supervisor.send("one", "other").unwrap().outcome().await;

        assert_eq!(code(&failed.status), failure);
        assert!(
            matches!(next.status, TurnStatus::Suspended { .. }),
            "{next:?}"
        );
    }
}

#[tokio::test]
async fn a_turn_with_a_missing_tool_is_refused_and_resumes_on_a_process_that_has_it() {
    let store = MemoryStore::default();
    let asks = flow(
        json!({"tools": {"double": {}}, "flows": {"main": {"steps": [
            {"ask": "Go on?"}, {"tool": "double", "input": {"n": 2}},
        ]}}}),
    );
    let has_it = supervisor(asks, &setup(&parrot(), &store));
    let other = flow(json!({"flows": {"main": {"steps": [{"return": 1}]}}}));
    let nothing = Setup::new(Services::new(), Arc::new(store.clone()));
    let lacks_it = supervisor(other, &nothing);
    has_it.send("one", "publish").unwrap().outcome().await;
    answer(&store, "yes").await;

    let refused = lacks_it.resume("one").unwrap().outcome().await;
    let done = has_it.resume("one").unwrap().outcome().await;

    assert_eq!(code(&refused.status), "refused", "{refused:?}");
    let TurnStatus::Failed { retry, .. } = refused.status else {
        panic!("the turn must fail")
    };
    assert_eq!(retry, MayRetry::Elsewhere);
    assert_eq!(done.final_text().as_deref(), Some("4"), "{done:?}");
}

#[tokio::test]
async fn a_turn_that_waits_can_be_given_up() {
    let setup = setup(&parrot(), &MemoryStore::default());
    let asks = flow(json!({"flows": {"main": {"steps": [{"ask": "Go on?"}]}}}));
    let supervisor = supervisor(asks, &setup);
    supervisor.send("one", "publish").unwrap().outcome().await;

    supervisor.give_up("one").await.unwrap();
    let next = supervisor.send("one", "other").unwrap().outcome().await;

    assert!(
        matches!(next.status, TurnStatus::Suspended { .. }),
        "{next:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_asked_more_than_once_at_a_time_answers_each_time_and_all_is_in_its_conversation()
 {
    let call = |number: &str| ToolCall::new(number, "critic", json!({"prompt": number}));
    let model = ScriptedModel::answering(move |_, request| {
        let mut messages = request.messages.iter();
        let has_result = messages.any(|message| message.speaker == Speaker::Tool);
        let is_critic = request.messages[0].text().contains("Criticise.");
        Ok(match (is_critic, has_result) {
            (true, _) => ChatResponse::new("fine"),
            (false, false) => ChatResponse::calling(vec![call("1"), call("2"), call("3")]),
            (false, true) => ChatResponse::new("done"),
        })
    });
    let definition = flow(json!({
        "agents": {
            "writer": {"instruction": "Write.", "use": ["critic"]},
            "critic": {"instruction": "Criticise."},
        },
        "flows": {"main": {"steps": [{"agent": "writer", "input": "crabs"}]}},
    }));
    // Each operation takes some time, as in any store outside of memory.
    let store = Faulty::new(MemoryStore::default(), |operation, moment| {
        let is_slow = matches!(operation, Operation::Search | Operation::Commit);
        match is_slow && moment == Moment::Before {
            true => Fault::Delay(Duration::from_millis(5)),
            false => Fault::None,
        }
    });
    let setup = setup_on(&Arc::new(model), Arc::new(store));
    let supervisor = supervisor(definition, &setup);

    assert_eq!(
        turn(&supervisor, "one", "go").await.as_deref(),
        Some("done")
    );

    let session = supervisor.sessions().session("one");
    let critic = session.child(&StepPath::new("main/0/critic"));
    let said = critic.load().await.unwrap().messages();
    let mut asked: Vec<_> = said.iter().step_by(2).map(super::said).collect();
    asked.sort_unstable();
    assert_eq!(asked, ["1", "2", "3"]);
}

#[tokio::test]
async fn an_agent_whose_conversation_is_made_shorter_has_room_for_as_many_pages_in_a_session() {
    let page = json_tool("page", "A page.", json!({}), |_, _| async move {
        Ok(json!("x".repeat(15_000)))
    });
    let model = ScriptedModel::answering(|number, _| {
        let calls = (0..9).map(|call| ToolCall::new(call.to_string(), "page", json!({})));
        Ok(match number {
            0..9 => ChatResponse::calling(calls.collect()),
            _ => ChatResponse::new("read"),
        })
    });
    let definition = flow(json!({
        "tools": {"page": {}},
        "agents": {"reader": {"instruction": "Read.", "tools": ["page"]}},
        "policies": {"compaction": {"method": "truncate", "at_tokens": 5_000, "keep": 2}},
        "flows": {"main": {"steps": [{"agent": "reader", "input": "all"}]}},
    }));
    let services = Services::new().tools(ToolRegistry::default().with(page).unwrap());
    let services = services.default_model(model);
    let setup = Setup::new(services, Arc::new(MemoryStore::default()));
    let supervisor = supervisor(definition, &setup);

    assert_eq!(
        turn(&supervisor, "one", "go").await.as_deref(),
        Some("read")
    );

    // The conversation still contains the newest calls.
    let session = supervisor.sessions().session("one");
    let reader = session.child(&StepPath::new("main/0"));
    let said = reader.load().await.unwrap().messages();
    assert!(said.iter().any(|said| said.speaker == Speaker::Tool));
    assert_eq!(said.last().unwrap().text(), "read");
}

/// Answers the newest question.
async fn answer(store: &MemoryStore, text: &str) {
    use universal_executor::{BreadcrumbStoreExt as _, NewBreadcrumb};
    let question = store.latest("human.request.v1").await.unwrap().unwrap();
    let id = question.context.text("requestId").unwrap();
    let answer = NewBreadcrumb::new("human.response.v1")
        .tag(format!("request:{id}"))
        .created_by("ann")
        .context(json!({"request_id": id, "answer": text}));
    store.create(answer).await.unwrap();
}
