//! Rules behind which each client has an instance of its own.

use super::*;

/// Rules behind which each client has a port of its own, among so many others that the flow cache is used or is not.
fn client_rules(by: ClientBy, others: u8) -> Vec<Rule> {
    let other = |i: u8| Rule {
        dst: prefix(&format!("203.0.113.{i}/32")),
        ..Rule::default()
    };
    let clients = |back| Rule {
        vlan: if back {
            VlanMatch::Any
        } else {
            VlanMatch::Id(7)
        },
        clients: Some(ClientRule {
            template: 5,
            by,
            back,
        }),
        ..Rule::default()
    };
    let others = (0..others).map(other);
    others.chain([clients(false), clients(true)]).collect()
}

// promise: 5.30
#[test]
fn a_frame_of_an_unknown_client_waits_and_that_of_a_known_one_goes_to_its_port() {
    let Some(mut sorting) = Sorting::new("clients", 2, false) else {
        return;
    };
    let arrivals = sorting.fixture.scratch.switch.arrivals().expect("a reader");
    let from = Ipv4::default();
    let own = |tag: bool| {
        let tags: &[(u16, u16)] = if tag { &[(0x8100, 7)] } else { &[] };
        ethernet(tags, 0x0800, &from.packet())
    };
    let cases = [
        (ClientBy::Address, ClientId::Address(from.src.into())),
        (ClientBy::Mac, ClientId::Mac(SRC)),
        (ClientBy::Vlan, ClientId::Vlan(7)),
    ];
    for ((by, id), others) in cases.into_iter().flat_map(|case| [(case, 0), (case, 9)]) {
        sorting.set(&client_rules(by, others));
        assert_eq!(sorting.goes_to(&own(true)), None, "{id}: it waits");
        let waiting = arrivals.take(PATIENCE, 8).expect("frames");
        assert_eq!(waiting.len(), 1, "{id}");
        let client = waiting[0].client(by).expect("a client");
        assert_eq!((client.id, client.template), (id, 5));
        assert_eq!(waiting[0].frame, own(true));
        assert_eq!(waiting[0].uplink, sorting.spec.port);
        assert_eq!(sorting.goes_to(&own(false)), None, "{id}: no way back");
        let (entry, back) = (sorting.to(0).expect("a port"), sorting.to(1).expect("one"));
        let switch = &sorting.fixture.scratch.switch;
        switch.set_client(&client, entry, back).expect("entered");
        let answered = match id {
            ClientId::Address(_) => Ipv4 {
                src: from.dst,
                dst: from.src,
                ..Ipv4::default()
            }
            .frame(),
            ClientId::Mac(mac) => [&mac[..], &DST[..], &own(false)[12..]].concat(),
            ClientId::Vlan(_) => own(true),
        };
        assert_eq!(sorting.goes_to(&own(true)), Some(0), "{id}");
        if by != ClientBy::Vlan {
            assert_eq!(sorting.goes_to(&answered), Some(1), "{id}: the way back");
        }
        let switch = &sorting.fixture.scratch.switch;
        switch.suspend_client(&client, back).expect("suspended");
        switch.await_programs().expect("a grace period");
        assert_eq!(sorting.goes_to(&own(true)), None, "{id}: it waits");
        assert_eq!(arrivals.take(PATIENCE, 8).expect("frames").len(), 1);
        if by != ClientBy::Vlan {
            assert_eq!(
                sorting.goes_to(&answered),
                Some(1),
                "{id}: still a way back"
            );
        }
        let switch = &sorting.fixture.scratch.switch;
        switch.remove_client(&client).expect("removed");
        switch.await_programs().expect("a grace period");
        assert_eq!(sorting.goes_to(&own(true)), None, "{id}: it waits again");
        assert_eq!(arrivals.take(PATIENCE, 8).expect("frames").len(), 1);
    }
}

// promise: 5.32
#[test]
fn what_finds_no_room_to_wait_is_dropped_and_counted() {
    let Some(mut sorting) = Sorting::new("waiting", 1, false) else {
        return;
    };
    sorting.set(&client_rules(ClientBy::Address, 0));
    let frame = ethernet(&[(0x8100, 7)], 0x0800, &Ipv4::default().packet());
    let mut sent = 0;
    let dropped = |sorting: &Sorting| {
        let counters = sorting.fixture.scratch.switch.counters(sorting.spec.port);
        counters.dropped(DropReason::Client)
    };
    while dropped(&sorting) < 10 {
        sorting.comes_in(&frame);
        sent += 1;
        assert!(sent < 2000, "the room has no end");
    }
    assert_eq!(sorting.arrived(&frame), None);
    let arrivals = sorting.fixture.scratch.switch.arrivals().expect("a reader");
    let mut waited = 0;
    loop {
        let some = arrivals.take(Duration::ZERO, 100).expect("frames").len() as u64;
        if some == 0 {
            break;
        }
        waited += some;
    }
    assert_eq!(
        waited + dropped(&sorting),
        sent,
        "each waited or was dropped"
    );
}
