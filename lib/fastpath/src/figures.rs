//! Packet counts of fast paths per exit, by name.

use nfluid_evnf::load::Counts;
use std::fmt::Debug;

/// Packet counts: verdict, name of the exit, count.
pub type Exits = Vec<(&'static str, String, Counts)>;

/// Names exits in snake case.
pub fn named<E: Copy + Debug>(exits: Vec<(E, Counts)>, verdict: fn(E) -> &'static str) -> Exits {
    let exits = exits.into_iter();
    exits
        .map(|(exit, counts)| {
            // The exit that drops packets by a rule is named after the rule.
            let name = match snake_case(&format!("{exit:?}")).as_str() {
                "drop" => "rule".to_owned(),
                name => name.to_owned(),
            };
            (verdict(exit), name, counts)
        })
        .collect()
}

/// `NoRoute` as `no_route`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_evnf::balancer;

    #[test]
    fn exits_are_named_as_everything_else_is() {
        assert_eq!(snake_case("NoRoute"), "no_route");
        assert_eq!(snake_case("Ttl"), "ttl");
        let names: Vec<String> = balancer::Exit::ALL
            .iter()
            .map(|exit| snake_case(&format!("{exit:?}")))
            .collect();
        assert!(names.contains(&"no_server".to_owned()), "{names:?}");
    }
}
