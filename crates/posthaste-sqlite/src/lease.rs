//! The lease on the lane: renew, take, give back, leave.

use posthaste::{Error, Lane, LaneLease, LeaseRequest, Leases, RelayId};
use rusqlite::params;

use crate::database::{Database, Step};

/// The only lane there is.
pub(crate) const LANE: Lane = Lane(0);
/// The lane that stands for the upkeep.
pub(crate) const UPKEEP: i64 = -1;

/// The lane as the table has it.
struct Held {
    owner: Option<String>,
    token: i64,
    leased_until: Option<i64>,
}

/// Renews the relay's lease, and takes the lane if it is free.
pub(crate) fn lease(database: &mut Database, request: &LeaseRequest) -> Result<Leases, Error> {
    let relay = request.relay.to_string();
    database.write("renewing the lease", |step| {
        let until = step.now.plus(request.duration);
        step.execute(&step.sql.lease_renew, params![relay, request.name, until, step.now.millis])?;
        let lane = held(step)?;
        let lanes = if lane.owner.as_ref() != Some(&relay) {
            take(step, &relay, &lane)?
        } else if request.give_back.contains(&LANE) {
            step.execute(&step.sql.lane_take, [None::<&str>])?;
            None
        } else {
            Some(LaneLease { lane: LANE, token: lane.token, from_expired: false })
        };
        // With one lane, everybody's share of it rounds up to one.
        Ok(Leases { lanes: lanes.into_iter().collect(), share: 1, total: 1 })
    })
}

/// Gives everything back, and forgets the relay.
pub(crate) fn leave(database: &mut Database, relay: RelayId) -> Result<(), Error> {
    let relay = relay.to_string();
    database.write("giving lanes back", |step| {
        step.execute(&step.sql.leave_lanes, [&relay])?;
        step.execute(&step.sql.leave_relay, [&relay]).map(drop)
    })
}

/// Whether the relay still holds a lane under a token.
pub(crate) fn is_held(step: &Step<'_>, relay: &str, lane: Lane, token: i64) -> rusqlite::Result<bool> {
    step.prepare(&step.sql.fence)?.exists(params![lane.0, relay, token])
}

fn held(step: &Step<'_>) -> rusqlite::Result<Held> {
    let read = |step: &Step<'_>| {
        step.first(&step.sql.lane, [], |row| {
            Ok(Held { owner: row.get(0)?, token: row.get(1)?, leased_until: row.get(2)? })
        })
    };
    if let Some(held) = read(step)? {
        return Ok(held);
    }
    step.execute(&step.sql.lane_restore, params![LANE.0, step.now.millis])?;
    read(step)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// Takes the lane if nobody has it, or whoever had it let its lease run out.
fn take(step: &Step<'_>, relay: &str, lane: &Held) -> rusqlite::Result<Option<LaneLease>> {
    let is_live = lane.leased_until.is_some_and(|until| until > step.now.millis);
    if is_live {
        return Ok(None);
    }
    step.execute(&step.sql.lane_take, [relay])?;
    Ok(Some(LaneLease { lane: LANE, token: lane.token + 1, from_expired: lane.owner.is_some() }))
}
