//! The protocol keeps its promises in every state; with a rule left out, the checker finds how they are broken.

use posthaste_model::{Rule, Scenario, Step};
use stateright::{Checker, HasDiscoveries, Model};

const ONE_PUBLISHER: &str = "one publisher while leases are kept";
const IN_ORDER: &str = "in order per key";
const NO_STALE_SETTLE: &str = "no stale settle";
const DELIVERED: &str = "delivered in the end";
const NO_LOSS: &str = "no loss";
const NO_BLAME: &str = "no blame for what others did";
const ATOMIC: &str = "atomic";

/// Goes through every state of a scenario.
fn holds(scenario: Scenario) {
    let name = scenario.name;
    let checker = scenario.checker().threads(2).finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name}: {states} states, up to {depth} steps");
    let broken: Vec<_> =
        checker.discoveries().into_iter().map(|(promise, path)| (promise, path.into_actions())).collect();
    assert!(broken.is_empty(), "{name} breaks {broken:?}");
    assert!(states > 1_000, "{name} is gone through: {states} states");
}

/// How a promise is broken without a rule.
fn broken(scenario: &Scenario, rule: Rule, promise: &'static str) -> Vec<Step> {
    let without = scenario.without(rule);
    let until = HasDiscoveries::AnyOf(std::iter::once(promise).collect());
    let checker = without.checker().threads(2).finish_when(until).spawn_bfs().join();
    let Some(path) = checker.discovery(promise) else {
        panic!("without {rule:?}, \"{promise}\" still holds in every state of {}", scenario.name);
    };
    path.into_actions()
}

macro_rules! scenarios_hold {
    ($($name:ident)*) => {
        mod holds {
            $(#[test] fn $name() { super::holds(posthaste_model::Scenario::$name()); })*

            #[test]
            fn in_all_scenarios() {
                let tested = [$(stringify!($name)),*].map(|name| name.replace('_', " "));
                let all = posthaste_model::Scenario::all().into_iter().map(|scenario| scenario.name);
                assert_eq!(all.collect::<Vec<_>>(), tested);
            }
        }
    };
}

scenarios_hold!(takeover crash sharing late_commits hot_key failures late_failures delays dead skipped killer frozen_care);

macro_rules! rules_are_needed {
    ($($rule:ident $name:ident $scenario:ident $promise:ident)*) => {
        mod without {
            $(
                #[test]
                fn $name() {
                    let (rule, promise) = (posthaste_model::Rule::$rule, super::$promise);
                    let steps = super::broken(&posthaste_model::Scenario::$scenario(), rule, promise);
                    println!("without {rule:?}: {steps:?}");
                }
            )*

            #[test]
            fn any_rule() {
                assert_eq!([$(posthaste_model::Rule::$rule),*], posthaste_model::Rule::ALL);
            }
        }
    };
}

rules_are_needed! {
    FenceOnSettle the_fence_on_settle takeover NO_STALE_SETTLE
    FenceOnBeginAttempt the_fence_on_begin_attempt frozen_care NO_STALE_SETTLE
    TokenIsRaised a_new_token takeover NO_STALE_SETTLE
    TakeFreeLanes taking_only_free_lanes sharing ONE_PUBLISHER
    DeadlineByMonotonicClock a_monotonic_deadline crash ONE_PUBLISHER
    LateAnswerIsNoGrant dropping_late_answers takeover ONE_PUBLISHER
    LookAtDeadlineAfterFreeze a_look_at_the_deadline_after_a_freeze takeover ONE_PUBLISHER
    GiveBackWhenDone giving_back_only_what_is_done sharing ONE_PUBLISHER
    LeaveWhenDone leaving_only_when_done sharing ONE_PUBLISHER
    SettleAfterConfirm settling_after_the_confirm crash NO_LOSS
    SettleAgain settling_again takeover DELIVERED
    OutageCountsNothing outages_that_count_nothing failures NO_BLAME
    ReleasedIsInHand reading_after_a_release skipped NO_BLAME
    OneOfAKey one_record_of_a_key_at_a_time failures IN_ORDER
    KeyWaitsForSettle a_key_that_waits_for_its_settle skipped IN_ORDER
    DropOnlyBehindFailed keeping_what_stands_before_a_failure late_failures DELIVERED
    KeyClosedForRead keys_closed_for_a_read late_failures IN_ORDER
    PageOfThisHold pages_of_this_hold_only takeover ONE_PUBLISHER
    HeldBackHidesLater held_back_records_hiding_later_ones late_failures IN_ORDER
    BehindHeldBackIsUnread reading_on_behind_held_back_records failures DELIVERED
    PassedOverIsUnread reading_what_was_passed_over hot_key DELIVERED
    DueAfterLook a_look_at_what_stands_before_due_records delays IN_ORDER
    ReadFromFirmPosition firm_positions late_commits DELIVERED
    FirmPositionBesidesSweeps firm_positions_besides_sweeps late_commits IN_ORDER
    RevisionStartsAnew revisions dead DELIVERED
    ReadCommitted reading_only_what_is_committed late_commits ATOMIC
    PurgeProcessedOnly purging_only_what_is_processed crash NO_LOSS
    CareAfterCrash care_after_a_crash killer DELIVERED
    CareAlone trying_alone killer NO_BLAME
}
