//! Queues of ports: frames that the NIC has classified are not classified again.

use super::*;

/// The veth's other end does a NIC's work here, by the queue on which it sends.
// promise: 2.15
#[test]
fn what_comes_in_on_a_ports_own_queue_is_not_classified_and_the_rest_is() {
    const QUEUES: usize = 4;
    let Some(mut sorting) = Sorting::with_queues("queues", 2, QUEUES) else {
        return;
    };
    let rule = |i: usize, to| Rule {
        src: prefix(&format!("10.{i}.0.0/16")),
        to,
        ..Rule::default()
    };
    sorting.set(&[rule(0, sorting.to(0)), rule(1, sorting.to(1))]);
    let from = |i: u8| {
        let src = [10, i, 7, 7];
        Ipv4 {
            src,
            ..Ipv4::default()
        }
        .frame()
    };
    let uplink = sorting.spec.port;
    let second = sorting.to(1).expect("it is there");
    for queue in 0..QUEUES {
        sorting.choose_queue(queue, QUEUES);
        assert_eq!(sorting.goes_to(&from(0)), Some(0), "queue {queue}");
    }
    let switch = |sorting: &Sorting, owners: &[(u32, u32)]| {
        let switch = &sorting.fixture.scratch.switch;
        switch.set_queues(uplink, owners).expect("queues");
    };
    let steered = |sorting: &Sorting| sorting.fixture.scratch.switch.steered_frames(uplink);
    assert_eq!(steered(&sorting), 0);

    // The last queue is the second port's: whatever comes there is.
    switch(&sorting, &[(3, second)]);
    assert_eq!(sorting.goes_to(&from(0)), Some(1));
    assert_eq!(sorting.goes_to(&from(9)), Some(1));
    assert_eq!(steered(&sorting), 2);
    // The others are classified.
    sorting.choose_queue(2, QUEUES);
    assert_eq!(sorting.goes_to(&from(0)), Some(0));
    assert_eq!(sorting.goes_to(&from(1)), Some(1));
    assert_eq!(sorting.goes_to(&from(9)), None);
    assert_eq!(steered(&sorting), 2);

    // Another port's queue, and a queue of no port.
    sorting.choose_queue(3, QUEUES);
    let first = sorting.to(0).expect("it is there");
    switch(&sorting, &[(3, first)]);
    assert_eq!(sorting.goes_to(&from(1)), Some(0));
    switch(&sorting, &[]);
    switch(&sorting, &[]);
    assert_eq!(sorting.goes_to(&from(1)), Some(1));

    // A queue counts for what is classified only: a link leads where it leads.
    switch(&sorting, &[(3, first)]);
    let link = Destination::Link(second);
    let connected = sorting.fixture.scratch.switch.connect(uplink, link);
    connected.expect("connect");
    assert_eq!(sorting.goes_to(&from(0)), Some(1));
}

// promise: 2.15
#[test]
fn an_interface_that_steers_nothing_is_refused_and_its_frames_are_classified() {
    let Some(mut sorting) = Sorting::with_queues("steer", 1, 2) else {
        return;
    };
    let rule = Rule {
        src: prefix("10.0.0.0/8"),
        to: sorting.to(0),
        ..Rule::default()
    };
    sorting.set(std::slice::from_ref(&rule));
    let refused = sorting.uplink.steer(vec![rule]).expect_err("it is a veth");
    assert!(
        refused.to_string().contains("steering: xdp"),
        "the alternative is named: {refused}"
    );
    assert_eq!(sorting.goes_to(&Ipv4::default().frame()), Some(0));
    let left = sorting.uplink.status().steering.expect("it was asked to");
    assert_eq!((left.rules, left.left), (0, 1));
    sorting.uplink.steer(Vec::new()).expect("nothing to steer");
    assert_eq!(sorting.uplink.status().steering, None);
    let switch = &sorting.fixture.scratch.switch;
    let error = switch.set_queues(sorting.spec.port, &[(256, 1)]);
    assert!(error.is_err_and(|error| error.to_string().contains("queue 256")));
}
