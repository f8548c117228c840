//! Links between the tasks of an allocation.

use crate::tasks::Tasks;
use nfluid_api::client::{Client, ClientError};
use nfluid_engine::requests::merge;
use serde_json::json;

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
    merge(client, &json!({ "version": 1, "links": links })).await
}
