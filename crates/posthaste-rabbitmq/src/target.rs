//! Where the broker is: URLs, checked before anything is done with them.

use std::time::Duration;

use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use posthaste::{Error, ErrorKind};
use url::{Host, Url};

use crate::options::RabbitOptions;
use crate::topology::{ExchangeType, Topology};

/// The options that a URL may carry.
const KNOWN: &[&str] = &[
    "exchange",
    "routing_key",
    "mandatory",
    "persistent",
    "channels",
    "heartbeat",
    "connect_timeout",
    "cacertfile",
    "declare",
];
const EXAMPLE: &str = "amqp://user:password@host/vhost";

pub(crate) fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, text)
}

/// Options from a URL that carries some of them.
pub(crate) fn options(text: &str) -> Result<RabbitOptions, Error> {
    let mut url = parse(text)?;
    let pairs: Vec<_> = url.query_pairs().into_owned().collect();
    url.set_query(None);
    let mut options = RabbitOptions::new(url);
    for (name, value) in pairs {
        match name.as_str() {
            "exchange" => options.exchange = value,
            "routing_key" => options.routing_key = value,
            "mandatory" => options.mandatory = switch(&name, &value)?,
            "persistent" => options.persistent = switch(&name, &value)?,
            "channels" => options.channels = number(&name, &value)?,
            "heartbeat" => options.heartbeat = Duration::from_secs(number(&name, &value)?),
            "connect_timeout" => options.connect_timeout = Duration::from_secs(number(&name, &value)?),
            "cacertfile" => options.ca_file = Some(value.into()),
            "declare" => {
                let kind = ExchangeType::parse(&value)
                    .ok_or_else(|| invalid("declare must be direct, fanout, topic or headers"))?;
                options.declare = Some(Topology::new(kind));
            }
            _ => {
                let known = KNOWN.join(", ");
                return Err(invalid(format!(
                    "the RabbitMQ URL has an unknown option {name:?}; known are {known}"
                )));
            }
        }
    }
    Ok(options)
}

/// What lapin wants to know, from a URL without options.
pub(crate) fn uri(options: &RabbitOptions) -> Result<AMQPUri, Error> {
    let url = parse(&options.url)?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid(
            "the RabbitMQ URL carries options; make the options by `RabbitOptions::from_url`",
        ));
    }
    let scheme = if url.scheme() == "amqps" { AMQPScheme::AMQPS } else { AMQPScheme::AMQP };
    let host = match url.host() {
        Some(Host::Ipv6(address)) => address.to_string(),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Domain(name)) if !name.is_empty() => decode("host", name)?,
        _ => return Err(invalid(format!("the RabbitMQ URL names no host; it is written {EXAMPLE}"))),
    };
    let path = url.path().strip_prefix('/').unwrap_or_default();
    if path.contains('/') {
        return Err(invalid("the vhost in the RabbitMQ URL holds a /; write %2F for it"));
    }
    let vhost = if path.is_empty() { "/".to_owned() } else { decode("vhost", path)? };
    let username = if url.username().is_empty() { "guest" } else { url.username() };
    let userinfo = AMQPUserInfo {
        username: decode("user", username)?,
        password: decode("password", url.password().unwrap_or("guest"))?,
    };
    check_name("the vhost", &vhost)?;
    let port = url.port().unwrap_or(if scheme == AMQPScheme::AMQPS { 5671 } else { 5672 });
    let query = AMQPQueryString { heartbeat: Some(heartbeat(options)?), ..AMQPQueryString::default() };
    Ok(AMQPUri { scheme, authority: AMQPAuthority { userinfo, host, port }, vhost, query })
}

fn heartbeat(options: &RabbitOptions) -> Result<u16, Error> {
    u16::try_from(options.heartbeat.as_secs())
        .ok()
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| invalid("heartbeat must be 1 to 65535 s"))
}

/// AMQP counts the length of a name in one byte.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), Error> {
    if name.len() > 255 {
        return Err(invalid(format!(
            "{what} has {} bytes, more than the 255 that AMQP has room for",
            name.len()
        )));
    }
    Ok(())
}

fn parse(text: &str) -> Result<Url, Error> {
    // The parser's own error says where, never what.
    let url = Url::parse(text.trim()).map_err(|source| {
        invalid(format!("the RabbitMQ URL is no URL; it is written {EXAMPLE}")).with_source(source)
    })?;
    if !["amqp", "amqps"].contains(&url.scheme()) || url.cannot_be_a_base() {
        return Err(invalid(format!(
            "the RabbitMQ URL must begin with amqp:// or amqps://, as in {EXAMPLE}"
        )));
    }
    Ok(url)
}

fn decode(what: &str, text: &str) -> Result<String, Error> {
    let bytes = percent_encoding::percent_decode_str(text);
    let decoded =
        bytes.decode_utf8().map_err(|_| invalid(format!("the {what} in the RabbitMQ URL is not UTF-8")))?;
    Ok(decoded.into_owned())
}

fn switch(name: &str, value: &str) -> Result<bool, Error> {
    value.parse().map_err(|_| invalid(format!("{name} in the RabbitMQ URL must be true or false")))
}

fn number<N: std::str::FromStr>(name: &str, value: &str) -> Result<N, Error> {
    value.parse().map_err(|_| invalid(format!("{name} in the RabbitMQ URL must be a whole number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> AMQPUri {
        uri(&RabbitOptions::new(url)).unwrap()
    }

    #[test]
    fn urls_mean_what_they_say() {
        let all = of("amqps://an%40n:se%2Fcr%3Aet@rabbit.internal:7000/%2Fshop");
        assert_eq!((all.scheme, all.authority.port), (AMQPScheme::AMQPS, 7000));
        assert_eq!((all.authority.userinfo.username.as_str(), all.vhost.as_str()), ("an@n", "/shop"));
        assert_eq!(all.authority.userinfo.password, "se/cr:et");
        assert_eq!(all.authority.host, "rabbit.internal");
        for url in ["amqp://host", "amqp://host/", "amqp://host/%2F"] {
            let short = of(url);
            assert_eq!((short.vhost.as_str(), short.authority.port), ("/", 5672), "{url}");
            assert_eq!(short.authority.userinfo.password, "guest");
        }
        assert_eq!(of("amqps://host").authority.port, 5671);
        assert_eq!(of("amqp://[::1]:5673/").authority.host, "::1");
        assert_eq!(of("amqp://127.0.0.1").authority.host, "127.0.0.1");
    }

    #[test]
    fn what_is_no_url_of_a_broker_is_refused_without_being_quoted() {
        let bad = [
            "",
            "rabbit:5672",
            "http://ann:secret@host/",
            "amqp:secret",
            "amqp://ann:secret@/vhost",
            "amqp://ann:secret@host/a/b",
            "amqp://ann:secret@host:port/",
            "amqp://ann:secret@host/%FF",
            "amqp://ann:secret@host/?exchange=x",
        ];
        for url in bad {
            let error = uri(&RabbitOptions::new(url)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
        let long = format!("amqp://host/{}", "v".repeat(256));
        assert!(uri(&RabbitOptions::new(long)).unwrap_err().to_string().contains("256 bytes"));
    }

    #[test]
    fn a_url_carries_options() {
        let url = "amqp://ann:secret@host/v?exchange=ev%20ents&routing_key=%7Bevent_type%7D&mandatory=false\
                   &persistent=false&channels=2&heartbeat=5&connect_timeout=7&cacertfile=/ca.pem&declare=topic";
        let options = options(url).unwrap();
        assert_eq!((options.exchange.as_str(), options.routing_key.as_str()), ("ev ents", "{event_type}"));
        assert_eq!((options.mandatory, options.persistent, options.channels), (false, false, 2));
        assert_eq!(options.heartbeat, Duration::from_secs(5));
        assert_eq!(options.connect_timeout, Duration::from_secs(7));
        assert_eq!(options.declare, Some(Topology::new(ExchangeType::Topic)));
        assert_eq!(uri(&options).unwrap().vhost, "v");
        assert!(!format!("{options:?}").contains("secret"), "{options:?}");
    }

    #[test]
    fn unknown_options_and_values_are_named() {
        let cases = [
            ("exchnage=x", "\"exchnage\""),
            ("mandatory=maybe", "mandatory"),
            ("channels=many", "channels"),
            ("heartbeat=-1", "heartbeat"),
            ("declare=queue", "declare"),
        ];
        for (query, said) in cases {
            let error = options(&format!("amqp://ann:secret@host/?{query}")).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn no_damaged_url_panics_or_shows_its_password() {
        let valid = [
            "amqps://an%40n:Geh3im@rabbit.internal:7000/%2Fshop?exchange=ev%20ents&routing_key=%7Bevent_type%7D",
            "amqp://ann:Geh3im@[::1]/v?mandatory=false&channels=2&heartbeat=5&declare=topic&cacertfile=/ca.pem",
        ];
        // Damage may have put it where the name of an option stands, which may be quoted.
        let in_its_place = |url: &str| {
            // As the parser of URLs does.
            let url = &url.replace(['\t', '\r', '\n'], "");
            url.matches("Geh3im").count() == 1
                && url.split('?').next().is_some_and(|place| place.contains(":Geh3im@"))
        };
        posthaste_testkit::damaged_text(&valid, |url| {
            let parsed = options(url).and_then(|options| uri(&options).map(|_| options));
            let said = match parsed {
                Ok(options) => format!("{options:?}"),
                Err(error) => format!("{error:?} {error}"),
            };
            assert!(!in_its_place(url) || !said.contains("Geh3im"), "{said}");
        });
    }
}
