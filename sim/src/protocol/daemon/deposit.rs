//! `lib/switch/src/deposit.rs`: frames that the daemon itself puts into a ring.

use super::*;
use nfluid_ring::layout::{FRAME_MAX, FRAME_MIN, LONG_MAX, long_start, room_slots};
use nfluid_ring::offload::OFFLOAD_BYTES;

/// A frame to be deposited.
pub trait Content {
    /// Length in bytes.
    fn bytes(&self) -> usize;
    /// Writes it from the start of a slot on.
    fn write(&self, pool: &Pool, slot: u32);
}

impl Content for Vec<u8> {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn write(&self, pool: &Pool, slot: u32) {
        pool.write(slot, self);
    }
}

/// Positions that a daemon has reserved and not yet published. Dropped with the daemon where it is killed.
struct Orphans<'m> {
    m: &'m Memory,
    slots: u64,
}

impl Drop for Orphans<'_> {
    fn drop(&mut self) {
        self.m.audit.orphaned(self.slots);
    }
}

fn is_short(frame: &impl Content) -> bool {
    frame.bytes() <= FRAME_MAX
}

impl Daemon {
    /// As `Switch::deposit_at`. Returns how many there was room for.
    pub async fn deposit<F: Content>(&self, instance: &Instance, frames: &[F]) -> usize {
        let is_frame = |frame: &F| (FRAME_MIN..=LONG_MAX).contains(&frame.bytes());
        if !frames.iter().all(is_frame) {
            return 0;
        }
        while self.depositing.get() < 0 {
            step().await;
        }
        self.depositing.set(self.depositing.get() + 1);
        let mut done = 0;
        for alike in frames.chunk_by(|one, next| is_short(one) && is_short(next)) {
            let put = match alike {
                [long] if !is_short(long) => usize::from(self.deposit_long(instance, long).await),
                short => self.deposit_short(instance, short).await,
            };
            done += put;
            if put < alike.len() {
                break;
            }
        }
        self.depositing.set(self.depositing.get() - 1);
        done
    }

    async fn deposit_short<F: Content>(&self, instance: &Instance, frames: &[F]) -> usize {
        let (first, count) = self.reserve(instance, frames.len()).await;
        let mut left = Orphans {
            m: &self.m,
            slots: u64::from(count),
        };
        for (place, frame) in (0..count).zip(frames) {
            let position = first.wrapping_add(place);
            step().await;
            frame.write(&instance.pool, position & (instance.slots - 1));
            let desc = rx_desc_of(frame.bytes() as u16, position.wrapping_add(1));
            let at = (position, desc);
            self.publish_one(instance, at, frame.bytes(), &mut left)
                .await;
        }
        count as usize
    }

    /// As `Switch::reserve`.
    pub async fn reserve(&self, instance: &Instance, most: usize) -> (u32, u32) {
        let choose = |reserved: Released, _, room: u32| {
            let head = reserved.head.wrapping_add((room as usize).min(most) as u32);
            Some(Released { head, ..reserved })
        };
        let reserved = self.reserve_if(instance, choose).await;
        reserved.map_or((0, 0), |(before, after)| {
            (before.head, after.head.wrapping_sub(before.head))
        })
    }

    async fn reserve_if(
        &self,
        instance: &Instance,
        choose: impl Fn(Released, Released, u32) -> Option<Released>,
    ) -> Option<(Released, Released)> {
        let port = self.port(instance.number);
        loop {
            let before = load(&port.rx_reserved).await;
            let reserved = Released::of(before);
            let released = load(&instance.ring.ring().receiver.rx_released).await;
            let released = Released::of(released);
            let taken = used(reserved.head, released.head, instance.slots);
            let after = choose(reserved, released, instance.slots - taken)?;
            if swap(&port.rx_reserved, before, after.word()).await == before {
                return Some((reserved, after));
            }
        }
    }

    /// As `Switch::reserve_long`.
    pub async fn reserve_long(&self, instance: &Instance, len: usize) -> Option<Released> {
        let slots = room_slots(len) as u32;
        let choose = |reserved: Released, released: Released, room| {
            let after = Released {
                head: reserved.head.wrapping_add(1),
                long: long_start(reserved.long).wrapping_add(slots),
            };
            let used = after.long.wrapping_sub(released.long);
            (room > 0 && used <= instance.long.rx).then_some(after)
        };
        let (Released { head, long }, _) = self.reserve_if(instance, choose).await?;
        let long = long_start(long);
        self.m
            .audit
            .reserved_long(instance.number, head, (long, slots), instance.long.rx);
        Some(Released { head, long })
    }

    async fn deposit_long(&self, instance: &Instance, frame: &impl Content) -> bool {
        let len = frame.bytes();
        if instance.long.rx == 0 {
            let drops = &self.port(instance.number).drops;
            add(&drops[drop::TOO_LONG], 1).await;
            self.m.audit.deposited(0);
            return true;
        }
        let Some(at) = self.reserve_long(instance, len).await else {
            return false;
        };
        let mut left = Orphans {
            m: &self.m,
            slots: 1,
        };
        let first = instance.rx_long_base() + (at.long & (instance.long.rx - 1));
        // Each slot takes its time.
        for _ in 0..room_slots(len) {
            step().await;
        }
        frame.write(&instance.pool, first);
        step().await;
        if !self.m.has(Mutation::DepositWithoutMetadata) {
            let last = first + room_slots(len) as u32 - 1;
            instance.pool.set_offload(last, [0; OFFLOAD_BYTES]);
        }
        let sequence = at.head.wrapping_add(1);
        let desc = rx_desc_with_slot(rx_desc_of(len as u16, sequence), at.long);
        let at = (at.head, desc);
        self.publish_one(instance, at, len, &mut left).await;
        true
    }

    async fn publish_one(
        &self,
        instance: &Instance,
        (position, desc): (u32, u64),
        len: usize,
        left: &mut Orphans<'_>,
    ) {
        let port = self.port(instance.number);
        let index = position & (instance.slots - 1);
        store(&instance.ring.ring().rx[index as usize], desc).await;
        left.slots -= 1;
        self.m.audit.deposited(len as u64);
        // A daemon that is killed here has not counted a frame that arrives: no party can know it.
        port.rx_frames.set(port.rx_frames.get() + 1);
        port.rx_bytes.set(port.rx_bytes.get() + len as u64);
    }
}
