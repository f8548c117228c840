//! Defects that the switch has had, or could have: a run that is given one has to find it.

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// `copy_run` returns without publishing when a port has gone down since the reservation.
    CopyRunReturns,
    /// The kind and the number of a port's destination are two words.
    DestinationInTwoWords,
    /// An address counts whatever became of its port since, and delivery does not check whether the port is on the
    /// switch.
    NoMembershipCheck,
    /// An address counts whatever became of its port since.
    EntryWithoutGeneration,
    /// `reclaim` does not wait for senders that have reserved slots.
    ReclaimDoesNotWait,
    /// A port's number is given away without waiting for calls of I/O threads.
    NumberReusedAtOnce,
    /// A gap is made a hole without waiting for those who may publish it.
    GapFilledAtOnce,
    /// `flood_frame` counts nothing when the sender went down.
    FloodCountsNothing,
    /// `flood_copy` counts nothing when the sender went down.
    FloodCopyCountsNothing,
    /// `admit_frame` returns without publishing when the sender has gone down since the reservation.
    AdmitReturns,
    /// A port joins a switch while frames of the one that it has left are on their way to it.
    MoveDoesNotWait,
    /// A call looks whether its port is up before a daemon that takes the port down can see the call, and not again.
    CallSeenLate,
    /// A call does not report to the sender how far it has come when the port went down meanwhile.
    TailNotWritten,
    /// A port that leaves a switch loses its destination before it is off the switch: a daemon that is killed in
    /// between never takes the port off.
    LeftHalfway,
    /// A plain frame's reservation forgets how far the slots for long frames are reserved.
    LongPositionLost,
    /// A plain frame's reservation adds to the word of both positions: the carry of one goes to the other.
    PositionCarries,
    /// The slots of a long frame are reserved before its position, by a compare-and-swap of their own.
    LongReservedApart,
    /// A long frame starts at any slot.
    SkipForgotten,
    /// A long frame is reserved slots that a frame before it has.
    AreaOffByAFrame,
    /// A hole in the place of a long frame does not say that it has slots.
    HoleWithoutSlots,
    /// A gap that the daemon fills does not say that it has slots for long frames.
    GapWithoutSlots,
    /// A receiver releases positions and slots for long frames by two stores, and ends in between.
    ReleasedInTwoStores,
    /// `reclaim` gives back positions, and no slots for long frames.
    ReclaimForgetsLong,
    /// A frame's metadata is read again for its receiver, when it was checked.
    MetadataReadTwice,
    /// The number of segments is the sender's word.
    SegmentsBelieved,
    /// No receiver is asked for what it takes.
    CapabilityNotChecked,
    /// A long frame that the daemon deposits leaves the metadata of the frame that was there before.
    DepositWithoutMetadata,
}
