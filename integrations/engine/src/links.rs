//! Links as an engine's object writes them: `.PORT` is its own port, `@OTHER.PORT` that of another member of the same group (a task of the
//! same allocation, a container of the same pod), and everything else is a port or an uplink of the host.

/// A link to another member of the group, which is made when both instances exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish([String; 2]);

impl Wish {
    /// Divides the links of the instance `name` into those to other members and the others.
    pub fn divide(name: &str, links: Vec<[String; 2]>) -> (Vec<Wish>, Vec<[String; 2]>) {
        let own = |end: String| match end.strip_prefix('.') {
            Some(port) => format!("{name}.{port}"),
            None => end,
        };
        let links = links.into_iter().map(|link| link.map(own));
        let (wishes, links): (Vec<_>, Vec<_>) =
            links.partition(|link| link.iter().any(|end| end.starts_with('@')));
        (wishes.into_iter().map(Wish).collect(), links)
    }

    /// Returns the link, given the instances of the other members; `None` while one of them has no instance.
    pub fn resolve(&self, find: impl Fn(&str) -> Option<String>) -> Option<[String; 2]> {
        let end = |end: &String| match end.strip_prefix('@').and_then(|end| end.split_once('.')) {
            Some((member, port)) => Some(format!("{}.{port}", find(member)?)),
            None => Some(end.clone()),
        };
        Some([end(&self.0[0])?, end(&self.0[1])?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(a: &str, b: &str) -> [String; 2] {
        [a.to_owned(), b.to_owned()]
    }

    #[test]
    fn ends_are_ones_own_another_members_or_the_hosts() {
        let links = vec![
            link("lan", ".in"),
            link(".out", "@nat.in"),
            link("@a.x", "@b.y"),
        ];
        let (wishes, links) = Wish::divide("fw-1", links);
        assert_eq!(links, [link("lan", "fw-1.in")]);
        let known = |member: &str| (member != "b").then(|| format!("{member}-1"));
        let found: Vec<_> = wishes.iter().map(|wish| wish.resolve(known)).collect();
        assert_eq!(found, [Some(link("fw-1.out", "nat-1.in")), None]);
        let without_port = Wish(link("@nat", "x"));
        assert_eq!(
            without_port.resolve(known),
            Some(link("@nat", "x")),
            "the daemon says what is wrong"
        );
    }
}
