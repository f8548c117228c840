//! The state of a guest's network function: the guest writes and reads its own records.

use super::{Guest, Refusal};
use nfluid_guest::abi::{Call, op};
use nfluid_guest::message;
use nfluid_nf::Nanos;
use nfluid_nf::stateful::{Imported, Part, Reader, StateError, Stateful, Writer};
use nfluid_ring::flow::Buckets;

impl Stateful for Guest {
    fn state_version(&self) -> u16 {
        self.built.state.map_or(0, |(version, _)| version)
    }

    fn oldest_version(&self) -> u16 {
        self.built.state.map_or(0, |(_, oldest)| oldest)
    }

    fn export(&mut self, now: Nanos, writer: &mut Writer) {
        let call = Call {
            op: op::EXPORT,
            now: now.0,
            ..Call::default()
        };
        // A guest that has a state can export it, so a refusal leaves an image whose records no NF takes.
        if let Ok((_, records)) = self.ask(call, &[]) {
            writer.put_records(&records);
        }
    }

    fn import(&mut self, now: Nanos, reader: &mut Reader<'_>) -> Result<Imported, StateError> {
        self.import_records(op::IMPORT, now, &[], reader)
    }

    fn import_part(
        &mut self,
        now: Nanos,
        reader: &mut Reader<'_>,
        part: &Part,
    ) -> Result<Imported, StateError> {
        let flows = flows_of(&part.flows);
        let counts = [u8::from(part.counts)];
        self.import_records(op::IMPORT_PART, now, &[&flows, &counts], reader)
    }

    fn part_with(&mut self, kept: &Buckets) -> u64 {
        let call = Call {
            op: op::PART_WITH,
            ..Call::default()
        };
        let flows = flows_of(kept);
        self.ask(call, &[&flows])
            .map_or(0, |(reply, _)| reply.value)
    }

    fn rehearse(&mut self, now: Nanos, reader: &mut Reader<'_>) {
        let _ = self.import_records(op::REHEARSE, now, &[], reader);
    }
}

impl Guest {
    fn import_records(
        &self,
        op: u32,
        now: Nanos,
        before: &[&[u8]],
        reader: &mut Reader<'_>,
    ) -> Result<Imported, StateError> {
        let call = Call {
            op,
            count: u32::from(reader.version()),
            now: now.0,
            ..Call::default()
        };
        let mut request = before.to_vec();
        request.push(reader.take_rest());
        let refused = |_: Refusal| reader.nonsense("its guest refuses the records");
        let (_, answer) = self.ask(call, &request).map_err(refused)?;
        let taken: message::Taken = serde_json::from_slice(&answer).unwrap_or_default();
        Ok(Imported {
            taken: taken.taken,
            left_out: taken.left_out,
        })
    }
}

/// The bytes of a set of flows.
fn flows_of(flows: &Buckets) -> Vec<u8> {
    flows.0.iter().flat_map(|word| word.to_le_bytes()).collect()
}
