//! The rules of the protocol that can be left out.

/// A rule that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A settle names the lane's token, and writes nothing if it is not the relay's any more.
    FenceOnSettle,
    /// So does the writing down of an attempt.
    FenceOnBeginAttempt,
    /// Every change of owner raises the token.
    TokenIsRaised,
    /// Only free lanes are taken.
    TakeFreeLanes,
    /// The relay's own deadline is counted on a monotonic clock from before the renewal was sent.
    DeadlineByMonotonicClock,
    /// An answer that comes after the deadline is no grant.
    LateAnswerIsNoGrant,
    /// After a freeze the deadline is looked at before anything is started.
    LookAtDeadlineAfterFreeze,
    /// A lane is given back only when nothing of it is in hand.
    GiveBackWhenDone,
    /// A relay leaves only when nothing of it is in flight.
    LeaveWhenDone,
    /// A message is settled as processed after the destination confirmed it.
    SettleAfterConfirm,
    /// Outcomes whose writing was not confirmed are written again.
    SettleAgain,
    /// An outage counts no attempt.
    OutageCountsNothing,
    /// A record whose attempt is taken back is not read before that is written down.
    ReleasedIsInHand,
    /// Of each key one record is in flight at a time.
    OneOfAKey,
    /// After a failure nothing of its key starts until that is written down.
    KeyWaitsForSettle,
    /// After a failure only what stands behind it is let go of.
    DropOnlyBehindFailed,
    /// A page from before a failure was written down is not taken in for its key.
    KeyClosedForRead,
    /// A page from before its lane was begun anew is not taken in.
    PageOfThisHold,
    /// Records behind an earlier one of their key that was held back are not read.
    HeldBackHidesLater,
    /// What stands behind a record that was held back counts as unread, and is read when that one is settled.
    BehindHeldBackIsUnread,
    /// So does what a read passed over because its key was closed, or had plenty in hand.
    PassedOverIsUnread,
    /// A record that is due again is taken in once everything before it was looked at.
    DueAfterLook,
    /// A lane is read on only from where nothing new can appear.
    ReadFromFirmPosition,
    /// As before, but with sweeps from the start now and then.
    FirmPositionBesidesSweeps,
    /// Where an operator let messages go on, the lane is read from its start.
    RevisionStartsAnew,
    /// Only what is committed is read.
    ReadCommitted,
    /// Only what is processed is purged.
    PurgeProcessedOnly,
    /// Lanes of a relay that died are taken on with care.
    CareAfterCrash,
    /// What is to be careful with is tried alone.
    CareAlone,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 29] = [
        Self::FenceOnSettle,
        Self::FenceOnBeginAttempt,
        Self::TokenIsRaised,
        Self::TakeFreeLanes,
        Self::DeadlineByMonotonicClock,
        Self::LateAnswerIsNoGrant,
        Self::LookAtDeadlineAfterFreeze,
        Self::GiveBackWhenDone,
        Self::LeaveWhenDone,
        Self::SettleAfterConfirm,
        Self::SettleAgain,
        Self::OutageCountsNothing,
        Self::ReleasedIsInHand,
        Self::OneOfAKey,
        Self::KeyWaitsForSettle,
        Self::DropOnlyBehindFailed,
        Self::KeyClosedForRead,
        Self::PageOfThisHold,
        Self::HeldBackHidesLater,
        Self::BehindHeldBackIsUnread,
        Self::PassedOverIsUnread,
        Self::DueAfterLook,
        Self::ReadFromFirmPosition,
        Self::FirmPositionBesidesSweeps,
        Self::RevisionStartsAnew,
        Self::ReadCommitted,
        Self::PurgeProcessedOnly,
        Self::CareAfterCrash,
        Self::CareAlone,
    ];
}
