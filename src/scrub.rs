//! Removal of credentials from error messages before they are logged.

/// Replacement for a credential in an error message.
const HIDDEN: &str = "[hidden]";

/// Names of the HTTP headers that have a credential as their value.
const HEADERS: [&str; 5] = [
    "api-key",
    "authorization",
    "cookie",
    "proxy-authorization",
    "x-api-key",
];

/// Authentication schemes before the credential of an `Authorization` header (RFC 9110, section 11.6.2).
const SCHEMES: [&str; 5] = ["apikey", "basic", "bearer", "digest", "token"];

/// Names of the URL and connection string parameters whose value is a credential.
const PARAMETERS: [&str; 9] = [
    "access_token",
    "api_key",
    "apikey",
    "key",
    "passwd",
    "password",
    "secret",
    "sig",
    "token",
];

/// Prefixes of common API keys and tokens. Scanners for leaked secrets recognize API keys and tokens by these prefixes.
const KEY_PREFIXES: [&str; 23] = [
    "AIza",
    "AKIA",
    "ASIA",
    "dop_v1_",
    "eyJ",
    "ghp_",
    "gho_",
    "ghr_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "gsk_",
    "hf_",
    "npm_",
    "pypi-",
    "rk_live_",
    "sk-",
    "sk_live_",
    "sk_test_",
    "xapp-",
    "xox",
    "ya29.",
];

/// Minimum length in bytes of an API key in an error message. A shorter word does not count as an API key, even if it starts with one of
/// the prefixes. Partly masked keys count too, because error messages of providers quote them.
const SHORTEST_KEY: usize = 12;

/// Replaces the credentials in an error message, so that the message can be logged. The credentials are the user and password of
/// each URL, the credentials in headers and after `Bearer`, the values of parameters such as `password` and `api_key`, and words
/// with the form of an API key.
///
/// Also replaces text that only looks like a credential: a log line without a host name is better than a log line with
/// a password.
pub(crate) fn without_credentials(text: &str) -> String {
    let text = without_user_info(text);
    let mut words = Vec::new();
    let mut expected = Expected::Nothing;
    for word in text.split(' ') {
        let (shown, next) = match word {
            "" => (String::new(), expected),
            word => shown(word, expected),
        };
        expected = next;
        words.push(shown);
    }
    words.join(" ")
}

/// The kind of the next word of an error message: plain text, the value of a header, or a credential.
#[derive(Clone, Copy)]
enum Expected {
    Nothing,
    /// The value of an HTTP header: a credential, or an authentication scheme such as `Basic` that precedes the credential.
    HeaderValue,
    Credential,
}

fn shown(word: &str, expected: Expected) -> (String, Expected) {
    let lower = word.to_ascii_lowercase();
    let bare = lower.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    match expected {
        Expected::Credential => return (HIDDEN.to_owned(), Expected::Nothing),
        Expected::HeaderValue if !SCHEMES.contains(&bare) && !lower.contains("bearer") => {
            return (HIDDEN.to_owned(), Expected::Nothing);
        }
        Expected::HeaderValue => {}
        Expected::Nothing if lower.ends_with([':', '=']) && HEADERS.contains(&bare) => {
            return (word.to_owned(), Expected::HeaderValue);
        }
        Expected::Nothing => {}
    }
    if let Some(start) = lower.find("bearer") {
        let (before, token) = word.split_at(start + "bearer".len());
        let separators = |c: char| !c.is_ascii_alphanumeric();
        return match token.replace("%20", " ").trim_matches(separators) {
            "" => (word.to_owned(), Expected::Credential),
            _ => (format!("{before} {HIDDEN}"), Expected::Nothing),
        };
    }
    let next = match expected {
        Expected::HeaderValue => Expected::Credential,
        Expected::Nothing | Expected::Credential => Expected::Nothing,
    };
    (without_keys(&without_parameters(word)), next)
}

/// Replaces each API key in one word of an error message.
fn without_keys(word: &str) -> String {
    let is_in_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '*');
    let mut shown = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(start) = rest.find(is_in_key) {
        let (before, part) = rest.split_at(start);
        let end = part.find(|c: char| !is_in_key(c)).unwrap_or(part.len());
        let (part, after) = part.split_at(end);
        shown.push_str(before);
        let is_key = part.len() >= SHORTEST_KEY
            && KEY_PREFIXES.iter().any(|prefix| part.starts_with(prefix));
        shown.push_str(if is_key { HIDDEN } else { part });
        rest = after;
    }
    shown.push_str(rest);
    shown
}

/// Replaces the user and password of each URL: everything between `://` and the last `@` before white space or another
/// URL. A password that is not encoded can contain any of the characters that end the authority of a URL.
fn without_user_info(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        shown.push_str(before);
        shown.push_str("://");
        let url = after.split(char::is_whitespace).next().unwrap_or(after);
        let url = url.split("://").next().unwrap_or(url);
        rest = match url.rfind('@').and_then(|at| after.get(at..)) {
            Some(host) => {
                shown.push_str(HIDDEN);
                host
            }
            None => after,
        };
    }
    shown.push_str(rest);
    shown
}

/// Replaces the values of credential parameters, such as `api_key=..`, in one word of an error message.
fn without_parameters(word: &str) -> String {
    const ENDS: [char; 8] = ['&', '#', '"', '\'', ',', ';', ')', '}'];
    let mut shown = String::with_capacity(word.len());
    let mut rest = word;
    while let Some((before, value)) = rest.split_once('=') {
        shown.push_str(before);
        shown.push('=');
        let name = before
            .rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .next();
        let name = name.unwrap_or_default().to_ascii_lowercase();
        let end = value.find(ENDS).unwrap_or(value.len());
        rest = match PARAMETERS
            .contains(&&*name)
            .then(|| value.split_at_checked(end))
        {
            Some(Some((credential, after))) if !credential.is_empty() => {
                shown.push_str(HIDDEN);
                after
            }
            Some(_) | None => value,
        };
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_redacted_at_every_position() {
        for (text, expected) in [
            (
                "cannot connect to postgres://ann:PLANTED@db/app?a=b",
                "cannot connect to postgres://[hidden]@db/app?a=b",
            ),
            (
                "nats://a:PLANTED@h1,nats://b:PLANTED@h2 is gone",
                "nats://[hidden]@h1,nats://[hidden]@h2 is gone",
            ),
            (
                "postgres://ann:PLAN/TED#PLANTED?@db",
                "postgres://[hidden]@db",
            ),
            (
                "Authorization: Bearer PLANTED was refused",
                "Authorization: Bearer [hidden] was refused",
            ),
            (
                "Authorization: Basic PLANTED= was refused",
                "Authorization: Basic [hidden] was refused",
            ),
            ("authorization:  PLANTED", "authorization:  [hidden]"),
            ("a bearer:  PLANTED x", "a bearer:  [hidden] x"),
            ("Bearer%20PLANTED", "Bearer [hidden]"),
            ("\"x-api-key\": \"PLANTED\"", "\"x-api-key\": [hidden]"),
            (
                "GET http://h/v1?api_key=PLANTED&a=b#c failed",
                "GET http://h/v1?api_key=[hidden]&a=b#c failed",
            ),
            (
                "host=db user=ann password=PLANTED port=1",
                "host=db user=ann password=[hidden] port=1",
            ),
            (
                "Incorrect API key provided: sk-proj-PLANTED4*******************Abcd.",
                "Incorrect API key provided: [hidden]",
            ),
            (
                "token 'ghp_PLANTED12345' and {\"jwt\":\"eyJhPLANTED.eyJzPLANTED.x_y-z\"}",
                "token '[hidden]' and {\"jwt\":\"[hidden]\"}",
            ),
        ] {
            assert_eq!(without_credentials(text), expected);
        }
    }

    #[test]
    fn a_text_without_credentials_is_unchanged() {
        for text in [
            "",
            "two  spaces",
            "cannot read http://localhost:8080/v1?page=2: status 401",
            "the basic check of ann@example.com failed",
            "token_count=7, the token is missing",
            "a==b=",
            "sk-1 and task-sk-learn-is-no-key are no keys",
        ] {
            assert_eq!(without_credentials(text), text);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_password_in_a_url_is_never_shown(
            user in "[a-z]{1,5}",
            password in "[A-Z]{1,3}[/?#@:,%=&A-Z]{0,5}[A-Z]{9}",
            around in "[a-z ]{0,9}",
        ) {
            let text = format!("{around} nats://h,x://{user}:{password}@host {around}");

            let shown = without_credentials(&text);

            let tail = password.get(password.len() - 9..).unwrap();
            proptest::prop_assert!(!shown.contains(tail), "{}", shown);
        }
    }
}
