//! What lies in `ops/`, and the documentation of the metrics, are about this program and no other.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use crate::http::{Asked, families};
use crate::support::{Bed, bare_command, run};

fn file(path: &str) -> String {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    std::fs::read_to_string(root.join(path)).unwrap()
}

fn yaml(path: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&file(path)).unwrap()
}

/// All words that begin so.
fn words(text: &str, prefix: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.split(|letter| !is_part(letter)).filter(|word| word.starts_with(prefix)).map(str::to_owned).collect()
}

/// The names of the program's metrics, those of a histogram's parts included.
fn metrics() -> BTreeSet<String> {
    let bed = Bed::new();
    let text = Asked::start(&bed, &[]).get("/metrics").1;
    let names = families(&text);
    let histograms = names.iter().filter(|name| name.ends_with("_duration_seconds"));
    let parts: Vec<_> =
        histograms.flat_map(|name| ["bucket", "sum", "count"].map(|part| format!("{name}_{part}"))).collect();
    names.into_iter().chain(parts).collect()
}

#[test]
fn dashboard_alerts_and_documentation_name_the_programs_metrics() {
    let known = metrics();
    let dashboard: Value = serde_json::from_str(&file("ops/grafana/posthaste.json")).unwrap();
    let mut expressions = String::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            expressions.push_str(target["expr"].as_str().unwrap());
            expressions.push('\n');
        }
    }
    let alerts = yaml("ops/prometheus/alerts.yaml");
    let rules = alerts[0]["groups"][0]["rules"].as_vec().unwrap();
    assert!(rules.len() > 8);
    for rule in rules {
        assert!(
            rule["annotations"]["summary"].as_str().is_some()
                && rule["labels"]["severity"].as_str().is_some()
        );
        expressions.push_str(rule["expr"].as_str().unwrap());
        expressions.push('\n');
    }
    for expression in expressions.lines() {
        let balanced = |open, close| expression.matches(open).count() == expression.matches(close).count();
        assert!(balanced('(', ')') && balanced('{', '}') && balanced('[', ']'), "{expression}");
    }
    let named = words(&expressions, "posthaste_");
    assert!(named.len() > 30, "{named:?}");
    assert_eq!(
        named.difference(&known).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "there are no such metrics"
    );
    let documented = words(&file("docs/relay.md"), "posthaste_");
    assert_eq!(
        documented.difference(&known).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "there are no such metrics"
    );
    let is_part = |name: &&String| ["_bucket", "_sum", "_count"].iter().any(|part| name.ends_with(part));
    let undocumented: Vec<_> = known.difference(&documented).filter(|name| !is_part(name)).collect();
    assert_eq!(undocumented, Vec::<&String>::new(), "these are not documented");
}

#[test]
fn units_images_and_manifests_name_the_programs_options_variables_and_paths() {
    let bed = Bed::new();
    let help = run(bare_command(&["relay", "--help"]), b"").succeeded();
    let is_known = |word: &str, text: &str| {
        text.split(|letter: char| !(letter.is_alphanumeric() || "-_".contains(letter)))
            .any(|found| found == word)
    };
    let asked = Asked::start(&bed, &[]);
    for path in [
        "ops/systemd/posthaste.service",
        "ops/docker/Dockerfile",
        "ops/kubernetes/relay.yaml",
        "compose.yaml",
        "ops/README.md",
        "ops/prometheus/alerts.yaml",
        "docs/relay.md",
    ] {
        let text = file(path);
        for variable in words(&text, "POSTHASTE_").iter().filter(|name| name.len() > "POSTHASTE_".len()) {
            let of_destination = variable.starts_with("POSTHASTE_DESTINATION_");
            assert!(is_known(variable, &help) || of_destination, "{path}: {variable}");
        }
        for line in text.lines().filter(|line| line.contains("posthaste ") || line.contains("args:")) {
            let words = line.split(|letter: char| !(letter.is_alphanumeric() || "-_".contains(letter)));
            for option in words.filter(|word| word.starts_with("--") && word.len() > 2) {
                let other =
                    ["--state", "--from", "--from-file", "--event-type", "--payload", "--build", "--rm"];
                assert!(is_known(option, &help) || other.contains(&option), "{path}: {option}");
            }
        }
    }
    let manifests = yaml("ops/kubernetes/relay.yaml");
    let deployment = &manifests[1];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    for (probe, expected) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        let path = container[probe]["httpGet"]["path"].as_str().unwrap();
        assert_eq!(path, expected);
        assert_ne!(asked.get(path).0, 404, "{path}");
    }
    let scrape =
        deployment["spec"]["template"]["metadata"]["annotations"]["prometheus.io/path"].as_str().unwrap();
    assert_eq!(asked.get(scrape).0, 200);
    assert_eq!(manifests[2]["kind"].as_str(), Some("PodDisruptionBudget"));
    assert_eq!(manifests[2]["spec"]["selector"], deployment["spec"]["selector"]);
    // The configuration in the manifest is one that the program takes.
    for secret in ["database-url", "rabbitmq-url"] {
        bed.file(
            secret,
            if secret == "database-url" { bed.url() } else { "amqp://h/?exchange=x".to_owned() },
        );
    }
    let config = manifests[0]["data"]["posthaste.toml"].as_str().unwrap();
    let config = config.replace("/run/secrets/posthaste/", bed.path("").to_str().unwrap());
    let config = bed.file("posthaste.toml", config);
    let mut check = bare_command(&["config", "check", "--config", &config]);
    check.current_dir(bed.path(""));
    let printed = run(check, b"").succeeded();
    assert!(printed.contains("listen = \"0.0.0.0:9186\"  # file"), "{printed}");
    // So that a relay has the time to drain.
    let grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap();
    assert!(grace > 30 && printed.contains("drain_timeout = \"30s\"  # file"), "{printed}");
    assert!(file("ops/systemd/posthaste.service").contains("TimeoutStopSec=45s"));
    yaml("compose.yaml");
}
