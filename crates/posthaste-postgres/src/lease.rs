//! Who holds which lane, and until when.

use std::collections::BTreeSet;
use std::time::Duration;

use posthaste::{Error, Lane, LaneLease, LeaseRequest, Leases, RelayId};
use tokio_postgres::types::Type;

use crate::connection::{Params, Session, Use, no_row};
use crate::error::Failure;
use crate::schema::check_version;
use crate::store::Inner;
use crate::value::{lane, micros};

const DOING: &str = "renewing the lease";

impl Inner {
    /// Renews the lease and takes free lanes, in one transaction: locks what the relay holds, locks what is free, and
    /// takes it after another look, so that a lease that is renewed at the same moment is never overlooked.
    pub(crate) async fn lease(&self, request: &LeaseRequest) -> Result<Leases, Error> {
        let limit = self.limit().min((request.duration / 2).max(Duration::from_millis(100)));
        let session = self.connections.session(Use::Lease, limit).await;
        let session = session.map_err(|failure| self.error(DOING, failure))?;
        match session.within(self.renew(&session, request)).await {
            Ok(leases) => session.done(Ok(leases)).map_err(|failure| self.error(DOING, failure)),
            // The transaction is open: its connection is closed with it.
            Err(failure) => Err(self.error(DOING, failure)),
        }
    }

    async fn renew(&self, session: &Session, request: &LeaseRequest) -> Result<Leases, Failure> {
        let (client, me) = (session.client(), request.relay.0);
        let duration = micros(request.duration);
        let renew = [(&me as _, Type::UUID), (&request.name as _, Type::TEXT), (&duration as _, Type::INT8)];
        let own = [(&me as _, Type::UUID)];
        let (begun, renewed, held) = tokio::join!(
            biased;
            client.batch_execute(&self.begin_write.anywhere),
            client.execute_typed(&self.sql.lease_renew, &renew),
            client.query_typed(&self.sql.lease_held, &own),
        );
        begun?;
        renewed?;
        let held = held?.pop().ok_or_else(|| no_row(DOING))?;
        check_version(held.get("version"))?;
        let count = |name: &str| usize::try_from(held.get::<_, i64>(name)).unwrap_or_default();
        let (total, live) = (count("total"), count("live"));
        let mut holds = held.get::<_, Option<Vec<i16>>>("held").unwrap_or_default().len();
        let share = total.div_ceil(live.max(1));

        let give_back: Vec<_> =
            request.give_back.iter().filter_map(|lane| i16::try_from(lane.0).ok()).collect();
        if !give_back.is_empty() {
            let params = [(&me as _, Type::UUID), (&give_back as _, Type::INT2_ARRAY)];
            let returned = client.execute_typed(&self.sql.lease_give_back, &params).await?;
            holds -= usize::try_from(returned).unwrap_or_default().min(holds);
        }
        let from_expired = self.take(session, request, &give_back, share.saturating_sub(holds)).await?;
        let (lanes, committed) = tokio::join!(
            biased;
            client.query_typed(&self.sql.lease_lanes, &own),
            client.batch_execute("COMMIT"),
        );
        let lanes = lanes?;
        committed?;
        let lease = |row: &tokio_postgres::Row| {
            let lane = lane(row.get("lane"));
            LaneLease { lane, token: row.get("token"), from_expired: from_expired.contains(&lane) }
        };
        Ok(Leases { lanes: lanes.iter().map(lease).collect(), share, total })
    }

    /// Takes at most `want` free lanes. Returns those whose owner's lease ran out.
    async fn take(
        &self,
        session: &Session,
        request: &LeaseRequest,
        give_back: &Vec<i16>,
        want: usize,
    ) -> Result<BTreeSet<Lane>, Failure> {
        let (client, me) = (session.client(), request.relay.0);
        let limit = i64::try_from(want).unwrap_or(i64::MAX);
        if want == 0 {
            return Ok(BTreeSet::new());
        }
        let params = [(&me as _, Type::UUID), (&limit as _, Type::INT8), (give_back as _, Type::INT2_ARRAY)];
        let free = client.query_typed(&self.sql.lease_free, &params).await?;
        if free.is_empty() {
            return Ok(BTreeSet::new());
        }
        let lanes: Vec<i16> = free.iter().map(|row| row.get("lane")).collect();
        let params = [(&me as _, Type::UUID), (&lanes as _, Type::INT2_ARRAY)];
        let taken = client.query_typed(&self.sql.lease_take, &params).await?;
        let taken: BTreeSet<_> = taken.iter().map(|row| lane(row.get("lane"))).collect();
        let expired = free.iter().filter(|row| row.get("expired")).map(|row| lane(row.get("lane")));
        Ok(expired.filter(|lane| taken.contains(lane)).collect())
    }

    /// Gives everything back.
    pub(crate) async fn leave(&self, relay: RelayId) -> Result<(), Error> {
        let doing = "giving the lanes back";
        let session = self.session(Use::Lease, doing).await?;
        let own = [(&relay.0 as _, Type::UUID)];
        let statements: [(&str, Params<'_>); 4] = [
            (&self.sql.leave_lanes, &own),
            (&self.sql.lock_wake, &[]),
            (&self.sql.leave_relay, &own),
            (&self.sql.set_wake, &[]),
        ];
        let result = session.run_all(&self.begin_write, &statements).await;
        session.done(result).map_err(|failure| self.error(doing, failure))?;
        Ok(())
    }
}
