//! Where to connect: a URL or a connection string, with the parameters that the driver does not know taken out.

use std::net::IpAddr;
use std::time::Duration;

use posthaste::{Error, ErrorKind};
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};

use crate::tls::{SslMode, Tls};

type TlsStream = <Tls as MakeTlsConnect<Socket>>::Stream;

/// A database to connect to.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) config: Config,
    tls: Tls,
    mode: SslMode,
    /// The `schema` parameter, if there is one.
    pub(crate) schema: Option<String>,
}

impl Target {
    /// `what` is what the URL is called in an error.
    pub(crate) fn parse(
        what: &str,
        url: &str,
        connect_timeout: Duration,
        io_timeout: Duration,
    ) -> Result<Self, Error> {
        let (rest, ours) = take_out(url, &["sslmode", "sslrootcert", "schema"]);
        let mut config: Config = rest.parse().map_err(|source: tokio_postgres::Error| {
            let why = std::error::Error::source(&source).map(ToString::to_string).unwrap_or_default();
            let why = without_values(&why);
            Error::new(ErrorKind::InvalidInput, format!("{what} cannot be used: {why}"))
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            let text = format!("{what} names no host; write postgres://user@host/database");
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let of = |name: &str| ours.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        // On the same machine there is nobody to hide from, and TLS is a fifth of the work of reading.
        let default = if is_local(&config) { SslMode::Allow } else { SslMode::Prefer };
        let mode = of("sslmode").map_or(Ok(default), SslMode::parse)?;
        let tls = Tls::new(mode, of("sslrootcert"))?;
        config.ssl_mode(mode.of_driver());
        config.connect_timeout(
            config.get_connect_timeout().copied().unwrap_or(connect_timeout).min(connect_timeout),
        );
        config.tcp_user_timeout(io_timeout);
        // The system counts these in whole seconds.
        let second = Duration::from_secs(1);
        config.keepalives_idle(io_timeout.max(second));
        config.keepalives_interval((io_timeout / 3).max(second));
        config.keepalives_retries(3);
        if config.get_application_name().is_none() {
            config.application_name("posthaste");
        }
        Ok(Self { config, tls, mode, schema: of("schema").map(str::to_owned) })
    }

    /// Connects, and hands over the connection that is to be driven.
    pub(crate) async fn connect(
        &self,
    ) -> Result<(Client, Connection<Socket, TlsStream>), tokio_postgres::Error> {
        let connected = self.config.connect(self.tls.clone()).await;
        let refused = |error: &tokio_postgres::Error| {
            error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
        };
        if self.mode == SslMode::Allow && connected.as_ref().is_err_and(refused) {
            let encrypted =
                self.config.clone().ssl_mode(SslMode::Prefer.of_driver()).connect(self.tls.clone()).await;
            return encrypted;
        }
        connected
    }
}

/// The driver's text, which names a parameter and never its value; but of a URL whose scheme is mistyped it takes all that
/// stands before the first `=` for a name.
fn without_values(why: &str) -> &str {
    let is_name = |quoted: &str| quoted.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    match why.split_once('`').and_then(|(_, quoted)| quoted.rsplit_once('`')) {
        Some((quoted, _)) if !is_name(quoted) => {
            "it is no URL of the form postgres://user:password@host/database"
        }
        _ => why,
    }
}

/// Whether every host is this machine.
fn is_local(config: &Config) -> bool {
    let is_loopback = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    };
    let by_address = || config.get_hostaddrs().iter().all(IpAddr::is_loopback);
    if config.get_hostaddrs().is_empty() { config.get_hosts().iter().all(is_loopback) } else { by_address() }
}

/// Takes parameters out of a URL or a connection string.
fn take_out(url: &str, names: &[&str]) -> (String, Vec<(String, String)>) {
    let mut ours = Vec::new();
    let mut is_ours = |pair: &str, decode: bool| {
        let Some((key, value)) = pair.split_once('=') else { return false };
        if !names.contains(&key) {
            return false;
        }
        let value = if decode { percent_decoded(value) } else { value.trim_matches('\'').to_owned() };
        ours.push((key.to_owned(), value));
        true
    };
    let rest = if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let rest: Vec<_> = query.split('&').filter(|pair| !pair.is_empty() && !is_ours(pair, true)).collect();
        if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) }
    } else {
        url.split(' ').filter(|pair| !is_ours(pair, false)).collect::<Vec<_>>().join(" ")
    };
    (rest, ours)
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let escaped = (*first == b'%')
            .then(|| {
                behind.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok())
            })
            .flatten();
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Target, Error> {
        Target::parse("the database URL", url, Duration::from_secs(3), Duration::from_secs(5))
    }

    #[test]
    fn our_parameters_are_taken_out() {
        let url = "postgres://u:p@h:1/d?sslmode=disable&schema=My%20Schema&application_name=x";
        let target = parse(url).unwrap();
        assert_eq!(target.schema.as_deref(), Some("My Schema"));
        assert_eq!(target.config.get_ssl_mode(), tokio_postgres::config::SslMode::Disable);
        assert_eq!(target.config.get_application_name(), Some("x"));
        assert_eq!(target.config.get_dbname(), Some("d"));
        let target = parse("host=h user=u schema=s sslmode='require'").unwrap();
        assert_eq!(target.schema.as_deref(), Some("s"));
        assert_eq!(target.config.get_ssl_mode(), tokio_postgres::config::SslMode::Require);
    }

    #[test]
    fn tls_is_left_out_by_itself_on_this_machine_alone() {
        for (url, mode) in [
            ("postgres://127.0.0.1/d", SslMode::Allow),
            ("postgres://[::1]/d", SslMode::Allow),
            ("postgres://localhost/d", SslMode::Allow),
            ("host=/run/postgresql", SslMode::Allow),
            ("postgres://127.0.0.1,db.internal/d", SslMode::Prefer),
            ("host=localhost hostaddr=10.0.0.1", SslMode::Prefer),
            ("postgres://db.internal/d", SslMode::Prefer),
            ("postgres://localhost/d?sslmode=require", SslMode::Require),
        ] {
            assert_eq!(parse(url).unwrap().mode, mode, "{url}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for url in [
            "postgres://u:secret@h/d?sslmode=sure",
            "postgres://u:secret@h:x/d",
            "mysql://u:secret@h/d",
            "postgress://u:secret@h/d?application_name=x",
            "postgres://u:secret@h/d?sslmode=verify-full&sslrootcert=/no/such/file",
        ] {
            let error = parse(url).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(!format!("{error:?} {error}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn every_usual_ssl_mode_is_known() {
        for mode in ["disable", "allow", "prefer", "require"] {
            assert!(parse(&format!("postgres://h/d?sslmode={mode}")).is_ok(), "{mode}");
        }
    }

    #[test]
    fn no_damaged_url_panics_or_shows_its_password() {
        let valid = [
            "postgres://ann:Geh3im@db.example:5433/shop?sslmode=require&schema=My%20Schema",
            "postgres://ann:Geh3im@a,b:7/d?sslmode=verify-full&sslrootcert=/no/such/file&target_session_attrs=any",
            "host=h user=u password='Geh3im' schema=s sslmode='require'",
        ];
        // Damage may have put it where the name or the value of another option stands, which may be quoted.
        let in_its_place = |url: &str| {
            let place = url.split('?').next().unwrap_or_default();
            let in_url = place.contains(":Geh3im@") && !place.contains(['=', ' ']);
            url.matches("Geh3im").count() == 1 && (in_url || place.contains(" password='Geh3im' "))
        };
        posthaste_testkit::damaged_text(&valid, |url| {
            if let Err(error) = parse(url) {
                assert!(!in_its_place(url) || !format!("{error:?} {error}").contains("Geh3im"), "{error}");
            }
        });
    }

    #[test]
    fn neither_options_nor_stores_show_their_password() {
        let url = "postgres://ann:Geh3im@127.0.0.1:1/d";
        let options = crate::PostgresOptions::new(url).listen_url(url);
        let store = crate::PostgresStore::new(options.clone()).unwrap();
        let said = format!("{options:?} {store:?} {:?}", store.outbox());
        assert!(!said.contains("Geh3im"), "{said}");
    }
}
