//! Where to connect, and how.

use std::time::Duration;

use mysql_async::{Opts, OptsBuilder, SslOpts};
use posthaste::{Error, ErrorKind};

/// A checked URL.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) opts: Opts,
    pub(crate) database: String,
}

impl Target {
    /// Takes a `mysql://` or `mariadb://` URL that names a database.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let behind = url.strip_prefix("mysql://").or_else(|| url.strip_prefix("mariadb://"));
        let behind = behind.ok_or_else(|| invalid("it must begin with mysql:// or mariadb://"))?;
        let (place, query) = behind.split_once('?').unwrap_or((behind, ""));
        let opts = Opts::from_url(&format!("mysql://{place}"))
            .map_err(|_said| invalid("it is no URL of the form mysql://user:password@host:port/database"))?;
        let Some(database) = opts.db_name().map(str::to_owned) else {
            return Err(invalid("it names no database, as in mysql://user@host/database"));
        };
        let mut settings = Settings::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            settings.set(name, &decode(value)?)?;
        }
        let host = opts.ip_or_hostname().to_owned();
        let builder = OptsBuilder::from_opts(opts)
            // Left to itself, the driver would leave the connection it was given for a Unix socket.
            .prefer_socket(false)
            .socket(settings.socket.clone())
            .tcp_keepalive(Some(Duration::from_secs(30)))
            .tcp_nodelay(true)
            // Rows that a settle finds count, whether it changes them or not.
            .client_found_rows(true)
            .stmt_cache_size(0)
            .ssl_opts(settings.tls(&host)?);
        Ok(Self { opts: builder.into(), database })
    }
}

#[derive(Default)]
struct Settings {
    mode: Mode,
    roots: Option<String>,
    socket: Option<String>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Mode {
    #[default]
    Disabled,
    Required,
    VerifyCa,
    VerifyIdentity,
}

impl Settings {
    fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        match name.to_ascii_lowercase().replace('_', "-").as_str() {
            "ssl-mode" => self.mode = mode(value)?,
            "ssl-ca" => self.roots = Some(value.to_owned()),
            "socket" => self.socket = Some(value.to_owned()),
            _ => {
                let text =
                    format!("it has an unknown parameter {name:?}; known are ssl-mode, ssl-ca and socket");
                return Err(invalid(&text));
            }
        }
        Ok(())
    }

    fn tls(&self, host: &str) -> Result<Option<SslOpts>, Error> {
        if self.mode == Mode::Disabled {
            return Ok(None);
        }
        let mut tls = SslOpts::default().with_disable_built_in_roots(true);
        if self.mode == Mode::Required {
            // The server's certificate is its own; any root serves to set up what does not check it.
            tls = tls
                .with_danger_accept_invalid_certs(true)
                .with_danger_skip_domain_validation(true)
                .with_disable_built_in_roots(false);
        } else {
            tls = tls.with_root_certs(self.root_certificates()?.into_iter().map(Into::into).collect());
        }
        if self.mode == Mode::VerifyCa {
            tls = tls.with_danger_skip_domain_validation(true);
        }
        Ok(Some(tls.with_danger_tls_hostname_override(Some(host.to_owned()))))
    }

    fn root_certificates(&self) -> Result<Vec<Vec<u8>>, Error> {
        if let Some(file) = &self.roots {
            let read = std::fs::read(file);
            let read = read.map_err(|source| {
                Error::new(ErrorKind::InvalidInput, format!("ssl-ca {file:?} cannot be read"))
                    .with_source(source)
            });
            return Ok(vec![read?]);
        }
        let found = rustls_native_certs::load_native_certs().certs;
        if found.is_empty() {
            let text = "no root certificate to check the server with; name a PEM file as ssl-ca";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        Ok(found.into_iter().map(|certificate| certificate.to_vec()).collect())
    }
}

fn mode(value: &str) -> Result<Mode, Error> {
    match value.to_ascii_lowercase().replace('-', "_").as_str() {
        "disabled" => Ok(Mode::Disabled),
        "required" => Ok(Mode::Required),
        "verify_ca" => Ok(Mode::VerifyCa),
        "verify_identity" => Ok(Mode::VerifyIdentity),
        _ => {
            let text =
                format!("ssl-mode is {value:?}; it must be disabled, required, verify_ca or verify_identity");
            Err(invalid(&text))
        }
    }
}

/// Undoes percent encoding.
fn decode(value: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        if *first == b'%' {
            let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
            let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(byte.ok_or_else(|| invalid("it has a % that two hexadecimal digits must follow"))?);
            rest = &behind[2..];
        } else {
            bytes.push(*first);
            rest = behind;
        }
    }
    String::from_utf8(bytes).map_err(|_bytes| invalid("it has a parameter that is no UTF-8"))
}

/// Says what is wrong with a URL, without the URL: it may hold a password.
fn invalid(complaint: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("the database's URL cannot be used: {complaint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let target =
            Target::parse("mariadb://us%40er:p%3Ass@db.example:3311/shop?ssl-mode=REQUIRED").unwrap();
        assert_eq!(target.database, "shop");
        assert_eq!(target.opts.user(), Some("us@er"));
        assert_eq!(target.opts.pass(), Some("p:ss"));
        assert_eq!((target.opts.ip_or_hostname(), target.opts.tcp_port()), ("db.example", 3311));
        assert!(target.opts.ssl_opts().is_some());
        assert!(Target::parse("mysql://h/d").unwrap().opts.ssl_opts().is_none());
        let socket = Target::parse("mysql://h/d?socket=%2Ftmp%2Fs").unwrap();
        assert_eq!(socket.opts.socket(), Some("/tmp/s"));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for url in [
            "postgres://u:secret@h/d",
            "mysql://u:secret@h",
            "mysql://u:secret@h:x/d",
            "mysql://u:secret@h/d?ssl-mode=sure",
            "mysql://u:secret@h/d?ssl-mode=verify_ca&ssl-ca=/no/such/file",
            "mysql://u:secret@h/d?sslmode=require",
            "mysql://u:secret@h/d?socket=%zz",
        ] {
            let error = Target::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(!format!("{error:?} {error}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn no_damaged_url_panics_or_shows_its_password() {
        let valid = [
            "mysql://ann:Geh3im@db.example:3311/shop?ssl-mode=REQUIRED",
            "mariadb://us%40er:Geh3im@[::1]/d?socket=%2Ftmp%2Fs&ssl-mode=verify_ca&ssl-ca=/no/such/file",
        ];
        posthaste_testkit::damaged_text(&valid, |url| {
            if let Err(error) = Target::parse(url) {
                assert!(!format!("{error:?} {error}").contains("Geh3im"), "{error}");
            }
        });
    }
}
