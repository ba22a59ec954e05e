//! Publishers for tests: one that keeps a record of what it is asked, and one that does what a script says.

mod gate;
mod log;
mod recording;
mod scripted;

pub use gate::Gate;
pub use log::{Call, End, PublishLog};
pub use recording::RecordingPublisher;
pub use scripted::{ScriptedPublisher, Step};

#[cfg(test)]
mod tests;
