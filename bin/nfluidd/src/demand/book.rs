//! Who has an instance on demand, and what became of those who asked for one.

use crate::host::ClientPorts;
use nfluid_api::types::TemplateStatus;
use nfluid_control::model::Deployment;
use nfluid_control::template::Template;
use nfluid_switch::client::Client;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// Why a client's frame is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The template has as many clients as it may.
    Most,
    /// As many instances were made within the last second as may be.
    PerSecond,
    /// The host's memory is short.
    Memory,
    /// The instance could not be made.
    Failed,
    /// The instance had no room for it.
    RingFull,
    /// Too many frames wait already.
    Waiting,
    /// The template was removed meanwhile.
    Gone,
}

impl Refusal {
    /// The label in metrics and tables.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Most => "most",
            Refusal::PerSecond => "per_second",
            Refusal::Memory => "memory",
            Refusal::Failed => "failed",
            Refusal::RingFull => "ring_full",
            Refusal::Waiting => "waiting",
            Refusal::Gone => "gone",
        }
    }
}

/// How it stands with a client that has an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// Its frames go there.
    Here,
    /// Its frames wait, and will go there or to another: it is being found out whether it is silent.
    Leaving,
    /// The instance is being ended.
    Ending,
}

/// A client that has an instance.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The instance.
    pub instance: String,
    /// The template.
    pub template: String,
    /// Its two ports.
    pub ports: ClientPorts,
    pub stay: Stay,
    /// Frames that its ports had got when it was looked at last.
    pub heard: u64,
    /// When that number changed last.
    pub since: Instant,
}

/// Tokens for instances to be made (a bucket with room for a second).
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn new(now: Instant, per_second: u32) -> Self {
        Bucket {
            tokens: f64::from(per_second),
            filled: now,
        }
    }

    fn take(&mut self, now: Instant, per_second: u32) -> bool {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        let rate = f64::from(per_second);
        self.tokens = (self.tokens + passed * rate).min(rate);
        self.filled = now;
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }
}

/// What became of a template's clients.
#[derive(Debug, Default)]
struct Account {
    bucket: Option<Bucket>,
    clients: u32,
    made: u64,
    ended: u64,
    refused: BTreeMap<Refusal, u64>,
}

/// Who is there. It has at most as many clients as all templates together may have.
#[derive(Debug, Default)]
pub struct Book {
    seats: HashMap<Client, Seat>,
    accounts: BTreeMap<String, Account>,
}

impl Book {
    pub fn seat(&self, client: &Client) -> Option<&Seat> {
        self.seats.get(client)
    }

    pub fn seats(&mut self) -> impl Iterator<Item = (&Client, &mut Seat)> {
        self.seats.iter_mut()
    }

    /// Whether `more` clients beside those that are there, and one instance made now, are within the template's limits.
    ///
    /// # Errors
    /// The limit.
    pub fn ask(
        &mut self,
        name: &str,
        template: &Template,
        more: u32,
        now: Instant,
    ) -> Result<(), Refusal> {
        let account = self.accounts.entry(name.to_owned()).or_default();
        if account.clients + more >= template.most {
            return Err(Refusal::Most);
        }
        let rate = template.per_second;
        let fresh = || Bucket::new(now, rate);
        let bucket = account.bucket.get_or_insert_with(fresh);
        if bucket.take(now, rate) {
            Ok(())
        } else {
            Err(Refusal::PerSecond)
        }
    }

    /// Enters a client whose instance was made.
    pub fn enter(&mut self, client: Client, seat: Seat) {
        let account = self.accounts.entry(seat.template.clone()).or_default();
        account.made += 1;
        account.clients += 1;
        if let Some(before) = self.seats.insert(client, seat) {
            self.count_ended(&before);
        }
    }

    /// Strikes a client out whose instance is gone.
    pub fn strike(&mut self, client: &Client) {
        if let Some(seat) = self.seats.remove(client) {
            self.count_ended(&seat);
        }
    }

    fn count_ended(&mut self, seat: &Seat) {
        if let Some(account) = self.accounts.get_mut(&seat.template) {
            account.ended += 1;
            account.clients = account.clients.saturating_sub(1);
        }
    }

    /// Counts refused frames.
    pub fn refuse(&mut self, template: &str, why: Refusal, frames: u64) {
        let account = self.accounts.entry(template.to_owned()).or_default();
        *account.refused.entry(why).or_default() += frames;
    }

    /// How it stands with every template of a deployment; others are forgotten when they have no clients.
    pub fn statuses(&mut self, deployment: &Deployment) -> Vec<TemplateStatus> {
        self.accounts
            .retain(|name, account| account.clients > 0 || deployment.templates.contains(name));
        let nothing = Account::default();
        let status = |(name, template): (&str, &Template)| {
            let account = self.accounts.get(name).unwrap_or(&nothing);
            let refused = account.refused.iter();
            TemplateStatus {
                name: name.to_owned(),
                from: template.from.to_string(),
                to: template.to.to_string(),
                clients: account.clients,
                most: template.most,
                per_second: template.per_second,
                made: account.made,
                ended: account.ended,
                refused: refused
                    .map(|(why, frames)| (why.name().to_owned(), *frames))
                    .collect(),
            }
        };
        deployment.templates.iter().map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Bucket;
    use std::time::{Duration, Instant};

    #[test]
    fn a_bucket_gives_as_many_as_it_is_filled_with() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start, 10);
        let mut taken = 0;
        for ms in 0..3000u64 {
            let now = start + Duration::from_millis(ms);
            while bucket.take(now, 10) {
                taken += 1;
            }
        }
        assert!(
            (38..=40).contains(&taken),
            "{taken}: a second's worth at once, then ten per second"
        );
    }
}
