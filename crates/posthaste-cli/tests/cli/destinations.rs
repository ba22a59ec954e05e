//! Several destinations and routes: what the file says about them, and what a relay makes of it.

use crate::http::Asked;
use crate::support::{Bed, json_lines, run};

const FILE: &str = r#"
[destinations.out]
to = "stdout"
max_in_flight = 7

[destinations.none]
to = "null"
retry_base = "2s"

[[routes]]
event_type = "order.*"
aggregate_type = "shop"
to = "out"

[[routes]]
event_type = "mail.*"
to = "none"
"#;

#[test]
fn destinations_are_set_by_file_environment_and_command_line() {
    let bed = Bed::new();
    let file = bed.file("posthaste.toml", FILE);
    let arguments = ["config", "check", "--config", &file, "--set", "destinations.none.retry_base=4s"];
    let mut command = bed.command(&arguments);
    command
        .env("POSTHASTE_DESTINATION_OUT_MAX_IN_FLIGHT", "8")
        .env("POSTHASTE_DESTINATION_NONE_RETRY_BASE", "3s");
    command.env("POSTHASTE_DESTINATION_NONE_RATE_LIMIT", "100");
    let printed = run(command, b"").succeeded();
    let (_, outlets) = printed.split_once("\n[destinations.out]\n").unwrap();
    assert_eq!(
        outlets,
        "to = \"stdout\"  # file\nmax_in_flight = 8  # environment\n\n[destinations.none]\nto = \"null\"  # file\n\
         rate_limit = 100  # environment\nretry_base = \"4s\"  # command line\n\n[[routes]]\nevent_type = \"order.*\"\n\
         aggregate_type = \"shop\"\nto = \"out\"\n\n[[routes]]\nevent_type = \"mail.*\"\nto = \"none\"\n"
    );
    // Routes on the command line go before those of the file.
    let routes = ["--route", "a.*@shop=out", "--route", "*=none"];
    let printed = bed.ok(&[&["config", "check", "--config", &file][..], &routes].concat());
    let (_, printed) = printed.split_once("[[routes]]").unwrap();
    assert_eq!(
        printed,
        "\nevent_type = \"a.*\"\naggregate_type = \"shop\"\nto = \"out\"\n\n[[routes]]\nevent_type = \"*\"\nto = \"none\"\n"
    );
}

#[test]
fn the_secret_of_a_destination_stands_in_a_file_or_is_not_shown() {
    let bed = Bed::new();
    let secret = bed.file("rabbit", "amqp://ann:s3cret@host/shop\n");
    let text =
        format!("[destinations.rabbit]\nto_file = {secret:?}\nexchange = \"events\"\nmandatory = false\n");
    let file = bed.file("posthaste.toml", &text);
    let printed = bed.ok(&["config", "check", "--config", &file]);
    assert!(printed.contains("exchange = \"events\"") && printed.contains("mandatory = false"), "{printed}");
    assert!(!printed.contains("s3cret"), "{printed}");
    let mut command = bed.command(&["config", "check", "--config", &file]);
    command.env("POSTHASTE_DESTINATION_RABBIT_TO", "amqp://ann:s3cret@other/");
    let printed = run(command, b"").succeeded();
    assert!(printed.contains("to = \"amqp://ann:***@other/\"  # environment"), "{printed}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let bed = Bed::new();
    let cases = [
        (
            "[destinations.a]\nto = \"null\"\nexchagne = \"x\"\n",
            "line 3, column 1: there is no key destinations.a.exchagne",
        ),
        ("[destinations.a]\nto = \"null\"\nexchagne = \"x\"\n", "the nearest key is destinations.a.exchange"),
        ("[destinations.a]\nto = \"null\"\nexchange = \"x\"\n", "destinations.a.exchange is for RabbitMQ"),
        (
            "[destinations.a]\nto = \"null\"\nmax_in_flight = 0\n",
            "line 3, column 17: destinations.a.max_in_flight: must be at least 1",
        ),
        ("[destinations.a]\nto = \"amqp://h/\"\nmandatory = \"perhaps\"\n", "must be one of true, false"),
        ("[destinations.a]\nmax_in_flight = 1\n", "destinations.a has no `to`"),
        ("[destinations.a]\nto = \"rabbit\"\n", "destinations.a.to names no destination"),
        ("[destinations.\"a b\"]\nto = \"null\"\n", "is no name of a destination"),
        ("[destinations.a-b]\nto = \"null\"\n[destinations.a_b]\nto = \"null\"\n", "the same variables"),
        ("[destinations.a]\nto = \"null\"\n[destinations.b]\nto = \"null\"\n", "no route says"),
        (
            "[destinations.a]\nto = \"stdout\"\n[destinations.b]\nto = \"stdout\"\n[[routes]]\nto = \"a\"\n",
            "two destinations are stdout",
        ),
        (
            "[destinations.rabbit]\nto = \"null\"\n[[routes]]\nto = \"rabit\"\n",
            "the nearest destination is rabbit",
        ),
        (
            "[destinations.a]\nto = \"null\"\n[[routes]]\nevent = \"x\"\n",
            "the nearest key is routes.event_type",
        ),
        ("[destinations.a]\nto = \"null\"\n[[routes]]\nevent_type = \"x\"\n", "route 1 has no `to`"),
        ("[relay]\nto = \"null\"\n[destinations.a]\nto = \"null\"\n", "both say where messages go"),
        ("[relay]\nserve = [\"b\"]\n[destinations.a]\nto = \"null\"\n", "relay.serve names b"),
        ("[destinations.a]\nto = \"null\"\nretry_cap = \"1ms\"\n", "the backoff's cap is below its start"),
    ];
    for (text, said) in cases {
        let file = bed.file("posthaste.toml", text);
        for command in [&["config", "check"][..], &["relay", "--drain"]] {
            bed.run(&[command, &["--config", &file]].concat()).failed_with(2, &[said]);
        }
    }
    for (set, said) in [
        ("lease=5s", "written destinations.NAME.KEY=VALUE"),
        ("destinations.a.exchagne=x", "the nearest key is destinations.a.exchange"),
        ("destinations.a.rate_limit=0", "destinations.a.rate_limit: must be at least 1"),
    ] {
        bed.run(&["relay", "--drain", "--set", "destinations.a.to=null", "--set", set])
            .failed_with(2, &[said]);
    }
    bed.run(&["relay", "--drain", "--route", "x"]).failed_with(2, &["--route is written"]);
}

#[test]
fn each_message_goes_where_its_route_leads_and_without_one_it_stays() {
    let bed = Bed::new();
    for (event_type, aggregate) in
        [("order.a", "shop/1"), ("order.b", "bar/1"), ("mail.a", "shop/2"), ("mail.b", "x/1")]
    {
        bed.enqueue_one(&["--event-type", event_type, "--aggregate", aggregate]);
    }
    let file = bed.file("posthaste.toml", FILE);
    let options =
        ["relay", "--config", &file, "--http", "127.0.0.1:0", "--idle-poll", "20ms", "--count-every", "20ms"];
    let mut asked = Asked::of(bed.start(&options));
    let published = |destination: &str, event_type: &str| {
        format!("posthaste_published_total{{destination=\"{destination}\",event_type=\"{event_type}\"}}")
    };
    asked.until_metric(&published("out", "order.a"), 1.0);
    asked.until_metric(&published("none", "mail.a"), 1.0);
    asked.until_metric(&published("none", "mail.b"), 1.0);
    asked.until_metric("posthaste_unrouted", 1.0);
    asked.until_ready();
    let (_, readiness) = asked.readiness();
    assert_eq!(readiness["unrouted"], 1, "{readiness}");
    assert_eq!(readiness["destinations"][1]["name"], "none", "{readiness}");
    let line: serde_json::Value = serde_json::from_str(&asked.relay.line()).unwrap();
    assert_eq!(line["event_type"], "order.a");
    asked.relay.signal("TERM");
    assert_eq!(asked.relay.end().0, Some(0));
    let left = bed.list(&["--state", "ready"]);
    assert_eq!((left.len(), &left[0]["event_type"], &left[0]["attempts"]), (1, &"order.b".into(), &0.into()));
    // It goes out once a relay runs that knows a route.
    let route = ["relay", "--drain", "-q", "--config", &file, "--route", "mail.*=none", "--route", "*=out"];
    assert_eq!(json_lines(&bed.ok(&route))[0]["event_type"], "order.b");
}

#[test]
fn a_relay_serves_only_what_it_is_told_to() {
    let bed = Bed::new();
    for event_type in ["order.a", "mail.a"] {
        bed.enqueue_one(&["--event-type", event_type, "--aggregate", "shop/1"]);
        bed.enqueue_one(&["--event-type", event_type, "--aggregate", "shop/2"]);
    }
    let file = bed.file("posthaste.toml", FILE);
    let serve = |name: &str| {
        let bed = &bed;
        let asked = Asked::of(bed.start(&[
            "relay",
            "--config",
            &file,
            "--serve",
            name,
            "--http",
            "127.0.0.1:0",
            "--idle-poll",
            "20ms",
        ]));
        asked.until_metric(
            &format!(
                "posthaste_published_total{{destination=\"{name}\",event_type=\"{}\"}}",
                if name == "out" { "order.a" } else { "mail.a" }
            ),
            2.0,
        );
        assert_eq!(asked.readiness().1["destinations"].as_array().unwrap().len(), 1);
        asked.relay.signal("TERM");
        assert_eq!(asked.relay.end().0, Some(0));
    };
    serve("out");
    assert_eq!(bed.list(&["--state", "ready"]).len(), 2);
    serve("none");
    assert!(bed.list(&["--state", "ready"]).is_empty());
}
