//! Uplinks of an earlier daemon: taken over, or removed.

use crate::Uplinks;
use crate::life::spec_text;
use crate::record::UplinkRecord;
use anyhow::{Context, bail};
use nfluid_api::types::EventKind;
use nfluid_control::spec::UplinkSpec as UplinkModel;
use nfluid_process::uplink::{UplinkProcess, UplinkService};
use nfluid_process::{End, end_if_alive};
use nfluid_uplink::{UplinkSpec, clean_leftovers, close_dead};
use std::collections::BTreeMap;

impl Uplinks {
    /// Takes over the processes of uplinks that still run as `desired` asks for, and ends all others. Returns the uplinks that
    /// were taken over.
    pub fn adopt(
        &mut self,
        desired: &BTreeMap<String, UplinkModel>,
    ) -> BTreeMap<String, UplinkModel> {
        let mut adopted = BTreeMap::new();
        for name in nfluid_records::names(&self.handles.paths.records()) {
            let path = self.handles.paths.record(&name);
            let record: UplinkRecord = match nfluid_records::load(&path) {
                Ok(record) => record,
                Err(error) => {
                    tracing::warn!(uplink = name, %error, "reading {}", path.display());
                    continue;
                }
            };
            let model = desired
                .get(&name)
                .filter(|model| spec_text(model) == record.spec);
            let Some(model) = model else {
                self.end_left(&name, &record);
                continue;
            };
            let model = &UplinkModel {
                long: record.long,
                ..model.clone()
            };
            self.handles.ports.mark(record.port);
            self.handles.pools.mark(record.pool);
            match self.adopt_one(&name, model, record) {
                Ok(()) => {
                    adopted.insert(name.clone(), model.clone());
                    self.event(EventKind::Adopted, &name, "still sends, taken over");
                }
                Err(why) => self.event(
                    EventKind::Warning,
                    &name,
                    format!("not taken over, started again: {why:#}"),
                ),
            }
        }
        adopted
    }

    fn adopt_one(
        &mut self,
        name: &str,
        model: &UplinkModel,
        record: UplinkRecord,
    ) -> anyhow::Result<()> {
        self.left
            .insert(name.to_owned(), (record.port, record.pool));
        let identity = record.process.clone().context("it had no process")?;
        let socket = self.handles.paths.socket(name);
        if !self.handles.switch.is_up(record.port) {
            // The process was killed before it had made its port, or the switch was removed.
            end_if_alive::<UplinkService>(&identity, &socket, End::Leave)?;
            bail!("its port is not there");
        }
        match UplinkProcess::adopt(name, &identity, &socket) {
            Ok(process) => {
                self.left.remove(name);
                let running = self.running_uplink(model, record, Some(process));
                self.running.insert(name.to_owned(), running);
                Ok(())
            }
            Err(why) => {
                // The next process takes over interface and port as they are.
                end_if_alive::<UplinkService>(&identity, &socket, End::Leave)?;
                Err(why)
            }
        }
    }

    /// Removes what has been changed on interfaces by uplinks that nobody records or desires any more.
    pub fn remove_leftovers(&self, is_desired: impl Fn(&str) -> bool) {
        for name in clean_leftovers(&self.handles.paths.changes(), is_desired) {
            self.event(EventKind::Removed, &name, "left by a daemon that crashed");
        }
    }

    /// Ends the process of an uplink that is not desired in its present form, and removes its port.
    fn end_left(&mut self, name: &str, record: &UplinkRecord) {
        let socket = self.handles.paths.socket(name);
        if let Some(process) = &record.process
            && let Err(error) = end_if_alive::<UplinkService>(process, &socket, End::Close)
        {
            tracing::warn!(uplink = name, "ending its process: {error:#}");
        }
        let spec = UplinkSpec {
            state_dir: Some(self.handles.paths.changes()),
            pins: Some(self.handles.paths.pins(name)),
            ..UplinkSpec::new(name, "", record.port, record.pool)
        };
        if let Err(error) = close_dead(&self.handles.switch, &spec) {
            tracing::warn!(uplink = name, %error, "removing its port");
        }
        self.forget(name, record);
        self.event(EventKind::Removed, name, "left by an earlier daemon");
    }
}
