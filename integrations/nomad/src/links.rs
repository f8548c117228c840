//! Links as a task writes them: `.PORT` is its own port, `@TASK.PORT` that of another task of the same allocation, and everything else is a
//! port or an uplink of the host.

use crate::tasks::Tasks;
use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::ApplyRequest;
use serde_json::json;

/// A link to another task of the allocation, which is made when both instances exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish([String; 2]);

impl Wish {
    /// Divides the links of the instance `name` into those to other tasks and the others.
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

    /// Returns the link; `None` while another task has no instance.
    fn resolve(&self, find: impl Fn(&str) -> Option<String>) -> Option<[String; 2]> {
        let end = |end: &String| match end.strip_prefix('@').and_then(|end| end.split_once('.')) {
            Some((task, port)) => Some(format!("{}.{port}", find(task)?)),
            None => Some(end.clone()),
        };
        Some([end(&self.0[0])?, end(&self.0[1])?])
    }
}

/// Makes the links between the tasks of an allocation that have instances now.
///
/// # Errors
/// The daemon refuses a link, or does not answer.
pub async fn connect(client: &Client, tasks: &Tasks, alloc_id: &str) -> Result<(), ClientError> {
    let all = tasks.of_allocation(alloc_id);
    let find = |name: &str| {
        let mut all = all.iter();
        all.find(|task| task.config.name == name)
            .map(|task| task.name.clone())
    };
    let wishes = all.iter().flat_map(|task| &task.wishes);
    let links: Vec<_> = wishes.filter_map(|wish| wish.resolve(find)).collect();
    if links.is_empty() {
        return Ok(());
    }
    let request = ApplyRequest {
        text: json!({ "version": 1, "links": links }).to_string(),
        merge: true,
        ..ApplyRequest::default()
    };
    client.apply(&request).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(a: &str, b: &str) -> [String; 2] {
        [a.to_owned(), b.to_owned()]
    }

    #[test]
    fn ends_are_ones_own_another_tasks_or_the_hosts() {
        let links = vec![
            link("lan", ".in"),
            link(".out", "@nat.in"),
            link("@a.x", "@b.y"),
        ];
        let (wishes, links) = Wish::divide("fw-1", links);
        assert_eq!(links, [link("lan", "fw-1.in")]);
        let known = |task: &str| (task != "b").then(|| format!("{task}-1"));
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
