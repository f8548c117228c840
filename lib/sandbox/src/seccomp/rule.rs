//! Form of the tables of allowed calls.

/// A system call and on which conditions it is allowed.
pub(super) struct Allowed {
    pub number: i64,
    pub when: When,
    /// The reason for which a network function needs the call. For the reader of the table; tests check that there is
    /// a reason.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "documentation that tests enforce")
    )]
    pub why: &'static str,
}

/// The conditions.
#[derive(Clone, Copy)]
pub(super) enum When {
    /// Whatever the arguments are.
    Always,
    /// If all tests of any of the alternatives hold.
    AnyOf(&'static [&'static [Test]]),
}

/// A test of one argument.
#[derive(Clone, Copy)]
pub(super) struct Test {
    /// 0 to 5.
    pub argument: u8,
    /// Which bits count; all of them for a plain comparison.
    pub mask: u64,
    pub value: u64,
    /// True if the kernel takes 64 bits of the argument, false if it takes an `int`.
    pub wide: bool,
}

/// The `int` argument is `value`.
pub(super) const fn is(argument: u8, value: u64) -> Test {
    Test {
        argument,
        mask: u32::MAX as u64,
        value,
        wide: false,
    }
}

/// The `int` argument has, of the bits in `mask`, exactly those of `value`.
pub(super) const fn bits(argument: u8, mask: u64, value: u64) -> Test {
    Test {
        argument,
        mask,
        value,
        wide: false,
    }
}

/// The `long` argument has, of the bits in `mask`, exactly those of `value`.
pub(super) const fn long_bits(argument: u8, mask: u64, value: u64) -> Test {
    Test {
        argument,
        mask,
        value,
        wide: true,
    }
}

/// The pointer argument is NULL.
pub(super) const fn null(argument: u8) -> Test {
    long_bits(argument, u64::MAX, 0)
}
