//! A limiter's state as records: counters, and the tokens of each direction's buckets.

use super::Limiter;
use super::meter::Meter;
use crate::function::Nanos;
use crate::stateful::{Imported, Reader, StateError, Stateful, Writer};

impl Stateful for Limiter {
    /// Version 2: buckets may owe tokens.
    fn state_version(&self) -> u16 {
        2
    }

    fn oldest_version(&self) -> u16 {
        1
    }

    fn export(&mut self, now: Nanos, writer: &mut Writer) {
        self.counters.export(writer);
        for meter in &self.meters {
            writer.put(&meter.is_some());
            if let Some(meter) = meter {
                meter.export(now, writer);
            }
        }
    }

    /// Tokens are taken over where rates and prefixes are the same; elsewhere buckets start full, as after any change of
    /// them.
    fn import(&mut self, now: Nanos, reader: &mut Reader<'_>) -> Result<Imported, StateError> {
        self.counters.import(reader)?;
        let mut imported = Imported::default();
        for meter in &mut self.meters {
            if reader.get()? {
                Meter::import(meter.as_mut(), now, reader, &mut imported)?;
            }
        }
        Ok(imported)
    }

    fn rehearse(&mut self, now: Nanos, reader: &mut Reader<'_>) {
        let counters = self.counters.clone();
        // The import reports what is wrong with the image.
        let _ = self.import(now, reader);
        self.counters = counters;
        self.meters.iter_mut().flatten().for_each(Meter::forget);
    }
}
