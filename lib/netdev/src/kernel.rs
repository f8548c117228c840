//! The version of the running kernel, where nothing else says what it can.

/// Returns true if the running kernel is of this version or a later one.
pub fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let system = rustix::system::uname();
    of_release(&system.release().to_string_lossy()) >= (major, minor)
}

fn of_release(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::of_release;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(of_release("6.1.0-56-cloud-amd64"), (6, 1));
        assert_eq!(of_release("6.12"), (6, 12));
        assert!(of_release("6.12.3") > of_release("6.6.1"));
        assert_eq!(of_release("unknown"), (0, 0));
    }
}
