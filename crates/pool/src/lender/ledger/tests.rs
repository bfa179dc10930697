use super::*;
use crate::wire::shared::Kind;

const FIRST: Handle = Handle {
    slot: 3,
    generation: 7,
};
const IDLE: Handle = Handle {
    slot: 9,
    generation: 1,
};

/// A ledger with two programs, of which each may hold one service, and one service that runs.
fn sample() -> Ledger {
    let mut ledger = Ledger::new(1, 1);
    ledger.admit(1, 101);
    ledger.admit(2, 102);
    ledger.begin(FIRST.slot, 0, 0);
    if let Some(service) = ledger.services.get_mut(&FIRST.slot) {
        (service.pid, service.preface_read) = (50, true);
    }
    ledger
}

fn question(program: BorrowerId, ticket: QuestionId) -> Question {
    Question::new(program, ticket, 0, 0)
}

fn asked(program: BorrowerId, ticket: QuestionId) -> Asked {
    Asked {
        question: question(program, ticket),
        hurry_ms: Some(500),
    }
}

#[test]
fn a_program_at_its_limit_has_one_question_parked_until_it_gives_back() {
    let mut ledger = sample();
    assert_eq!(ledger.admit_question(question(1, 11)), Admission::Ask);
    ledger.hold(1, FIRST, 11, false, 0);
    assert_eq!(ledger.admit_question(question(1, 12)), Admission::Parked);
    assert_eq!(ledger.admit_question(question(1, 13)), Admission::Refused);
    assert_eq!((ledger.parked(), ledger.next_parked(1)), (1, None));
    assert_eq!(ledger.give_back(1, FIRST, 0, 0), GivenBack::Lendable);
    assert_eq!(ledger.next_parked(1), Some(question(1, 12)));
    assert_eq!(ledger.next_parked(1), None);
}

#[test]
fn a_service_that_has_ended_makes_room_for_its_holders_next_question() {
    let mut ledger = sample();
    ledger.hold(1, FIRST, 11, false, 0);
    assert!(ledger.held_by_waiting().is_empty(), "nobody waits");
    assert_eq!(ledger.admit_question(question(1, 12)), Admission::Parked);
    assert_eq!(ledger.held_by_waiting(), [(1, FIRST)]);
    ledger.ended(1, FIRST);
    assert_eq!(
        (ledger.held_by(1), ledger.next_parked(1)),
        (0, Some(question(1, 12)))
    );
    assert!(
        ledger.give_up(1, FIRST, 0),
        "the lease is still the program's"
    );
}

#[test]
fn a_copy_counts_as_one_until_it_ends_and_against_no_other_limit() {
    let mut ledger = sample();
    ledger.begin(IDLE.slot, 0, 0);
    ledger.hold(1, FIRST, 11, false, 0);
    ledger.hold_copy(1, IDLE, 12, 0);
    assert_eq!((ledger.held_by(1), ledger.copies_of(1)), (1, 1));
    assert_eq!(ledger.copies_of(2), 0);
    ledger.ended(1, IDLE);
    assert_eq!(
        ledger.copies_of(1),
        1,
        "its slot is taken until it is given up"
    );
    assert!(ledger.give_up(1, IDLE, 0));
    assert_eq!((ledger.held_by(1), ledger.copies_of(1)), (1, 0));
}

#[test]
fn a_question_in_the_pool_ends_once_by_its_answer_or_with_its_program() {
    let mut ledger = sample();
    assert!(ledger.wait(70, asked(1, 11)));
    assert!(!ledger.wait(71, asked(1, 12)), "one may wait");
    assert!(ledger.wait(72, asked(2, 11)));
    assert_eq!(ledger.leave(1, 11), Some(70));
    assert_eq!(ledger.leave(1, 11), None);
    assert!(ledger.question(70).is_none() && ledger.question(72).is_some());
    assert_eq!(ledger.remove(2), (vec![72], vec![]));
    assert!(!ledger.has_questions());
}

#[test]
fn parked_questions_that_can_share_wait_no_longer_in_their_order() {
    let mut ledger = Ledger::new(1, 3);
    ledger.admit(1, 101);
    ledger.hold(1, FIRST, 11, false, 0);
    for ticket in 12..15 {
        let admission = ledger.admit_question(question(1, ticket));
        assert_eq!(admission, Admission::Parked);
    }
    let can = |tickets: &'static [QuestionId]| {
        move |asked: Question| tickets.contains(&asked.ticket).then_some(FIRST)
    };
    assert!(ledger.unpark_joined(can(&[13])).is_empty(), "12 is first");
    let joined = ledger.unpark_joined(can(&[12, 14]));
    assert_eq!(joined, [(question(1, 12), FIRST)]);
    assert!(ledger.has_parked(1) && !ledger.has_parked(2));
    assert_eq!((ledger.parked(), ledger.held_by(1)), (2, 1));
}

#[test]
fn only_callers_of_one_program_share_a_service() {
    let of = |program, group| Question::new(program, 11, 0, group);
    let all = [of(1, 0), of(1, 1), of(2, 0), of(2, u32::MAX)];
    let groups: std::collections::BTreeSet<_> = all.iter().map(Question::caller_group).collect();
    assert_eq!(groups.len(), all.len());
}

#[test]
fn a_question_hurries_once() {
    let mut ledger = sample();
    assert!(ledger.wait(70, asked(1, 11)));
    assert_eq!(ledger.first_hurry_ms(), Some(500));
    assert!(ledger.take_hurried(499).is_empty());
    assert_eq!(ledger.take_hurried(500), [70]);
    assert!(ledger.take_hurried(500).is_empty() && ledger.first_hurry_ms().is_none());
}

#[test]
fn what_is_drained_while_it_is_lent_is_lent_to_no_other() {
    let mut ledger = sample();
    ledger.hold(1, FIRST, 11, false, 0);
    assert_eq!(ledger.retire(|key| key == 1), 0);
    assert_eq!(ledger.retire(|key| key == 0), 1);
    assert!(ledger.is_retiring(FIRST.slot));
    assert!(ledger.lendable(2, FIRST.slot).is_none());
    assert_eq!(ledger.give_back(1, FIRST, 0, 0), GivenBack::Retiring);
    assert_eq!(ledger.give_back(1, FIRST, 0, 0), GivenBack::Stale);
}

#[test]
fn a_lease_ends_once_and_only_for_who_holds_it() {
    let mut ledger = sample();
    ledger.hold(1, FIRST, 11, false, 1_000);
    let later = Handle {
        generation: 8,
        ..FIRST
    };
    assert!(!ledger.give_up(2, FIRST, 0), "another program's");
    assert!(!ledger.give_up(1, later, 0), "another lease of the slot");
    assert!(ledger.give_up(1, FIRST, 2_000));
    assert!(!ledger.give_up(1, FIRST, 0), "twice");
}

#[test]
fn a_process_that_is_gone_is_known_to_nobody() {
    let mut ledger = sample();
    for session in ledger.sessions.values_mut() {
        session.seen.extend([FIRST.slot, 4]);
    }
    ledger.forget(FIRST.slot);
    assert!(ledger.services.is_empty());
    assert!(ledger.sessions.values().all(|session| session.seen == [4]));
}

#[test]
fn rows_say_who_holds_what_since_when_and_where_to_go_on() {
    let mut ledger = sample();
    let mut kinds = Kinds::default();
    kinds
        .intern(1, Kind::default(), |_| false)
        .expect("the first");
    ledger.begin(9, 0, 0);
    ledger.hold(1, IDLE, 11, false, 0);
    assert_eq!(ledger.give_back(1, IDLE, 5, 0), GivenBack::Lendable);
    ledger.hold(2, FIRST, 11, false, 1_000);

    let (rows, next) = ledger.rows(&kinds, 0, 1, 3_500);
    assert_eq!((rows.len(), next), (1, 9));
    assert_eq!((rows[0].state, rows[0].holder), (ServiceState::Leased, 102));
    assert_eq!((rows[0].pid, rows[0].age_ms), (50, 2_500));
    let (rows, next) = ledger.rows(&kinds, next, 1, 3_500);
    assert_eq!(
        (rows[0].state, rows[0].holder, next),
        (ServiceState::Settling, 0, 0)
    );
}
