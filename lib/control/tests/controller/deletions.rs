//! Objects that are deleted.

use super::{BASE, assert_consistent, controller, delete};
use nfluid_api::types::{DeleteRequest, Kind};
use nfluid_control::inventory::Inventory;

#[test]
fn instances_outside_of_the_deployment_have_an_error_of_their_own() {
    let mut controller = controller(BASE);
    for (name, wanted) in [
        ("t@10-0-0-7", "template 't'"),
        ("t@10-0-0-7@2", "template 't'"),
        ("fw@r1", "nfluid scale fw N"),
        ("nobody", "there is no instance 'nobody'"),
    ] {
        let refused = delete(&mut controller, Kind::Instance, name).expect_err("not there");
        let words = format!("{}; {}", refused.detail, refused.remedy);
        assert!(words.contains(wanted), "{words}");
        assert_eq!(refused.status, 404);
    }
}

#[test]
fn deleting_what_others_use_is_refused() {
    let mut controller = controller(BASE);
    let problem = delete(&mut controller, Kind::Instance, "fw").expect_err("web uses it");
    assert_eq!(problem.status, 422);
    assert!(
        problem.to_string().contains("chains.web.via[0]"),
        "{problem}"
    );
    delete(&mut controller, Kind::Chain, "web").expect("nothing uses it");
    delete(&mut controller, Kind::Instance, "fw").expect("nothing uses it now");
    assert_eq!(
        delete(&mut controller, Kind::Instance, "fw")
            .expect_err("gone")
            .status,
        404
    );
    assert_eq!(
        delete(&mut controller, Kind::Port, "nat.in")
            .expect_err("no object")
            .status,
        400
    );
    assert_consistent(&mut controller);
}

#[test]
fn everything_or_all_of_a_file_can_be_deleted() {
    let mut first = controller(BASE);
    let response = first.delete(&DeleteRequest {
        text: Some(BASE.into()),
        ..DeleteRequest::default()
    });
    assert_eq!(response.expect("right").changes.len(), 5);
    assert_eq!(first.platform().inventory, Inventory::default());
    let mut second = controller(BASE);
    let everything = DeleteRequest {
        everything: true,
        ..DeleteRequest::default()
    };
    second.delete(&everything).expect("right");
    assert_eq!(second.platform().inventory, Inventory::default());
    assert!(
        second
            .delete(&everything)
            .expect("right")
            .changes
            .is_empty()
    );
}
