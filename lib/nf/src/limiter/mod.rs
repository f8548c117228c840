//! Limiter: token buckets, RFC 2697 (one rate, three colours) and RFC 2698 (two rates), per
//! direction and, if asked, per address prefix.

mod bucket;
mod config;
mod marking;
mod meter;
mod metrics;
mod stateful;
#[cfg(test)]
mod tests;

use crate::function::{CommandError, ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use crate::stateful::Stateful;
use crate::traffic::OnWire;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use bucket::Colour;
use config::{Config, Yellow};
use meter::Meter;
use metrics::Counters;
use nfluid_ring::{Batch, Outbox};
use nfluid_wire::PacketMeta;
use serde_json::{Value, json};

/// An instance of the limiter.
#[derive(Debug)]
pub struct Limiter {
    /// By arrival port; `None`: no limit.
    meters: [Option<Meter>; 2],
    yellow: [Yellow; 2],
    counters: Counters,
}

/// Builds a limiter between two ports.
///
/// # Errors
/// A rate or burst that makes no sense, with its key.
pub fn build(config: &Value, ports: &[PortInfo]) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    let config = Config::parse(config, ports)?;
    Ok(Box::new(Limiter {
        yellow: config.yellow(),
        meters: config.meters(ports),
        counters: Counters::new(ports),
    }))
}

impl NetworkFunction for Limiter {
    fn process(&mut self, now: Nanos, batch: &mut Batch<'_, '_>) {
        for frame in batch.frames() {
            let from = frame.in_port() & 1;
            let direction = usize::from(from);
            // The address by which a frame is limited must be the one that it has on a wire.
            let is_settled = frame.settle().is_ok();
            let meta = PacketMeta::parse_l3(frame.bytes()).ok();
            let meta = meta.filter(|_| is_settled);
            let on_wire = OnWire::of(frame);
            let colour = match &mut self.meters[direction] {
                Some(meter) => meter.colour(now, meta.as_ref(), frame),
                None => Colour::Green,
            };
            self.counters.coloured(from, colour, on_wire);
            if colour == Colour::Red {
                frame.discard();
                continue;
            }
            if let (Colour::Yellow, Yellow::Dscp(dscp), Some(meta)) =
                (colour, self.yellow[direction], &meta)
                && marking::set_dscp(frame.bytes_mut(), meta, dscp)
            {
                self.counters.marked += on_wire.packets();
            }
            self.counters.forwarded.count(from, on_wire);
            frame.send(from ^ 1);
        }
    }

    fn tick(&mut self, now: Nanos, _outbox: &mut dyn Outbox) {
        for meter in self.meters.iter_mut().flatten() {
            meter.sweep(now);
        }
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        self.counters.report(&self.meters, sink);
    }

    fn command(&mut self, now: Nanos, name: &str, args: &[String]) -> Result<Value, CommandError> {
        match (name, args) {
            ("buckets", []) => {
                let list = |meter: &Option<Meter>| match meter {
                    Some(meter) => meter.describe(now),
                    None => Value::Null,
                };
                let directions: Vec<Value> = self.meters.iter().map(list).collect();
                Ok(json!({ "forward": directions[0], "reverse": directions[1] }))
            }
            ("buckets", _) => Err(CommandError::BadArgument(
                "buckets takes no argument".into(),
            )),
            _ => Err(CommandError::Unknown(&["buckets"])),
        }
    }

    fn divides_by_flow(&self) -> Result<(), &'static str> {
        Err("a bucket is for all flows together")
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }

    /// Buckets of a direction whose rates and prefixes stay the same keep their tokens.
    fn reconfigure(&mut self, config: &Value, ports: &[PortInfo]) -> Result<(), ConfigError> {
        let config = Config::parse(config, ports)?;
        self.yellow = config.yellow();
        for (old, new) in self.meters.iter_mut().zip(config.meters(ports)) {
            let same = matches!((&*old, &new), (Some(old), Some(new)) if old.same_limits(new));
            if !same {
                *old = new;
            }
        }
        self.counters.forwarded.rename(ports);
        Ok(())
    }
}
