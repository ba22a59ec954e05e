//! Running one behaviour.

use std::future::Future;
use std::time::Duration;

/// Runs a behaviour on a runtime of its own, and panics if it takes too long.
pub(crate) fn run(limit: Duration, behaviour: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime for the test: {error}"));
    let in_time = runtime.block_on(async { tokio::time::timeout(limit, behaviour).await });
    assert!(in_time.is_ok(), "the behaviour took longer than {limit:?}");
}

/// Checks that a suite names every behaviour of these sources.
#[cfg(test)]
pub(crate) fn assert_complete(suite: &str, sources: &[&str]) {
    let named: Vec<_> = suite.lines().map(|line| line.trim().trim_end_matches(',')).collect();
    let behaviours = sources.iter().flat_map(|source| source.lines());
    for behaviour in behaviours.filter_map(|line| line.strip_prefix("pub async fn ")) {
        let name = behaviour.split('(').next().unwrap_or_default();
        assert!(named.contains(&name), "the suite leaves out {name}");
    }
}
