//! Who holds which lane, and until when.

use std::collections::BTreeSet;
use std::time::Duration;

use mysql_async::Row;
use posthaste::{Error, Lane, LaneLease, LeaseRequest, Leases, RelayId};

use crate::connection::{Session, Use, first, get};
use crate::error::{DEADLOCK, Failure, LOCKED};
use crate::schema::check_version;
use crate::store::{Inner, TRIES};
use crate::value::{int, lane, limit, list, micros, text, uuid};

const DOING: &str = "renewing the lease";
/// The most characters of a relay's name that are kept.
const MAX_NAME_CHARS: usize = 1_000;

impl Inner {
    /// Renews the lease, and takes free lanes: two transactions, each of one round trip, so that no lock of theirs waits for
    /// this process. Before each go reads that lock nothing.
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
        let live = self.sql.lease_live.bind(std::slice::from_ref(&me));
        let mut looked =
            session.ask(&format!("{own};{live};{}", self.sql.lease_live_ids.text())).await?.into_iter();
        let mut next = || looked.next().map(|answer| answer.rows).unwrap_or_default();
        let (own, live, live_ids) = (lanes_of(&next())?, next(), next());
        check_version(first(&live, "version")?)?;
        let (total, live): (usize, usize) = (first(&live, "total")?, first(&live, "live")?);
        let share = total.div_ceil(live.max(1));
        let give_back: BTreeSet<_> =
            request.give_back.iter().copied().filter(|lane| own.contains(lane)).collect();
        let give_back = self.sql.lease_give_back.bind(&[me.clone(), ("lanes", stored(&give_back))]);
        let held = self.sql.lease_held.bind(&[me, ("lanes", stored(&own))]);
        let batch = format!("START TRANSACTION;{renew};{give_back};{held};COMMIT");
        let held = session.rows_of(&batch, 3).await?;
        let want = share.saturating_sub(held.len());
        let taken = if want == 0 { None } else { self.take(session, request, &live_ids, want).await? };
        let (rows, from_expired) = taken.unwrap_or((held, BTreeSet::new()));
        let lease = |row: &Row| {
            let lane = lane(get(row, "lane")?);
            Ok(LaneLease { lane, token: get(row, "token")?, from_expired: from_expired.contains(&lane) })
        };
        Ok(Leases { lanes: rows.iter().map(lease).collect::<Result<_, Failure>>()?, share, total })
    }

    /// Takes at most `want` free lanes. Returns all that are held then, and those whose owner's lease ran out; nothing where
    /// there was none to take, or somebody else was at it.
    async fn take(
        &self,
        session: &mut Session,
        request: &LeaseRequest,
        live: &[Row],
        want: usize,
    ) -> Result<Option<(Vec<Row>, BTreeSet<Lane>)>, Failure> {
        let live = live.iter().map(|row| Ok(uuid(crate::connection::get_uuid(row, "id")?)));
        let live = live.collect::<Result<Vec<_>, Failure>>()?;
        let kept = list(request.give_back.iter().map(|lane| int(lane.0)).chain([int(-1)]));
        let me = ("relay", uuid(request.relay.0));
        let live = list(live.into_iter().chain([me.1.clone()]));
        let values = [me.clone(), ("kept", kept), ("live", live), ("most", limit(want))];
        let free = session.rows(&self.sql.lease_free.bind(&values)).await?;
        if free.is_empty() {
            return Ok(None);
        }
        let lanes = ("lanes", stored(&lanes_of(&free)?));
        let lock = self.sql.lease_lock.bind(std::slice::from_ref(&lanes));
        let take = self.sql.lease_take.bind(&[me.clone(), lanes]);
        let lanes = self.sql.lease_lanes.bind(&[me]);
        let mut answers = match session.ask(&format!("START TRANSACTION;{lock};{take};{lanes};COMMIT")).await
        {
            Ok(answers) => answers.into_iter().skip(1),
            Err(failure) if failure.code().is_some_and(|code| LOCKED.contains(&code)) => {
                session.ask("ROLLBACK").await?;
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        };
        let locked = answers.next().map(|answer| answer.rows).unwrap_or_default();
        let mut expired = BTreeSet::new();
        for row in &locked {
            if get::<bool>(row, "expired")? {
                expired.insert(lane(get(row, "lane")?));
            }
        }
        let held = answers.nth(1).ok_or_else(crate::connection::nothing_came_back)?.rows;
        Ok(Some((held, expired)))
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
