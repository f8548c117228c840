//! The clients that have an instance on demand, and the counters of the clients that asked for an instance.

use crate::host::ClientPorts;
use nfluid_api::types::TemplateStatus;
use nfluid_control::model::Deployment;
use nfluid_control::template::Template;
use nfluid_switch::client::Client;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// The reason why a client's frame is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The template has as many clients as its limit allows.
    ClientLimit,
    /// The template has created as many instances within the last second as its limit allows.
    PerSecond,
    /// The host's memory is short.
    Memory,
    /// The instance could not be made.
    Failed,
    /// The instance's ring had no room for the frame.
    RingFull,
    /// Too many frames wait already for instances.
    Waiting,
    /// The template was removed meanwhile.
    Gone,
}

impl Refusal {
    /// Returns the label in metrics and tables.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::ClientLimit => "most",
            Refusal::PerSecond => "per_second",
            Refusal::Memory => "memory",
            Refusal::Failed => "failed",
            Refusal::RingFull => "ring_full",
            Refusal::Waiting => "waiting",
            Refusal::Gone => "gone",
        }
    }
}

/// The state of a client that has an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// The client's frames go to the instance.
    Served,
    /// The client's frames wait while the daemon finds out whether the client is silent. Afterwards they go to this
    /// instance or to another.
    Suspended,
    /// The instance is being ended.
    Ending,
}

/// A client that has an instance.
#[derive(Clone, Debug)]
pub struct ClientInstance {
    /// The instance.
    pub instance: String,
    /// The template.
    pub template: String,
    /// Its two ports.
    pub ports: ClientPorts,
    pub state: ClientState,
    /// Frames that the instance's ports had received at the last look.
    pub received: u64,
    /// Time at which that number last changed.
    pub since: Instant,
}

/// Tokens for the creation of instances: a bucket with room for one second.
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

/// The counters of a template's clients.
#[derive(Debug, Default)]
struct TemplateCounters {
    bucket: Option<Bucket>,
    clients: u32,
    made: u64,
    ended: u64,
    refused: BTreeMap<Refusal, u64>,
}

/// The clients that have an instance. There are at most as many as all templates together may have.
#[derive(Debug, Default)]
pub struct ClientTable {
    instances: HashMap<Client, ClientInstance>,
    counters: BTreeMap<String, TemplateCounters>,
}

impl ClientTable {
    pub fn get(&self, client: &Client) -> Option<&ClientInstance> {
        self.instances.get(client)
    }

    pub fn instances(&mut self) -> impl Iterator<Item = (&Client, &mut ClientInstance)> {
        self.instances.iter_mut()
    }

    /// Checks that `more` clients beside the present ones, and the creation of one instance now, are within the
    /// template's limits.
    ///
    /// # Errors
    /// Returns the limit that would be exceeded.
    pub fn admit(
        &mut self,
        name: &str,
        template: &Template,
        more: u32,
        now: Instant,
    ) -> Result<(), Refusal> {
        let counts = self.counters.entry(name.to_owned()).or_default();
        if counts.clients + more >= template.most {
            return Err(Refusal::ClientLimit);
        }
        let rate = template.per_second;
        let fresh = || Bucket::new(now, rate);
        let bucket = counts.bucket.get_or_insert_with(fresh);
        if bucket.take(now, rate) {
            Ok(())
        } else {
            Err(Refusal::PerSecond)
        }
    }

    /// Adds a client whose instance was created.
    pub fn insert(&mut self, client: Client, served: ClientInstance) {
        let counts = self.counters.entry(served.template.clone()).or_default();
        counts.made += 1;
        counts.clients += 1;
        if let Some(before) = self.instances.insert(client, served) {
            self.count_ended(&before);
        }
    }

    /// Removes a client whose instance is gone.
    pub fn remove(&mut self, client: &Client) {
        if let Some(served) = self.instances.remove(client) {
            self.count_ended(&served);
        }
    }

    fn count_ended(&mut self, served: &ClientInstance) {
        if let Some(counts) = self.counters.get_mut(&served.template) {
            counts.ended += 1;
            counts.clients = counts.clients.saturating_sub(1);
        }
    }

    /// Counts refused frames.
    pub fn refuse(&mut self, template: &str, why: Refusal, frames: u64) {
        let counts = self.counters.entry(template.to_owned()).or_default();
        *counts.refused.entry(why).or_default() += frames;
    }

    /// Returns the state of every template of a deployment. Other templates are forgotten when they have no clients.
    pub fn statuses(&mut self, deployment: &Deployment) -> Vec<TemplateStatus> {
        self.counters
            .retain(|name, counts| counts.clients > 0 || deployment.templates.contains(name));
        let nothing = TemplateCounters::default();
        let status = |(name, template): (&str, &Template)| {
            let counts = self.counters.get(name).unwrap_or(&nothing);
            let refused = counts.refused.iter();
            TemplateStatus {
                name: name.to_owned(),
                from: template.from.to_string(),
                to: template.to.to_string(),
                clients: counts.clients,
                most: template.most,
                per_second: template.per_second,
                made: counts.made,
                ended: counts.ended,
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
