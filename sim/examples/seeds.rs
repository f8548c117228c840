use nfluid_sim::protocol::storm::storm;
fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().unwrap());
    let (from, to) = (args.next().unwrap(), args.next().unwrap());
    let mut kinds = std::collections::BTreeMap::<String, (u64, Vec<u64>, String)>::new();
    let mut steps = 0;
    let mutation = std::env::var("MUTATION").ok().map(|name| {
        use nfluid_sim::protocol::mutation::Mutation::*;
        [
            CopyRunReturns,
            DestinationInTwoWords,
            NoMembershipCheck,
            EntryWithoutGeneration,
            ReclaimDoesNotWait,
            NumberReusedAtOnce,
            GapFilledAtOnce,
            FloodCountsNothing,
            FloodCopyCountsNothing,
            AdmitReturns,
            MoveDoesNotWait,
            CallSeenLate,
            TailNotWritten,
            LeftHalfway,
            LongPositionLost,
            PositionCarries,
            LongReservedApart,
            SkipForgotten,
            AreaOffByAFrame,
            HoleWithoutSlots,
            GapWithoutSlots,
            ReleasedInTwoStores,
            ReclaimForgetsLong,
            MetadataReadTwice,
            SegmentsBelieved,
            CapabilityNotChecked,
            DepositWithoutMetadata,
        ]
        .into_iter()
        .find(|m| format!("{m:?}") == name)
        .unwrap()
    });
    let begun = std::time::Instant::now();
    for seed in from..to {
        let out = storm(seed, mutation);
        steps += out.steps;
        if let Some(v) = out.violation {
            let key: String = v.chars().filter(|c| !c.is_ascii_digit()).take(60).collect();
            let e = kinds.entry(key).or_insert((0, vec![], v));
            e.0 += 1;
            e.1.push(seed);
        }
    }
    println!(
        "{steps} steps, {:.1} M/s",
        steps as f64 / begun.elapsed().as_secs_f64() / 1e6
    );
    for (_, (n, seed, v)) in kinds {
        println!("{n} times, seeds {seed:?}: {}", &v[..v.len().min(300)]);
    }
}
