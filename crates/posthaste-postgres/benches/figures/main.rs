//! Figures against the server of the tests, as ratios in one run: `cargo bench -p posthaste-postgres`, or only some of them:
//! `cargo bench -p posthaste-postgres -- drain store`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod backlog;
mod drain;
mod enqueue;
mod latency;
mod measure;
#[path = "../../tests/support/mod.rs"]
mod support;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let names: Vec<_> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let all = ["drain", "store", "enqueue", "many"];
    let chosen = if names.is_empty() { all.map(str::to_owned).to_vec() } else { names };
    for name in chosen {
        match name.as_str() {
            "drain" => drain::against_a_server_side_loop().await,
            "store" => drain::the_store_alone().await,
            "enqueue" => enqueue::against_a_bare_insert().await,
            "many" => enqueue::many_at_once().await,
            "backlog" => backlog::long_and_short().await,
            "held" => backlog::behind_delayed_rows_and_blocked_keys().await,
            "snapshot" => latency::while_a_snapshot_is_held().await,
            "latency" => latency::from_commit_to_publish().await,
            "idle" => latency::statements_of_an_idle_relay().await,
            other => panic!(
                "there is no run {other}; there are {all:?}, and by name only: backlog, held, snapshot, latency, idle"
            ),
        }
    }
}
