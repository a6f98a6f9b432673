//! Errors of NATS and of RCRT (Right Context Right Time) servers.

#[cfg(feature = "nats")]
mod nats {
    use universal_executor::source::{NatsError, NatsSource};

    #[tokio::test]
    async fn an_invalid_setting_is_named_with_its_cause() {
        let tenant = "x".repeat(1_000);
        let builder = NatsSource::builder("nats://127.0.0.1:1", tenant);

        let error = builder.connect().await.map(drop).unwrap_err();

        let expected = "invalid tenant name for the NATS connection; see the cause";
        assert_eq!(error.to_string(), expected);
        let cause = crate::messages::cause_of(&error);
        assert!(cause.starts_with("escaped name has"), "{cause}");
    }

    #[test]
    fn an_error_of_a_nats_server_says_what_to_check() {
        for (error, expected) in [
            (
                NatsError::Unreachable("connection refused".into()),
                "cannot connect to the NATS server; check that the server runs and can be reached",
            ),
            (
                NatsError::Refused("authorization violation".into()),
                "the NATS server rejected the login, or the client does not trust the server's TLS certificate; check the login and the root certificates",
            ),
            (
                NatsError::NoJetStream("no responders".into()),
                "JetStream is not enabled on the NATS server for this account; start the server with -js",
            ),
            (
                NatsError::OtherSettings {
                    what: "consumer",
                    name: "desk".to_owned(),
                    difference: "ack_policy must be explicit".to_owned(),
                },
                "the existing NATS consumer \"desk\" has settings that this crate cannot use: ack_policy must be explicit; delete the consumer, or use another name",
            ),
            (
                NatsError::Failed {
                    operation: "create the stream",
                    source: "timed out".into(),
                },
                "NATS failed to create the stream; see the cause",
            ),
        ] {
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[cfg(feature = "rcrt")]
mod rcrt {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use universal_executor::source::SseSource;
    use universal_executor::{BreadcrumbId, BreadcrumbStore as _, RcrtStore, Secret};

    const OWNER: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn an_invalid_url_is_described_with_an_example() {
        let store = RcrtStore::builder("ftp://rcrt", OWNER).build();
        let source = SseSource::builder("events").build();

        let (store, source) = (store.map(drop).unwrap_err(), source.map(drop).unwrap_err());

        let expected = "the base URL of the RCRT server is not an http or https URL; use one like http://localhost:8080";
        assert_eq!(store.to_string(), expected);
        let expected = "the event stream URL is not a valid URL; use one like http://localhost:8080/events/stream";
        assert_eq!(source.to_string(), expected);
    }

    #[test]
    fn an_owner_that_is_no_uuid_is_quoted_with_the_field_to_use() {
        let store = RcrtStore::builder("http://127.0.0.1:1", "acme").build();

        let error = store.map(drop).unwrap_err();

        let expected =
            "the owner \"acme\" of the RCRT store is not a UUID; use the owner_id of the API token";
        assert_eq!(error.to_string(), expected);
    }

    #[tokio::test]
    async fn a_refused_token_is_reported_with_the_request_and_the_token_to_check() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = [0; 4_096];
            let size = connection.read(&mut request).await.unwrap();
            assert!(size > 0, "an empty request");
            let response = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 17\r\nconnection: close\r\n\r\nthe token expired";
            connection.write_all(response.as_bytes()).await.unwrap();
        });
        let store = RcrtStore::builder(format!("http://{address}"), OWNER);
        let store = store.token(Secret::new("token-1")).build().unwrap();
        let id = BreadcrumbId::default();

        let error = store.get(id).await.unwrap_err();

        server.await.unwrap();
        let expected = format!(
            "GET http://{address}/breadcrumbs/{id}/full failed with status 401: the token expired; check the API token of the RCRT store"
        );
        assert_eq!(crate::messages::cause_of(&error), expected);
    }
}
