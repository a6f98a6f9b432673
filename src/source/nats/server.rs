use super::NatsError;
use async_nats::ConnectOptions;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default name of the NATS stream for events.
const STREAM: &str = "BREADCRUMBS";

/// Address, login and stream of a NATS server.
///
/// [`NatsSource::builder`](super::NatsSource::builder) and
/// [`NatsRelay::connect`](super::NatsRelay::connect) accept it, or an address alone. Use the same
/// settings for the relays and the sources of one stream.
///
/// ```
/// use std::time::Duration;
/// use universal_executor::source::NatsServer;
///
/// let server = NatsServer::new("tls://agents:secret@nats.internal:4222")
///     .root_certificates("/etc/nats/ca.pem")
///     .wait_for(Duration::from_secs(60));
/// assert!(!format!("{server:?}").contains("secret"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct NatsServer {
    addresses: String,
    login: Login,
    root_certificates: Vec<PathBuf>,
    client_certificate: Option<(PathBuf, PathBuf)>,
    requires_tls: bool,
    pub(super) connect_retry_time: Duration,
    pub(super) stream: String,
    pub(super) replicas: usize,
    pub(super) max_bytes: Option<u64>,
}

#[derive(Clone)]
enum Login {
    /// The login that the NATS server addresses contain, if any.
    FromAddress,
    Password(String, String),
    Token(String),
    CredentialsFile(PathBuf),
}

impl NatsServer {
    /// Returns the settings for a NATS server, or for a cluster with several addresses separated by commas. An address
    /// has the form `nats://host:4222`, or `tls://host:4222` to require TLS.
    ///
    /// An address can contain a user name and a password (`nats://name:password@host`), or a token
    /// (`nats://token@host`). Percent-encode special characters, for example `@` as `%40`. The login in the first
    /// address that has one is used for all addresses.
    ///
    /// ```
    /// use universal_executor::source::NatsServer;
    ///
    /// let cluster = NatsServer::new("nats://a:4222,nats://b:4222,nats://c:4222").replicas(3);
    /// # drop(cluster);
    /// ```
    pub fn new(addresses: impl Into<String>) -> Self {
        Self {
            addresses: addresses.into(),
            login: Login::FromAddress,
            root_certificates: Vec::new(),
            client_certificate: None,
            requires_tls: false,
            connect_retry_time: Duration::ZERO,
            stream: STREAM.to_owned(),
            replicas: 1,
            max_bytes: None,
        }
    }

    /// Logs in to the NATS server with a user name and a password, instead of a login in an address.
    ///
    /// The last call of this method, [`token`](Self::token) and
    /// [`credentials_file`](Self::credentials_file) counts.
    pub fn user_and_password(
        mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        self.login = Login::Password(user.into(), password.into());
        self
    }

    /// Logs in to the NATS server with a token, instead of a login in an address.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.login = Login::Token(token.into());
        self
    }

    /// Logs in to the NATS server with a credentials file (`.creds`: a JWT and its key). Each `connect` of a source or
    /// relay reads the file.
    pub fn credentials_file(mut self, path: impl AsRef<Path>) -> Self {
        self.login = Login::CredentialsFile(path.as_ref().to_owned());
        self
    }

    /// Trusts the root certificates in a PEM file for the NATS connection, in addition to the certificates of the
    /// machine. Does not enable TLS, see [`require_tls`](Self::require_tls).
    pub fn root_certificates(mut self, path: impl AsRef<Path>) -> Self {
        self.root_certificates.push(path.as_ref().to_owned());
        self
    }

    /// Presents a client certificate to the NATS server, from PEM files with the certificate and with its key.
    pub fn client_certificate(
        mut self,
        certificate: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Self {
        let paths = (certificate.as_ref().to_owned(), key.as_ref().to_owned());
        self.client_certificate = Some(paths);
        self
    }

    /// Requires TLS for the NATS connection, even for an address with `nats://`. By default, TLS is used if the server
    /// requires it.
    pub fn require_tls(mut self) -> Self {
        self.requires_tls = true;
        self
    }

    /// Sets the time for which `connect` retries an unreachable NATS server, with an exponential backoff of at most 30
    /// s. Defaults to zero, which means no retry. A connection that is lost later is reopened without a time limit.
    ///
    /// Use it in a service that starts together with its NATS server.
    pub fn wait_for(mut self, connect_retry_time: Duration) -> Self {
        self.connect_retry_time = connect_retry_time;
        self
    }

    /// Sets the name of the NATS stream for events. Defaults to `BREADCRUMBS`. The stream is created if it does not
    /// exist. It contains all subjects of `breadcrumbs.>`, so an account can have only one such stream.
    ///
    /// A relay and the sources of its events need the same name.
    pub fn stream(mut self, name: impl Into<String>) -> Self {
        self.stream = name.into();
        self
    }

    /// Sets the number of servers of a NATS cluster that store the stream, if the stream has to be created. Defaults to
    /// 1, at least 1.
    ///
    /// With 3 replicas, the stream survives the loss of one server.
    pub fn replicas(mut self, servers: usize) -> Self {
        self.replicas = servers.max(1);
        self
    }

    /// Sets the maximum size of the NATS stream in bytes, if the stream has to be created. Defaults to no limit: only
    /// the limits of the account apply.
    ///
    /// At the limit the server deletes the oldest events. A runtime finds their triggers when it sweeps the store.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Returns the NATS server addresses without logins, and the connection options.
    pub(super) async fn options(&self) -> Result<(Vec<String>, ConnectOptions), NatsError> {
        let (addresses, address_login) = addresses(&self.addresses)?;
        let mut options = ConnectOptions::new();
        let login = match &self.login {
            Login::FromAddress => address_login,
            named => Some(named.clone()),
        };
        options = match login {
            None | Some(Login::FromAddress) => options,
            Some(Login::Password(user, password)) => options.user_and_password(user, password),
            Some(Login::Token(token)) => options.token(token),
            Some(Login::CredentialsFile(path)) => {
                let read = options.credentials_file(path).await;
                read.map_err(|error| setting("credentials file", error))?
            }
        };
        for path in &self.root_certificates {
            options = options.add_root_certificates(path.clone());
        }
        if let Some((certificate, key)) = &self.client_certificate {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        Ok((addresses, options.require_tls(self.requires_tls)))
    }
}

/// Separates NATS server addresses from their logins. The client ignores a login in an address, and would show it in
/// its logs.
fn addresses(text: &str) -> Result<(Vec<String>, Option<Login>), NatsError> {
    let mut login = None;
    let mut bare = Vec::new();
    for address in text.split(',').map(str::trim) {
        let (scheme, rest) = address.split_once("://").unwrap_or(("nats", address));
        let Some((user_info, host)) = rest.rsplit_once('@') else {
            bare.push(format!("{scheme}://{rest}"));
            continue;
        };
        bare.push(format!("{scheme}://{host}"));
        if login.is_none() {
            login = Some(match user_info.split_once(':') {
                Some((user, password)) => {
                    Login::Password(percent_decode(user)?, percent_decode(password)?)
                }
                None => Login::Token(percent_decode(user_info)?),
            });
        }
    }
    Ok((bare, login))
}

/// Decodes the percent-encoded characters of a login in a NATS server address.
fn percent_decode(escaped: &str) -> Result<String, NatsError> {
    let invalid = || {
        setting(
            "login in the address",
            "invalid percent-encoding, or not UTF-8",
        )
    };
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut parts = escaped.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or_else(invalid)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| invalid())?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| invalid())
}

fn setting(setting: &'static str, source: impl Into<crate::error::BoxError>) -> NatsError {
    NatsError::Setting {
        setting,
        source: source.into(),
    }
}

impl From<&str> for NatsServer {
    fn from(addresses: &str) -> Self {
        Self::new(addresses)
    }
}

impl From<&String> for NatsServer {
    fn from(addresses: &String) -> Self {
        Self::new(addresses)
    }
}

impl From<String> for NatsServer {
    fn from(addresses: String) -> Self {
        Self::new(addresses)
    }
}

impl fmt::Debug for NatsServer {
    /// Formats the NATS settings without the addresses and the login, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsServer")
            .field("stream", &self.stream)
            .field("requires_tls", &self.requires_tls)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_login(text: &str) -> (Vec<String>, Option<(String, String)>) {
        let (bare, login) = addresses(text).unwrap();
        let login = login.map(|login| match login {
            Login::Password(user, password) => (user, password),
            Login::Token(token) => (token, String::new()),
            Login::FromAddress | Login::CredentialsFile(_) => panic!("unexpected kind of login"),
        });
        (bare, login)
    }

    #[test]
    fn the_credentials_before_the_host_are_separated_from_the_address() {
        let (bare, login) = split_login("tls://ann:p%40ss@one:1, nats://ann:other@two:2,three");
        assert_eq!(bare, ["tls://one:1", "nats://two:2", "nats://three"]);
        assert_eq!(login, Some(("ann".to_owned(), "p@ss".to_owned())));

        let (bare, login) = split_login("nats://sekret@one");
        assert_eq!(bare, ["nats://one"]);
        assert_eq!(login, Some(("sekret".to_owned(), String::new())));
        assert_eq!(split_login("nats://[::1]:4222").1, None);
    }

    #[test]
    fn a_login_that_cannot_be_read_is_refused_without_being_shown() {
        for hostile in [
            "nats://ann:sk-%zz@h",
            "nats://sk-%@h",
            "nats://sk-%é@h",
            "nats://sk-%FF@h",
        ] {
            let error = addresses(hostile).err().unwrap();

            assert!(!format!("{error:?} {error}").contains("sk-"), "{hostile}");
        }
    }
}
