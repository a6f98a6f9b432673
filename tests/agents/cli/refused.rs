//! Clients without access, and requests that cannot be answered.

use crate::cli::client::{Door, heard, request};
use crate::cli::engine::{Engine, deliver, next_call};
use crate::cli::{playing, task};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use universal_executor::agent::{CliProvider, Provider as _, ProviderSession};

/// Returns a program that gives the test access and then writes the received answer, which proves that it is still served.
fn open() -> CliProvider {
    playing(&json!([["open", null], ["say_heard", null]]))
}

/// Runs a harmful client, and checks that the program is still served.
async fn meets<F>(program: &CliProvider, client: impl Fn(Door) -> F + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut engine = Engine::with_client(client);
    let text = engine.run(program).await.unwrap();

    let heard: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(heard, json!([{"output": "done", "status": "success"}]));
    assert_eq!(engine.executed(), ["door"]);
}

fn echo() -> String {
    json!({"id": "1", "tool": "echo", "arguments": {}}).to_string()
}

#[tokio::test]
async fn every_request_without_the_token_is_unauthorized() {
    meets(&open(), |door| async move {
        let wrong = "0".repeat(64);
        let headers = [
            String::new(),
            "authorization: Bearer\r\n".into(),
            "authorization: Bearer \r\n".into(),
            format!("authorization: {}\r\n", door.token),
            format!("authorization: Basic {}\r\n", door.token),
            format!("authorization: Bearer {wrong}\r\n"),
            format!("authorization: Bearer {}0\r\n", door.token),
            format!("authorization: Bearer {}\r\n", &door.token[1..]),
        ];
        for header in &headers {
            for (method, path) in [
                ("POST", "/v1/tool-calls"),
                ("GET", "/v1/tools"),
                ("GET", "/"),
                ("DELETE", "/v1/tools"),
            ] {
                let (status, body) = door.send(&request(method, path, header, &echo())).await;
                assert_eq!(status, 401, "{method} {path} {header}");
                assert_eq!(body["code"], "unauthorized");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn nothing_but_two_paths_is_served() {
    meets(&open(), |door| async move {
        for path in ["/", "/v1", "/v1/tools/", "/v1/tool-calls/1", "/v2/tools"] {
            let (status, body) = door.send(&door.request("GET", path, "")).await;
            assert_eq!(
                (status, &body["code"]),
                (404, &json!("not_found")),
                "{path}"
            );
        }
        for (method, path) in [
            ("GET", "/v1/tool-calls"),
            ("PUT", "/v1/tool-calls"),
            ("POST", "/v1/tools"),
        ] {
            let (status, body) = door.send(&door.request(method, path, &echo())).await;
            let refused = (405, &json!("method_not_allowed"));
            assert_eq!((status, &body["code"]), refused, "{method} {path}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_body_that_is_not_a_call_is_refused_with_the_problem() {
    meets(&open(), |door| async move {
        for (body, problem) in [
            ("", "EOF"),
            ("{", "EOF"),
            ("<call/>", "expected value"),
            (r#"{"id": "1", "tool": "echo"}"#, "arguments"),
        ] {
            let (status, told) = door.send(&door.call(body)).await;
            let error = told["error"].as_str().unwrap();
            assert_eq!((status, &told["code"]), (400, &json!("bad_request")));
            assert!(error.contains(problem), "{body} is refused with {error}");
        }
        let mut cut = door.call(&echo());
        cut.truncate(cut.len() - 5);
        let mut stream = door.connect().await;
        stream.write_all(&cut).await.unwrap();
        stream.shutdown().await.unwrap();
        // The server may send an answer or close the connection, but no call is made.
        stream.read_to_end(&mut Vec::new()).await.ok();
    })
    .await;
}

#[tokio::test]
async fn a_body_may_be_as_large_as_the_limit_and_no_larger() {
    const LIMIT: usize = 1 << 16;
    let program = open().max_call_bytes(LIMIT);
    let mut engine = Engine::with_client(|door| async move {
        let around = json!({"id": "1", "tool": "echo", "arguments": {"text": ""}});
        let fill = "x".repeat(LIMIT - around.to_string().len());
        let largest = json!({"id": "1", "tool": "echo", "arguments": {"text": fill}}).to_string();

        let (status, body) = door.send(&door.call(&largest)).await;
        assert_eq!((status, &body["status"]), (200, &json!("success")));

        let (status, body) = door.send(&door.call(&format!("{largest} "))).await;
        assert_eq!((status, &body["code"]), (413, &json!("too_large")));

        // A body without a content length.
        let head = "transfer-encoding: chunked\r\n";
        let chunk = format!("{:x}\r\n{largest} \r\n0\r\n\r\n", LIMIT + 1);
        let authorization = format!("authorization: Bearer {}\r\n{head}", door.token);
        let sent = format!("POST /v1/tool-calls HTTP/1.1\r\nhost: a\r\n{authorization}\r\n{chunk}");
        let (status, body) = door.send(sent.as_bytes()).await;
        assert_eq!((status, &body["code"]), (413, &json!("too_large")));
    });

    engine.run(&program).await.unwrap();

    assert_eq!(engine.executed(), ["door", "1"]);
}

#[tokio::test]
async fn an_oversized_body_is_refused_after_it_is_sent() {
    meets(&open(), |door| async move {
        let text = "x".repeat(12 << 20);
        let body = json!({"id": "1", "tool": "echo", "arguments": {"text": text}});

        let (status, told) = door.send(&door.call(&body.to_string())).await;

        assert_eq!((status, &told["code"]), (413, &json!("too_large")));
    })
    .await;
}

#[tokio::test]
async fn garbage_costs_a_connection_and_nothing_else() {
    meets(&open(), |door| async move {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20));
        for garbage in [
            "\0\0\0\0\r\n\r\n",
            "no HTTP at all\r\n\r\n",
            "GET / HTTP/9.9\r\n\r\n",
            "POST /v1/tool-calls HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
            "GET / HTTP/1.1\r\nno header\r\n\r\n",
            &long,
        ] {
            let mut stream = door.connect().await;
            // The server may close the connection before the client has written everything.
            stream.write_all(garbage.as_bytes()).await.ok();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.ok();
            let answer = String::from_utf8_lossy(&answer).into_owned();
            assert!(
                answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
                "{answer}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_stalled_client_times_out() {
    let mut engine = Engine::with_client(|door| async move {
        let mut head = door.connect().await;
        head.write_all(b"POST /v1/tool").await.unwrap();
        let mut cut = door.call(&echo());
        cut.truncate(cut.len() - 5);
        let mut body = door.connect().await;
        body.write_all(&cut).await.unwrap();

        // Paused time advances whenever all tasks wait.
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let (status, told) = heard(body).await;
        let mut answer = Vec::new();
        head.read_to_end(&mut answer).await.ok();
        let took = began.elapsed();
        tokio::time::resume();

        assert_eq!((status, &told["code"]), (408, &json!("too_slow")));
        assert!(answer.is_empty(), "{answer:?}");
        assert_eq!(took.as_secs(), 10);
    });
    let mut session = open().start(task()).await.unwrap();

    let text = engine.turn(&mut *session).await.unwrap();

    assert!(
        text.contains("done"),
        "the program must still be served: {text}"
    );
}

#[tokio::test]
async fn no_more_than_sixty_four_calls_wait_at_a_time() {
    let program = playing(&json!([["open", null], ["hang", null]]));
    let mut session = program.start(task()).await.unwrap();
    let door = Door::of(&next_call(&mut *session).await);
    let sent = |n: usize| {
        let body = json!({"id": n.to_string(), "tool": "wait", "arguments": {}});
        door.call(&body.to_string())
    };
    let mut waiting = Vec::new();
    for n in 1..64 {
        let mut stream = door.connect().await;
        stream.write_all(&sent(n)).await.unwrap();
        waiting.push(stream);
        next_call(&mut *session).await;
    }

    let (status, told) = served(&mut *session, door.send(&sent(64))).await;
    assert_eq!((status, &told["code"]), (429, &json!("too_many_calls")));

    // A call whose caller has disconnected counts until it has a result.
    drop(waiting.remove(0));
    let (status, _) = served(&mut *session, door.send(&sent(64))).await;
    assert_eq!(status, 429);
    deliver(&mut *session, "1").await;
    let mut stream = door.connect().await;
    stream.write_all(&sent(64)).await.unwrap();
    assert_eq!(next_call(&mut *session).await.id.as_str(), "64");

    // The end of the session answers the remaining callers.
    waiting.push(stream);
    let told = join_all(waiting.into_iter().map(heard));
    let (told, ()) = tokio::join!(told, session.cancel());
    for (status, body) in told {
        assert_eq!((status, &body["code"]), (200, &json!("cancelled")));
    }
}

#[tokio::test]
async fn the_number_of_open_connections_is_limited() {
    let program = playing(&json!([["open", null], ["hang", null]]));
    let mut session = program.start(task()).await.unwrap();
    let door = Door::of(&next_call(&mut *session).await);

    // One of the 128 allowed connections is the program's.
    let connected = async {
        let mut silent = Vec::new();
        for _ in 0..127 {
            silent.push(door.connect().await);
        }
        let mut refused = door.connect().await;
        let read = refused.read(&mut [0]).await;
        (silent, read)
    };
    let (silent, read) = served(&mut *session, connected).await;

    assert!(
        !matches!(read, Ok(1..)),
        "the connection must be closed: {read:?}"
    );
    let first = silent[0].try_read(&mut [0]);
    assert!(
        first.is_err(),
        "earlier connections must stay open: {first:?}"
    );
    drop(silent);
    let (status, _) = served(&mut *session, async {
        loop {
            let mut stream = door.connect().await;
            stream
                .write_all(&door.request("GET", "/v1/tools", ""))
                .await
                .unwrap();
            let mut answer = String::new();
            // New connections are accepted once the server has noticed the closed ones.
            if stream.read_to_string(&mut answer).await.is_ok() && !answer.is_empty() {
                break (answer.contains("200 OK"), ());
            }
        }
    })
    .await;
    assert!(status);
}

/// Polls the session, which must return no event, while a client runs. Returns the client's result.
async fn served<T>(session: &mut dyn ProviderSession, client: impl Future<Output = T>) -> T {
    tokio::select! {
        heard = client => heard,
        said = session.next() => panic!("unexpected event: {said:?}"),
    }
}
