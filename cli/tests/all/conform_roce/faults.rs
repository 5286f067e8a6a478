//! The faults that the simple peer can have, one at a time, each with the requirement that it breaks.

macro_rules! faults {
    ($($name:ident => $id:literal,)*) => {
        /// What the peer does wrong.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Fault { $($name),* }

        /// All, with what they break.
        pub(crate) const FAULTS: &[(Fault, &str)] = &[$((Fault::$name, $id)),*];
    };
}

faults! {
    // Packets.
    CrcNotChecked => "ROCE-06",
    CrcReversed => "ROCE-07",
    VersionNotChecked => "ROCE-04",
    UnknownOpcodeRefused => "ROCE-05",
    SourcePortChecked => "ROCE-13",
    ReservedBitsChecked => "ROCE-12",
    MigrationRequired => "ROCE-09",
    PartitionNotChecked => "IBRC-27",
    WrongPartitionSent => "IBRC-27",
    PadNotZero => "IBRC-26",
    UnknownQueuePairRefused => "IBRC-47",
    // The responder: order.
    AheadExecuted => "IBRC-05",
    EachGapRefused => "IBRC-05",
    GapIgnored => "IBRC-05",
    RepeatedSendExecuted => "IBRC-06",
    RepeatedNotAcknowledged => "IBRC-06",
    RepeatedReadIgnored => "IBRC-07",
    RepeatedAtomicExecuted => "IBRC-08",
    AckRequestIgnoredWithin => "IBRC-41",
    CompleteMessagesNotCounted => "IBRC-28",
    NakOfAnotherPsn => "IBRC-30",
    GoesOnAfterRefusal => "IBRC-32",
    StrayResponseEnds => "IBRC-36",
    // The responder: messages.
    FirstLengthNotChecked => "IBRC-02",
    LastLengthNotChecked => "IBRC-03",
    SequenceNotChecked => "IBRC-04",
    LongMessageTaken => "IBRC-14",
    NotReadyIsSilent => "IBRC-33",
    ImmediateTakesNoReceive => "IBRC-19",
    ImmediateSwapped => "IBRC-43",
    EventLost => "IBRC-39",
    InvalidationIgnored => "IBRC-44",
    // The responder: memory.
    KeyNotChecked => "IBRC-15",
    BoundsByOne => "IBRC-15",
    RightsNotChecked => "IBRC-15",
    DomainNotChecked => "IBRC-15",
    WrongCode => "IBRC-15",
    WrittenAllTheSame => "IBRC-15",
    WriteLengthNotChecked => "IBRC-18",
    EmptyWriteChecked => "IBRC-31",
    UnalignedAtomicTaken => "IBRC-16",
    AtomicReturnsNew => "IBRC-46",
    SwapsAlways => "IBRC-46",
    LastResponseIsMiddle => "ROCE-03",
    ShortResponses => "IBRC-29",
    MiddleHasHeader => "ROCE-03",
    ComparesNumbers => "IBRC-01",
    ResponsesHaveOnePsn => "IBRC-09",
    ResponsesReversed => "IBRC-34",
    // The requester.
    NothingRepeated => "IBRC-49",
    RepeatedForEver => "IBRC-12",
    RnrTimeIgnored => "IBRC-13",
    RnrCountIgnored => "IBRC-13",
    NakRestartsAll => "IBRC-50",
    GoesOnAfterNak => "IBRC-37",
    AckCompletesRead => "IBRC-11",
    AckOfTheFutureTaken => "IBRC-36",
    OldNakEnds => "IBRC-36",
    PsnSkipped => "IBRC-35",
    LongPackets => "IBRC-02",
    NoAckAsked => "IBRC-40",
    WriteNamesOtherLength => "IBRC-18",
    TooManyReads => "IBRC-17",
    ReadNamesOtherKey => "IBRC-48",
    // The connection manager.
    RepeatedRequestIgnored => "IBCM-03",
    RepeatedRequestIsNew => "IBCM-03",
    ReadyRequired => "IBCM-04",
    ReplyNotRepeated => "IBCM-05",
    MraIgnored => "IBCM-06",
    ClassNotChecked => "IBCM-01",
    OtherTransaction => "IBCM-11",
    MoreReadsThanOffered => "IBCM-12",
    UnknownServiceIsSilent => "IBCM-13",
    UnknownServiceOtherReason => "IBCM-13",
    MtuNotChecked => "IBCM-14",
    RejectWithoutData => "IBCM-15",
    RejectOtherReason => "IBCM-16",
    EndNotAnswered => "IBCM-17",
    StrangeIdEnds => "IBCM-18",
    StaleAccepted => "IBCM-19",
    PrivateDataCut => "IBCM-15",
    OtherStart => "IBCM-02",
    ExpectsOther => "IBCM-02",
    // Datagrams.
    QueueKeyNotChecked => "IBUD-01",
    NoHeader => "IBUD-02",
    LongDatagramTaken => "IBUD-03",
    DatagramCut => "IBUD-05",
    ResolvesOtherRequest => "IBCM-09",
    UnknownServiceResolved => "IBCM-21",
}
