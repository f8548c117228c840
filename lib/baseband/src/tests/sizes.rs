//! Sizes of users and cells.

use crate::front_end::FrontEnd;
use crate::size::{Allocation, Cell, LAYERS, SizeError};

// promise: 30.5
#[test]
fn only_products_of_2_3_and_5_are_sizes() {
    assert_eq!(Allocation::new(0, 7), Err(SizeError::Illegal(7)));
    assert_eq!(Allocation::new(0, 22), Err(SizeError::Illegal(22)));
    assert_eq!(Allocation::new(0, 2), Err(SizeError::Range(2)));
    assert_eq!(Allocation::new(98, 3), Err(SizeError::Range(3)));
    assert_eq!(Allocation::new(usize::MAX, 3), Err(SizeError::Range(3)));
    let user = Allocation::new(3, 3).unwrap();
    assert_eq!(
        (user.begin(), user.width(), user.coded_bits()),
        (36, 36, 2592)
    );
}

// promise: 30.5
#[test]
fn a_cells_users_fit_into_it() {
    assert_eq!(
        Cell::new(25, &[3, 3, 3, 3, 3, 3, 3, 4]).unwrap(),
        Cell::literature()
    );
    let wrong = SizeError::Cell {
        users: 26,
        cell: 25,
    };
    assert_eq!(Cell::new(25, &[25, 1]), Err(wrong));
    assert!(Cell::new(101, &[3]).is_err());
    assert!(Cell::new(100, &[usize::MAX, usize::MAX]).is_err());
    let bits: usize = Cell::literature()
        .users()
        .iter()
        .map(|user| user.coded_bits())
        .sum();
    assert_eq!(bits * LAYERS, 86_400);
}

// promise: 30.5
#[test]
fn a_front_ends_transform_is_a_power_of_two_that_holds_its_subcarriers() {
    for (size, subcarriers) in [(0, 0), (64, 36), (500, 300), (4096, 300), (512, 513)] {
        let refused = FrontEnd::new(size, subcarriers).err();
        assert_eq!(refused, Some(SizeError::Transform { size, subcarriers }));
    }
    assert!(FrontEnd::new(2048, 1200).is_ok());
}
