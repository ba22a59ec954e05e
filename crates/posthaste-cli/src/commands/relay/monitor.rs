//! What watches a relay from outside: health, metrics, the HTTP port, the service manager.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use posthaste::{Admin, RelayBuilder, RelayHandle};

use crate::durations;
use crate::failure::Failure;
use crate::health::{Health, Look};
use crate::http::{self, Page, Server};
use crate::metrics::{Counting, Metrics, State, TableFigures};
use crate::service::{self, Watchdog};

/// Where it can be asked how the relay does.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Health and metrics")]
pub(crate) struct HttpArgs {
    /// Serve /livez, /readyz and /metrics (Prometheus) at this address, such as 127.0.0.1:9186
    #[arg(long, value_name = "ADDRESS", env = "POSTHASTE_HTTP", value_parser = address)]
    http: Option<SocketAddr>,

    /// How often the figures about the table are counted at most, however often they are asked for
    #[arg(long, value_name = "TIME", env = "POSTHASTE_COUNT_EVERY")]
    #[arg(default_value = "10s", value_parser = durations::parse, allow_hyphen_values = true)]
    count_every: Duration,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.trim()
        .parse()
        .map_err(|_| "is no address with a port, such as 127.0.0.1:9186 or [::]:9186".to_owned())
}

pub(super) struct Monitor {
    health: Arc<Health>,
    metrics: Option<(Arc<Metrics>, State)>,
    count_every: Duration,
    _server: Option<Server>,
    _watchdog: Watchdog,
}

impl Monitor {
    /// Starts to tell, before there is a relay.
    pub(super) async fn start(
        args: &HttpArgs,
        idle_poll: Duration,
        destinations: &[String],
    ) -> Result<Self, Failure> {
        let health = Arc::new(Health::new(idle_poll));
        let (mut metrics, mut server) = (None, None);
        if let Some(address) = args.http {
            let state = State::default();
            let all = Arc::new(Metrics::new(destinations, state.clone()));
            metrics = Some((all.clone(), state.clone()));
            server = Some(
                http::serve(address, Arc::new(Page { health: health.clone(), metrics: all, state })).await?,
            );
        }
        let watchdog = service::up(health.clone());
        Ok(Self { health, metrics, count_every: args.count_every, _server: server, _watchdog: watchdog })
    }

    /// Lets the relay count what happens.
    pub(super) fn observe(&self, builder: RelayBuilder) -> RelayBuilder {
        match &self.metrics {
            Some((metrics, _)) => builder.observer(Counting(metrics.clone())),
            None => builder,
        }
    }

    /// The relay cannot run yet.
    pub(super) fn waiting(&self, why: &str) {
        self.health.starting(why);
        service::status(why);
    }

    /// The relay runs.
    pub(super) fn running(&self, relay: &RelayHandle, admin: Arc<dyn Admin>, looks: Vec<(String, Look)>) {
        if let Some((_, state)) = &self.metrics {
            state.set_relay(relay.clone(), TableFigures::new(admin, self.count_every));
        }
        self.health.running(relay.clone(), looks);
        service::status("running");
    }

    /// The relay was asked to stop.
    pub(super) fn stopping(&self) {
        self.health.stopping();
        service::stopping();
    }
}
