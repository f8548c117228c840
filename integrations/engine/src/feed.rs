//! The daemon's events, for as long as the driver runs. An event only says where to look: what has become of an instance is what the
//! daemon says of it.

use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::Event;
use std::time::Duration;

/// Maximum time that the daemon lets a request for events wait.
const WAIT: Duration = Duration::from_secs(30);

/// A position behind all events: the answer has none, and says where the next one will be.
const LAST: u64 = i64::MAX as u64;

/// An answer of the daemon about its events.
#[derive(Debug)]
pub enum News {
    /// The daemon answers, for the first time or again: everything may have changed.
    Begun,
    /// The next events; none if nothing happened while the request waited.
    Events {
        /// The events, oldest first.
        events: Vec<Event>,
        /// True if there were more, which the daemon no longer has: everything may have changed.
        has_gap: bool,
    },
}

/// A reader of the daemon's events.
#[derive(Debug)]
pub struct Feed {
    client: Client,
    since: Option<u64>,
}

impl Feed {
    /// Creates a reader that has read nothing.
    pub fn new(client: Client) -> Self {
        Feed {
            client,
            since: None,
        }
    }

    /// Waits for news.
    ///
    /// # Errors
    /// The daemon does not answer. The next news will be [`News::Begun`].
    pub async fn next(&mut self) -> Result<News, ClientError> {
        let Some(since) = self.since.take() else {
            let newest = self.client.events(LAST, Duration::ZERO).await?;
            self.since = Some(newest.next);
            return Ok(News::Begun);
        };
        let page = self.client.events(since, WAIT).await?;
        self.since = Some(page.next);
        Ok(News::Events {
            events: page.events,
            has_gap: page.missed > 0,
        })
    }

    /// Forgets the position: the next news will be [`News::Begun`].
    pub fn begin_again(&mut self) {
        self.since = None;
    }
}
