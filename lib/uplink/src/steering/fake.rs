//! A NIC that remembers its orders, and refuses on demand; tests try the treatment of a real NIC with it.

use super::hold::{give_back, take};
use super::{Steered, Taken};
use nfluid_netdev::{ANYWHERE, Flow, FlowTable};
use nfluid_switch::classifier::{Prefix, Rule};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;

struct FakeNic {
    queues: u32,
    on: Cell<bool>,
    places: Option<u32>,
    /// Queue by place.
    rules: RefCell<BTreeMap<u32, u32>>,
    spread: RefCell<Vec<u32>>,
    /// The insertion after this number of insertions fails with this error number.
    refuses: Option<(usize, i32)>,
    inserted: Cell<usize>,
    /// Number of changes that still succeed; all later ones fail.
    lives: Cell<usize>,
}

impl FakeNic {
    fn new(queues: u32, places: Option<u32>) -> Self {
        FakeNic {
            queues,
            on: Cell::new(false),
            places,
            rules: RefCell::default(),
            spread: RefCell::new((0..16).map(|i| i % queues).collect()),
            refuses: None,
            inserted: Cell::new(0),
            lives: Cell::new(usize::MAX),
        }
    }

    /// Makes a change, unless the caller is dead by now.
    fn live(&self) -> io::Result<()> {
        let rest = self.lives.get().checked_sub(1);
        self.lives
            .set(rest.ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))?);
        Ok(())
    }

    fn state(&self) -> (bool, BTreeMap<u32, u32>, Vec<u32>) {
        (
            self.on.get(),
            self.rules.borrow().clone(),
            self.spread.borrow().clone(),
        )
    }
}

impl FlowTable for FakeNic {
    fn queues(&self) -> io::Result<u32> {
        Ok(self.queues)
    }

    fn is_on(&self) -> io::Result<bool> {
        Ok(self.on.get())
    }

    fn switch(&self, on: bool) -> io::Result<()> {
        self.live()?;
        self.on.set(on);
        Ok(())
    }

    fn places(&self) -> io::Result<Option<u32>> {
        Ok(self.places)
    }

    fn rules(&self) -> io::Result<Vec<(u32, Option<u32>)>> {
        let rules = self.rules.borrow();
        Ok(rules.iter().map(|(at, to)| (*at, Some(*to))).collect())
    }

    fn insert(&self, flow: &Flow, queue: u32, place: u32) -> io::Result<()> {
        self.live()?;
        let before = self.inserted.replace(self.inserted.get() + 1);
        if let Some((after, number)) = self.refuses
            && before == after
        {
            return Err(io::Error::from_raw_os_error(number));
        }
        assert!(self.on.get(), "rules are obeyed only then");
        assert!(
            !self.spread.borrow().contains(&queue),
            "other frames would go to queue {queue}"
        );
        assert_eq!(Flow::queue_of(&flow.bytes(queue, place)), Some(queue));
        let mut rules = self.rules.borrow_mut();
        let place = match self.places {
            None => {
                assert_eq!(place, ANYWHERE);
                (0..).find(|at| !rules.contains_key(at)).expect("a place")
            }
            Some(places) => {
                assert!(place < places, "place {place} of {places}");
                place
            }
        };
        assert!(
            rules.insert(place, queue).is_none(),
            "a rule was overwritten"
        );
        Ok(())
    }

    fn remove(&self, place: u32) -> io::Result<()> {
        self.live()?;
        let removed = self.rules.borrow_mut().remove(&place);
        removed
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn spread(&self) -> io::Result<Vec<u32>> {
        Ok(self.spread.borrow().clone())
    }

    fn set_spread(&self, queues: &[u32]) -> io::Result<()> {
        self.live()?;
        queues.clone_into(&mut self.spread.borrow_mut());
        Ok(())
    }
}

/// `count` rules of one flow each, for ports 100, 101, ...
fn rules(count: u8) -> Vec<Rule> {
    let rule = |i: u8| Rule {
        dst: Some(Prefix {
            address: [10, 0, 0, i].into(),
            len: 32,
        }),
        to: Some(100 + u32::from(i)),
        ..Rule::default()
    };
    (0..count).map(rule).collect()
}

/// Also returns the record that was written last.
fn take_and_keep(nic: &FakeNic, rules: &[Rule]) -> (Result<Steered, String>, Taken) {
    let mut kept = Taken::default();
    let steered = take(nic, rules, &mut |taken| {
        kept = taken.clone();
        Ok(())
    });
    (steered, kept)
}

#[test]
fn flows_get_queues_of_their_own_and_all_is_as_before_when_they_are_given_back() {
    for places in [Some(64), None] {
        let nic = FakeNic::new(4, places);
        let before = nic.state();
        let (steered, taken) = take_and_keep(&nic, &rules(2));
        let steered = steered.expect("there is room");
        assert_eq!(steered.queues, [(3, 100), (2, 101)]);
        assert_eq!((steered.rules, steered.flows, steered.left), (2, 2, 0));
        assert!(
            nic.spread
                .borrow()
                .iter()
                .all(|queue| [0, 1].contains(queue))
        );
        give_back(&nic, &taken).expect("nothing refuses");
        assert_eq!(nic.state(), before);
    }
}

#[test]
fn where_queues_run_out_the_rest_is_left_and_one_queue_is_for_it() {
    let nic = FakeNic::new(4, Some(64));
    let (steered, taken) = take_and_keep(&nic, &rules(10));
    let steered = steered.expect("there is room");
    assert_eq!(steered.queues, [(3, 100), (2, 101), (1, 102)]);
    assert_eq!((steered.rules, steered.left), (3, 7));
    assert!(steered.why.contains("no queue left"), "{}", steered.why);
    assert!(nic.spread.borrow().iter().all(|queue| *queue == 0));
    assert_eq!(taken.queues.len(), 3);
}

// promise: 2.15
#[test]
fn where_the_table_is_full_the_rest_is_left() {
    let small = FakeNic::new(8, Some(3));
    // The number of a driver that has fewer places than it says.
    let mut lying = FakeNic::new(8, Some(64));
    lying.refuses = Some((3, libc::ENOSPC));
    for nic in [small, lying] {
        let (steered, taken) = take_and_keep(&nic, &rules(5));
        let steered = steered.expect("three are obeyed");
        assert_eq!((steered.rules, steered.left), (3, 2));
        give_back(&nic, &taken).expect("nothing refuses");
        assert!(nic.rules.borrow().is_empty());
    }
}

#[test]
fn a_rule_that_is_refused_is_left_and_the_others_are_obeyed() {
    let mut nic = FakeNic::new(8, Some(64));
    nic.refuses = Some((1, libc::EOPNOTSUPP));
    let (steered, _) = take_and_keep(&nic, &rules(4));
    let steered = steered.expect("three are obeyed");
    assert_eq!((steered.rules, steered.left), (3, 1));
    assert!(steered.why.contains("refuses a rule"), "{}", steered.why);
}

#[test]
fn rules_and_queues_of_other_parties_are_left_alone() {
    let nic = FakeNic::new(4, Some(64));
    nic.on.set(true);
    nic.rules.borrow_mut().extend([(0, 3), (5, 0)]);
    let before = nic.state();
    let (steered, taken) = take_and_keep(&nic, &rules(3));
    let steered = steered.expect("there is room");
    assert_eq!(steered.queues, [(2, 100), (1, 101)]);
    give_back(&nic, &taken).expect("nothing refuses");
    assert_eq!(nic.state(), before);
}

/// The record is written before each step: a crash after any of them leaves what undoes it.
// promise: 2.15
#[test]
fn after_a_crash_at_any_step_what_was_written_down_undoes_all() {
    for steps in 0..8 {
        let nic = FakeNic::new(8, Some(64));
        let before = nic.state();
        nic.lives.set(steps);
        let (_, taken) = take_and_keep(&nic, &rules(4));
        nic.lives.set(usize::MAX);
        // The record as a later process reads it.
        let text = serde_json::to_string(&taken).expect("a record");
        let found: Taken = serde_json::from_str(&text).expect("a record");
        give_back(&nic, &found).expect("nothing refuses");
        assert_eq!(nic.state(), before, "after {steps} steps");
    }
}

#[test]
fn nothing_is_done_that_could_not_be_written_down() {
    let nic = FakeNic::new(8, Some(64));
    let before = nic.state();
    let refused = take(&nic, &rules(2), &mut |_| Err("no disk".to_owned()));
    assert_eq!(refused, Err("no disk".to_owned()));
    assert_eq!(nic.state(), before);
}

#[test]
fn a_single_queue_steers_nothing() {
    let nic = FakeNic::new(1, Some(64));
    let (refused, taken) = take_and_keep(&nic, &rules(2));
    assert!(refused.is_err_and(|why| why.contains("1 receive queue")));
    assert_eq!(taken, Taken::default());
}
