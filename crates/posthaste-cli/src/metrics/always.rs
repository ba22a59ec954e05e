//! A family that is shown from the start, also while it has no samples: a dashboard or an alert that names it can tell
//! "nothing yet" from "no such metric".

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;

#[derive(Debug)]
pub(super) struct Always<M>(pub(super) M);

impl<M: EncodeMetric> EncodeMetric for Always<M> {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.0.metric_type()
    }
}
