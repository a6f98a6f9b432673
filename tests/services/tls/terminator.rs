//! A proxy that terminates TLS and forwards the plain text to the server.

use crate::tls::DATA;
use async_nats::rustls::pki_types::pem::PemObject as _;
use async_nats::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use async_nats::rustls::{ServerConfig, ServerConnection};
use sqlx::postgres::PgConnectOptions;
use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The first message of a PostgreSQL client, which requests TLS.
const WANTS_TLS: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// The encrypted data from clients, and the plain text for the server.
type Seen = Arc<Mutex<(Vec<u8>, Vec<u8>)>>;

pub(crate) struct Terminator {
    port: u16,
    seen: Seen,
}

impl Terminator {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Seen::default();
        let kept = Arc::clone(&seen);
        let config = Arc::new(config());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                // A client that does not trust the certificate closes the connection.
                tokio::spawn(pass(client, connection, Arc::clone(&kept)));
            }
        });
        Self { port, seen }
    }

    /// Returns the connection string of the proxy, with one of this machine's host names.
    pub(crate) fn url(&self, host: &str) -> String {
        let url = crate::postgres::server::url();
        let options: PgConnectOptions = url.parse().unwrap();
        let server = format!("@{}:{}/", options.get_host(), options.get_port());
        url.replace(&server, &format!("@{host}:{}/", self.port))
    }

    pub(crate) fn seen(&self) -> (Vec<u8>, Vec<u8>) {
        self.seen.lock().unwrap().clone()
    }
}

fn config() -> ServerConfig {
    let certificate = CertificateDer::from_pem_file(format!("{DATA}/server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(format!("{DATA}/server.key")).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    config.with_single_cert(vec![certificate], key).unwrap()
}

async fn pass(
    mut client: TcpStream,
    mut connection: ServerConnection,
    seen: Seen,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut asked = [0; WANTS_TLS.len()];
    client.read_exact(&mut asked).await?;
    assert_eq!(asked, WANTS_TLS, "the client must request TLS");
    client.write_all(b"S").await?;
    let options: PgConnectOptions = crate::postgres::server::url().parse()?;
    let mut server = TcpStream::connect((options.get_host(), options.get_port())).await?;
    let (mut from_client, mut from_server) = ([0; 16 << 10], [0; 16 << 10]);
    loop {
        tokio::select! {
            size = client.read(&mut from_client) => {
                let size = size?;
                let mut encrypted = &from_client[..size];
                if size == 0 {
                    return Ok(());
                }
                seen.lock().unwrap().0.extend(encrypted);
                while !encrypted.is_empty() {
                    connection.read_tls(&mut encrypted)?;
                    let plain = connection.process_new_packets()?.plaintext_bytes_to_read();
                    let mut text = vec![0; plain];
                    connection.reader().read_exact(&mut text)?;
                    seen.lock().unwrap().1.extend(&text);
                    server.write_all(&text).await?;
                }
            }
            size = server.read(&mut from_server) => {
                let text = &from_server[..size?];
                if text.is_empty() {
                    return Ok(());
                }
                connection.writer().write_all(text)?;
            }
        }
        let mut encrypted = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut encrypted)?;
        }
        client.write_all(&encrypted).await?;
    }
}
