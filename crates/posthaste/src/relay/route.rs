//! Which destination a record goes to.

use super::destination::Destination;
use crate::admin::Glob;
use crate::error::Error;
use crate::record::Record;

/// Sends some records to a destination: those that match all of its patterns. Of several routes the first that matches
/// counts.
///
/// ```
/// use posthaste::Route;
///
/// let audit = Route::to("archive").event_type("*.deleted").aggregate_type("order");
/// let rest = Route::to("rabbit");
/// ```
#[derive(Debug, Clone)]
pub struct Route {
    to: String,
    event_type: Option<Glob>,
    aggregate_type: Option<Glob>,
}

impl Route {
    /// A route to the destination of this name, for every record unless it is narrowed.
    pub fn to(destination: impl Into<String>) -> Self {
        Self { to: destination.into(), event_type: None, aggregate_type: None }
    }

    /// Only records whose event type matches.
    pub fn event_type(mut self, pattern: impl Into<String>) -> Self {
        self.event_type = Some(Glob::new(pattern));
        self
    }

    /// Only records whose aggregate type matches. It is an empty text where a record has none.
    pub fn aggregate_type(mut self, pattern: impl Into<String>) -> Self {
        self.aggregate_type = Some(Glob::new(pattern));
        self
    }

    fn matches(&self, record: &Record) -> bool {
        self.event_type.as_ref().is_none_or(|glob| glob.matches(&record.event_type))
            && self.aggregate_type.as_ref().is_none_or(|glob| glob.matches(record.aggregate.aggregate_type()))
    }
}

/// Where a record goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// To the served destination of this number.
    To(usize),
    /// To a destination that other relays serve.
    Elsewhere,
    /// No route matches.
    Unrouted,
}

/// The routes of a relay, resolved.
#[derive(Debug, Default)]
pub(super) struct Routing {
    /// Empty: everything goes to the only destination.
    routes: Vec<(Route, Course)>,
}

impl Routing {
    /// Resolves the routes. The served destinations are numbered as they come.
    pub(super) fn new(routes: Vec<Route>, destinations: &[Destination]) -> Result<Self, Error> {
        let mut served = destinations.iter().filter(|destination| destination.is_served());
        let resolve = |route: Route| {
            let mut served = destinations.iter().filter(|destination| destination.is_served());
            let course = match served.position(|destination| destination.name() == route.to) {
                Some(number) => Course::To(number),
                None if destinations.iter().any(|one| one.name() == route.to) => Course::Elsewhere,
                None => return Err(unknown(&route.to, destinations)),
            };
            Ok((route, course))
        };
        let routes: Vec<_> = routes.into_iter().map(resolve).collect::<Result<_, _>>()?;
        if let Some(idle) = served.find(|one| routes.iter().all(|(route, _)| route.to != one.name())) {
            let name = idle.name();
            return Err(Error::invalid_input(format!("no route leads to the destination `{name}`")));
        }
        Ok(Self { routes })
    }

    /// Whether there are records that this relay passes over.
    pub(super) fn is_partial(&self) -> bool {
        !self.routes.is_empty()
    }

    pub(super) fn of(&self, record: &Record) -> Course {
        if self.routes.is_empty() {
            return Course::To(0);
        }
        let found = self.routes.iter().find(|(route, _)| route.matches(record));
        found.map_or(Course::Unrouted, |(_, course)| *course)
    }
}

fn unknown(to: &str, destinations: &[Destination]) -> Error {
    let known: Vec<_> = destinations.iter().map(|one| format!("`{}`", one.name())).collect();
    let known = known.join(", ");
    Error::invalid_input(format!("a route leads to `{to}`, which is not one of the destinations: {known}"))
}
