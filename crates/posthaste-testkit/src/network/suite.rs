//! What is expected of every operation.

use std::time::Duration;

use posthaste::{Error, ErrorKind, RelayId};
use tokio::time::Instant;

use super::{NetworkFixture, Operation};
use crate::Fault;

/// How long a store waits that is expected to give up.
const SHORT: Duration = Duration::from_millis(150);
/// How long a store waits that is expected to get its answer, on a machine that is busy.
const LONG: Duration = Duration::from_secs(20);

/// Every operation ends under a fault, and works again after it.
///
/// # Panics
/// When one does not.
pub async fn ends_in_time<F: NetworkFixture>(fault: Fault) {
    let Some(fixture) = F::new(SHORT).await else { return };
    let relay = RelayId::random();
    let mut worst = (Duration::ZERO, Operation::Lease);
    for operation in Operation::ALL {
        // So that there is a connection to which it happens.
        works(&fixture, relay, operation).await;
        fixture.proxy().set(fault);
        for connection in ["one that was there", "a new one"] {
            let began = Instant::now();
            let ended = operation.run(&fixture, relay).await;
            let took = began.elapsed();
            worst = if took > worst.0 { (took, operation) } else { worst };
            let error = ended.expect_err(&format!("{operation:?} on {connection}, under {fault:?}"));
            let kind = error.kind();
            assert_eq!(
                kind,
                ErrorKind::Unavailable,
                "{operation:?} on {connection}, under {fault:?}: {error:?}"
            );
        }
        fixture.proxy().heal();
        works(&fixture, relay, operation).await;
    }
    eprintln!("{fault:?}: the longest was {:?} with {:?}, of a limit of {SHORT:?}", worst.1, worst.0);
    no_session_is_left_over(&fixture).await;
}

/// On a network that is slow, but not too slow, every operation gets its answer.
///
/// # Panics
/// When one does not.
pub async fn only_takes_longer<F: NetworkFixture>() {
    let Some(fixture) = F::new(LONG).await else { return };
    let relay = RelayId::random();
    for fault in [Fault::Delay(Duration::from_millis(3)), Fault::Throttle(200_000)] {
        fixture.proxy().set(fault);
        for operation in Operation::ALL {
            let ended = operation.run(&fixture, relay).await;
            ended.unwrap_or_else(|error| panic!("{operation:?} under {fault:?}: {error:?}"));
        }
    }
    no_session_is_left_over(&fixture).await;
}

/// A store that is woken by producers is woken again when the fault is over.
///
/// # Panics
/// When it is not.
pub async fn is_woken_again<F: NetworkFixture>(fault: Fault) {
    let Some(fixture) = F::new(SHORT).await else { return };
    if !fixture.is_woken() {
        return;
    }
    let relay = RelayId::random();
    works(&fixture, relay, Operation::Lease).await;
    fixture.store().set_idle(relay, true).await.unwrap_or_else(|error| panic!("{error:?}"));
    rings(&fixture).await;
    fixture.proxy().set(fault);
    // Whoever waits meanwhile is not told anything, or is told for nothing; it is not told less afterwards.
    let _ = tokio::time::timeout(SHORT, fixture.store().rung()).await;
    fixture.proxy().heal();
    rings(&fixture).await;
    no_session_is_left_over(&fixture).await;
}

async fn rings(fixture: &impl NetworkFixture) {
    let store = fixture.store();
    let rings = async {
        loop {
            fixture.ring().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let rung = async {
        tokio::select! {
            () = store.rung() => {}
            () = rings => {}
        }
    };
    assert!(tokio::time::timeout(Duration::from_mins(1), rung).await.is_ok(), "nobody is woken");
}

/// Asks until it works.
async fn works(fixture: &impl NetworkFixture, relay: RelayId, operation: Operation) {
    let deadline = Instant::now() + Duration::from_mins(1);
    let mut last: Result<(), Error> = Ok(());
    while Instant::now() < deadline {
        last = operation.run(fixture, relay).await;
        match &last {
            Ok(()) => return,
            Err(error) => {
                let kind = error.kind();
                let may_pass = matches!(kind, ErrorKind::Unavailable | ErrorKind::Conflict);
                assert!(may_pass, "{operation:?}: {error:?}");
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{operation:?} does not work again: {last:?}");
}

async fn no_session_is_left_over(fixture: &impl NetworkFixture) {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let (sessions, most) = (fixture.sessions().await, fixture.connections());
        if sessions <= most {
            return;
        }
        assert!(Instant::now() < deadline, "the server has {sessions} sessions of a store that has {most}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
