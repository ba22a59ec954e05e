//! Who holds which lane, and until when.

use std::collections::BTreeSet;
use std::time::Duration;

use mysql_async::Row;
use posthaste::{Error, Lane, LaneLease, LeaseRequest, Leases, RelayId};

use crate::connection::{Session, Use, first, get};
use crate::error::{DEADLOCK, Failure};
use crate::schema::check_version;
use crate::store::{Inner, TRIES};
use crate::value::{int, lane, limit, list, micros, text, uuid};

const DOING: &str = "renewing the lease";
/// The most characters of a relay's name that are kept.
const MAX_NAME_CHARS: usize = 1_000;

impl Inner {
    /// Renews the lease and takes free lanes, in one transaction: locks what the relay holds, locks what is free, and
    /// takes it after another look, so that a lease that is renewed at the same moment is never overlooked.
    pub(crate) async fn lease(&self, request: &LeaseRequest) -> Result<Leases, Error> {
        let limit = self.limit().min((request.duration / 2).max(Duration::from_millis(100)));
        let mut tries = 0;
        loop {
            tries += 1;
            let session = self.connections.session(Use::Lease, limit).await;
            let mut session = session.map_err(|failure| self.error(DOING, failure))?;
            let leased = self.renew(&mut session, request).await;
            match session.done(leased).await {
                Err(failure) if failure.code() == Some(DEADLOCK) && tries < TRIES => {}
                leased => return leased.map_err(|failure| self.error(DOING, failure)),
            }
        }
    }

    async fn renew(&self, session: &mut Session, request: &LeaseRequest) -> Result<Leases, Failure> {
        if session.is_new() {
            self.check_table(session).await?;
        }
        let me = ("relay", uuid(request.relay.0));
        let name: String = request.name.chars().take(MAX_NAME_CHARS).collect();
        let renew = self.sql.lease_renew.bind(&[
            me.clone(),
            ("name", text(&name)),
            ("duration", int(micros(request.duration))),
        ]);
        let own = self.sql.lease_own.bind(std::slice::from_ref(&me));
        let own = session.rows_of(&format!("START TRANSACTION;{renew};{own}"), 2).await?;
        let own = lanes_of(&own)?;
        let held = self.sql.lease_held.bind(&[me.clone(), ("lanes", stored(&own))]);
        let live = self.sql.lease_live.bind(std::slice::from_ref(&me));
        let mut answers = session.ask(&format!("{held};{live}")).await?.into_iter();
        let held = answers.next().map(|answer| answer.rows).unwrap_or_default();
        let live = answers.next().map(|answer| answer.rows).unwrap_or_default();
        check_version(first(&live, "version")?)?;
        let (total, live): (usize, usize) = (first(&live, "total")?, first(&live, "live")?);
        let share = total.div_ceil(live.max(1));
        let held = lanes_of(&held)?;
        let given_back = self.give_back(session, request, &held).await?;
        let want = share.saturating_sub(held.len() - given_back);
        let from_expired = self.take(session, request, want).await?;
        let lanes = self.sql.lease_lanes.bind(&[me]);
        let lanes = session.rows_of(&format!("{lanes};COMMIT"), 0).await?;
        let lease = |row: &Row| {
            let lane = lane(get(row, "lane")?);
            Ok(LaneLease { lane, token: get(row, "token")?, from_expired: from_expired.contains(&lane) })
        };
        Ok(Leases { lanes: lanes.iter().map(lease).collect::<Result<_, Failure>>()?, share, total })
    }

    /// Gives lanes back, if they are held. Returns how many were.
    async fn give_back(
        &self,
        session: &mut Session,
        request: &LeaseRequest,
        held: &BTreeSet<Lane>,
    ) -> Result<usize, Failure> {
        let lanes: BTreeSet<_> =
            request.give_back.iter().copied().filter(|lane| held.contains(lane)).collect();
        if lanes.is_empty() {
            return Ok(0);
        }
        let values = [("relay", uuid(request.relay.0)), ("lanes", stored(&lanes))];
        session.ask(&self.sql.lease_give_back.bind(&values)).await?;
        Ok(lanes.len())
    }

    /// Takes at most `want` free lanes. Returns those whose owner's lease ran out.
    async fn take(
        &self,
        session: &mut Session,
        request: &LeaseRequest,
        want: usize,
    ) -> Result<BTreeSet<Lane>, Failure> {
        if want == 0 {
            return Ok(BTreeSet::new());
        }
        let live = session.rows(&self.sql.lease_live_ids.text()).await?;
        let live = live.iter().map(|row| Ok(uuid(crate::connection::get_uuid(row, "id")?)));
        let live = live.collect::<Result<Vec<_>, Failure>>()?;
        let kept = list(request.give_back.iter().map(|lane| int(lane.0)).chain([int(-1)]));
        let me = ("relay", uuid(request.relay.0));
        let live = if live.is_empty() { me.1.clone() } else { list(live) };
        let values = [me.clone(), ("kept", kept), ("live", live), ("most", limit(want))];
        let free = session.rows(&self.sql.lease_free.bind(&values)).await?;
        if free.is_empty() {
            return Ok(BTreeSet::new());
        }
        let lanes = stored(&lanes_of(&free)?);
        session.ask(&self.sql.lease_take.bind(&[me, ("lanes", lanes)])).await?;
        let mut expired = BTreeSet::new();
        for row in &free {
            if get::<bool>(row, "expired")? {
                expired.insert(lane(get(row, "lane")?));
            }
        }
        Ok(expired)
    }

    /// Gives everything back.
    pub(crate) async fn leave(&self, relay: RelayId) -> Result<(), Error> {
        let doing = "giving the lanes back";
        let mut tries = 0;
        loop {
            tries += 1;
            let mut session = self.session(Use::Lease, doing).await?;
            let left = self.leave_in(&mut session, relay).await;
            match session.done(left).await {
                Err(failure) if failure.code() == Some(DEADLOCK) && tries < TRIES => {}
                left => return left.map_err(|failure| self.error(doing, failure)),
            }
        }
    }

    async fn leave_in(&self, session: &mut Session, relay: RelayId) -> Result<(), Failure> {
        let me = ("relay", uuid(relay.0));
        let own = self.sql.lease_own.bind(std::slice::from_ref(&me));
        let own = lanes_of(&session.rows(&own).await?)?;
        let lanes = list(own.iter().map(|lane| int(lane.0)).chain([int(-1)]));
        let leave_lanes = self.sql.leave_lanes.bind(&[me.clone(), ("lanes", lanes)]);
        let leave_relay = self.sql.leave_relay.bind(&[me]);
        session.ask(&format!("START TRANSACTION;{leave_relay};{leave_lanes};COMMIT")).await?;
        Ok(())
    }
}

fn lanes_of(rows: &[Row]) -> Result<BTreeSet<Lane>, Failure> {
    rows.iter().map(|row| Ok(lane(get(row, "lane")?))).collect()
}

fn stored(lanes: &BTreeSet<Lane>) -> crate::value::Literal {
    list(lanes.iter().map(|lane| int(lane.0)))
}
