use super::*;
use crate::executor::{Response, UniversalExecutor as _, executor};
use crate::model::{Event, NewBreadcrumb, Subscription};
use crate::store::{BreadcrumbStoreExt as _, MemoryStore};

#[test]
fn the_json_of_past_turns_and_sessions_is_stable() {
    let turn = PastTurn {
        request: "id#1".into(),
        message: "Hi".into(),
        from: None,
        at: Timestamp::from_micros(1),
        state: Some(RunState::Done),
        end: Some(TurnEnd::Completed {
            text: "Hello".into(),
        }),
    };
    let session = SessionView {
        executor: "helper".into(),
        session: "one".into(),
    };

    let expected = json!({
        "request": "id#1", "message": "Hi", "from": null, "at": "1970-01-01T00:00:00.000001Z",
        "state": "done", "end": {"completed": {"text": "Hello"}},
    });
    assert_eq!(serde_json::to_value(turn).unwrap(), expected);
    let expected = json!({"executor": "helper", "session": "one"});
    assert_eq!(serde_json::to_value(session).unwrap(), expected);
}

#[test]
fn the_answers_to_a_request_with_a_long_id_are_found_by_the_id_of_its_breadcrumb() {
    let request = |id: &str| {
        let request = NewBreadcrumb::new(ToolExecutor::REQUEST);
        let request = request.context(json!({"requestId": id}));
        request.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH)
    };

    let finds = |id: &str, tag: &str| {
        let answer = NewBreadcrumb::new(ToolExecutor::RESPONSE).tag(tag);
        let answer = answer.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
        let (request_schema, answer_schema) = (ToolExecutor::REQUEST, ToolExecutor::RESPONSE);
        let mut found = replies_to(&request(id), request_schema, answer_schema).into_iter();
        found.any(|replies| replies.answers.matches(&answer))
    };

    assert!(finds("r-1", "request:r-1") && !finds("r-1", "request:r-2"));
    let of_breadcrumb = format!("request:{}", BreadcrumbId::NIL);
    assert!(finds(&"r".repeat(513), &of_breadcrumb));
    assert!(!finds("r-1", &of_breadcrumb));
}

#[tokio::test]
async fn a_deletion_finds_the_answers_to_a_request_with_an_id_that_is_too_long_for_a_tag() {
    let store = MemoryStore::default();
    let helper = executor("helper")
        .on(Subscription::trigger("user.message.v1"))
        .execute(|_| async {
            let request = NewBreadcrumb::new(ToolExecutor::REQUEST);
            let context = json!({"tool": "probe", "requestId": "r".repeat(300)});
            Ok(Response::create(request.context(context)))
        });
    let helper = helper.bind(&store).unwrap();
    let session = Client::new(&store).session("helper", "one").unwrap();
    session.send("Hi").await.unwrap();
    let message = store.latest("user.message.v1").await.unwrap().unwrap();
    helper
        .process_event(&Event::created(&message))
        .await
        .unwrap();
    for id in ["r".repeat(300), "s".repeat(300)] {
        let answer = NewBreadcrumb::new(ToolExecutor::RESPONSE);
        let answer = answer.context(json!({"request_id": id, "status": "success"}));
        store.create(answer).await.unwrap();
    }

    session.delete().await.unwrap();

    let remaining = store.recent(ToolExecutor::RESPONSE, 10).await.unwrap();
    let [other] = remaining.as_slice() else {
        panic!("{remaining:?}");
    };
    assert_eq!(other.context.text("request_id"), Some(&*"s".repeat(300)));
}

#[cfg(feature = "testing")]
#[tokio::test]
async fn a_deletion_that_is_repeated_after_an_error_leaves_nothing_of_a_child() {
    use crate::store::{Fault, Faulty, Moment, Operation};
    use std::sync::atomic::{AtomicUsize, Ordering};

    let mut interrupted = 0;
    for failing in 0..6 {
        let store = MemoryStore::default();
        let helper = executor("helper")
            .on(Subscription::trigger("user.message.v1"))
            .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("agent.request.v1"))) });
        let clerk = executor("clerk")
            .on(Subscription::trigger("agent.request.v1"))
            .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("agent.response.v1"))) });
        let (helper, clerk) = (helper.bind(&store).unwrap(), clerk.bind(&store).unwrap());
        let chat = Client::new(&store).session("helper", "one").unwrap();
        chat.send("Hi").await.unwrap();
        for (schema, executor) in [("user.message.v1", helper), ("agent.request.v1", clerk)] {
            let trigger = store.latest(schema).await.unwrap().unwrap();
            executor
                .process_event(&Event::created(&trigger))
                .await
                .unwrap();
        }
        let commits = AtomicUsize::new(0);
        let faulty = Faulty::new(store.clone(), move |operation, moment| {
            let is_commit = (operation, moment) == (Operation::Commit, Moment::Before);
            match is_commit && commits.fetch_add(1, Ordering::Relaxed) == failing {
                true => Fault::Fail,
                false => Fault::None,
            }
        });
        let session = Client::new(&faulty).session("helper", "one").unwrap();

        if session.delete().await.is_err() {
            interrupted += 1;
            session.delete().await.unwrap();
        }

        for schema in ["agent.request.v1", "agent.response.v1"] {
            let remaining = store.recent(schema, 10).await.unwrap();
            assert!(remaining.is_empty(), "{schema} {failing} {remaining:?}");
        }
    }
    assert!(interrupted >= 2, "{interrupted}");
}

#[tokio::test]
async fn a_deletion_follows_the_maximum_number_of_runs_and_no_more() {
    let store = MemoryStore::default();
    let helper = executor("helper")
        .on(Subscription::trigger("user.message.v1"))
        .execute(|_| async {
            let tasks = (0..5).map(|_| NewBreadcrumb::new("task.v1"));
            Ok(tasks.fold(Response::none(), Response::and_create))
        });
    let clerk = executor("clerk")
        .on(Subscription::trigger("task.v1"))
        .execute(|_| async { Ok(Response::none()) });
    let (helper, clerk) = (helper.bind(&store).unwrap(), clerk.bind(&store).unwrap());
    let message = NewBreadcrumb::new("user.message.v1");
    let message = store.create(message).await.unwrap();
    helper
        .process_event(&Event::created(&message))
        .await
        .unwrap();
    for task in store.recent("task.v1", 10).await.unwrap() {
        clerk.process_event(&Event::created(&task)).await.unwrap();
    }
    let session = Client::new(&store).session("helper", "one").unwrap();
    let run = RunRef::new("helper", message.id, message.version);

    let all = session.with_children(&run, 100).await.unwrap();
    let few = session.with_children(&run, 3).await.unwrap();

    assert_eq!((all.len(), all.first()), (6, Some(&run)));
    assert_eq!(few.as_slice(), all.get(..3).unwrap());
}
