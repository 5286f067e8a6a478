//! The faults by name, each with the promise of the contract that it breaks. Data only.

/// What a fault can be put into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// A provider that takes over streams.
    Stream,
    /// A provider with a connection manager.
    Native,
    /// The tables of a provider that takes over streams.
    Tables,
    /// The tables of a provider with a connection manager and datagrams.
    NativeTables,
    /// A provider with bring-up by path.
    Path,
    /// The tables of a provider with bring-up by path.
    PathTables,
}

impl Base {
    /// Whether the fault is one of tables.
    pub const fn is_tables(self) -> bool {
        matches!(self, Self::Tables | Self::NativeTables | Self::PathTables)
    }

    /// Whether the provider has bring-up by path.
    pub const fn is_by_path(self) -> bool {
        matches!(self, Self::Path | Self::PathTables)
    }
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident $id:literal $base:ident)+) => {
        /// A fault.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Fault { $($(#[$doc])* $name,)+ }

        impl Fault {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The fault of that name.
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $(stringify!($name) => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// The promise that it breaks.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)+ }
            }

            /// What it is put into.
            pub const fn base(self) -> Base {
                match self { $(Self::$name => Base::$base,)+ }
            }
        }
    };
}

faults! {
    // Listing, opening, closing.

    /// Devices have no port.
    NoPort "RI-28" Stream
    /// Each device is listed twice.
    ListedTwice "RI-29" Stream
    /// Opens its device by any name.
    OpensAnything "RI-128" Stream
    /// The open RNIC has no port.
    PortsForgotten "RI-28" Stream
    /// Settings are not looked at.
    SettingsIgnored "RI-201" Stream
    /// The host's services are never released.
    ServicesKept "RI-26" Stream
    /// Closing does nothing.
    CloseIsLost "RI-122" Stream
    /// The handler of asynchronous events is never released.
    HandlerKept "RI-41" Stream
    /// The first handler of asynchronous events stays.
    HandlerStays "RI-42" Stream
    /// Asynchronous events are reported with a lock held.
    EventUnderLock "RI-08" Stream

    // The tables.

    /// Completions lie `sizeof(ri_wc)` apart.
    WcSizeIgnored "RI-84" Tables
    /// Requests are taken to lie `sizeof(ri_send_wr)` apart.
    SendSizeIgnored "RI-68" Tables
    /// Receives are taken to lie `sizeof(ri_recv_wr)` apart.
    RecvSizeIgnored "RI-72" Tables
    /// Refuses structs that are longer than its own.
    NewerSizeRefused "RI-01" Tables
    /// A required entry is NULL.
    EntryMissing "RI-02" Tables
    /// A reserved field is not zero.
    ReservedUsed "RI-03" Tables
    /// Octets inline are read when the queue is polled.
    InlineReadLate "RI-67" Tables
    /// Fills the whole of a struct for results, whatever room there is.
    RoomIgnored "RI-195" Tables
    /// Reads the whole of the host's services, whatever size they have.
    ServicesOverread "RI-196" Tables
    /// Sources of datagrams lie `sizeof(ri_ud_source)` apart.
    UdSourceSizeIgnored "RI-198" NativeTables
    /// Datagrams to send are taken to lie `sizeof(ri_ud_send_wr)` apart.
    UdSendSizeIgnored "RI-199" NativeTables
    /// Holds no use of the memory's owner.
    OwnerGivenBack "RI-24" Tables

    // Vendor calls.

    /// Vendor calls are elsewhere each time.
    VendorCallsMove "RI-197" Stream
    /// Finds vendor calls by any name.
    VendorCallsForAll "RI-160" Stream
    /// No vendor calls of a name is `RI_INVALID_MODIFIER`.
    VendorCallsIsModifier "RI-160" Stream

    // Limits.

    /// Says twice as many QPs as there can be.
    FalseMaxQp "RI-31" Stream
    /// Says one element more than a send can have.
    FalseMaxSgeSend "RI-31" Stream
    /// Says one element more than a Read can have.
    FalseMaxSgeRead "RI-31" Stream
    /// Says twice as many windows as there can be.
    FalseMaxMw "RI-31" Stream
    /// Says one element more than a receive can have.
    FalseMaxSgeRecv "RI-31" Stream
    /// Says one octet more than can go inline.
    FalseMaxInline "RI-31" Stream
    /// Says one request more than a queue can have.
    FalseMaxWr "RI-31" Stream
    /// Says one receive more than an SRQ can have.
    FalseMaxSrqWr "RI-31" Stream
    /// Says one entry more than a CQ can have.
    FalseMaxCqe "RI-31" Stream
    /// Says one IRD more than there can be.
    FalseMaxIrd "RI-31" Stream
    /// Says one ORD more than there can be.
    FalseMaxOrd "RI-31" Stream
    /// Says that there are no regions.
    ClaimsNothing "RI-31" Stream
    /// Too many elements are `RI_INVALID_MODIFIER`.
    SglIsModifier "RI-14" Stream
    /// A queue takes more requests than its depth.
    DepthUnbounded "RI-13" Stream
    /// A slot is free as soon as its request has completed.
    SlotFreeTooSoon "RI-186" Stream
    /// A slot of an unsignaled request is free as soon as the request is done.
    UnsignaledFreeTooSoon "RI-192" Stream
    /// No later completion frees the slot of an unsignaled request.
    UnsignaledStays "RI-192" Native
    /// A slot of a shared receive queue is free as soon as its receive has completed.
    SrqSlotFreeTooSoon "RI-193" Stream
    /// A slot of a datagram is free as soon as it was sent.
    UdSlotFreeTooSoon "RI-194" Native
    /// A CQ that is not full is overrun.
    OverrunEarly "RI-187" Stream
    /// No such PD is `RI_INVALID_MODIFIER`.
    NoPdIsModifier "RI-188" Stream
    /// Too many reads at once are `RI_INVALID_MODIFIER`.
    ReadDepthIsModifier "RI-189" Stream
    /// A full queue is `RI_INSUFFICIENT_RESOURCES`.
    FullIsResources "RI-13" Stream

    // Ids and life times.

    /// The id of a PD is used again at once.
    IdsReusedAtOnce "RI-04" Stream
    /// An id that is stale is accepted.
    StaleAccepted "RI-05" Stream
    /// An id that is stale is `RI_INVALID_MODIFIER`.
    StaleIsModifier "RI-05" Stream
    /// A QP that was destroyed takes requests.
    DestroyedQpTakesPosts "RI-06" Stream
    /// A CQ that was destroyed is polled.
    DestroyedCqPolls "RI-06" Stream
    /// A CQ that is to be destroyed stays.
    CqDestroyIsLost "RI-06" Stream
    /// What is in use is refused as `RI_INVALID_STATE`.
    InUseIsState "RI-10" Stream
    /// A PD goes while it is used.
    PdGoesInUse "RI-10" Stream
    /// A CQ goes while QPs use it.
    CqGoesInUse "RI-10" Stream
    /// An SRQ goes while QPs use it.
    SrqGoesInUse "RI-10" Stream
    /// Destroying waits for notifications that are under way.
    DestroyWaits "RI-200" Stream
    /// A QP that is destroyed resets its stream.
    DestroyIsReset "RI-202" Stream
    /// A reset is reported as a close.
    ResetIsClose "RI-203" Stream
    /// A bad close is reported as a close.
    BadCloseIsClose "RI-204" Stream
    /// A drain is a close at once.
    DrainIsClose "RI-211" Stream
    /// A QP that drains takes more.
    DrainTakesPosts "RI-212" Stream
    /// Rights that are taken away stay.
    AllowStays "RI-229" Stream
    /// Rights that are given do not come.
    AllowNeverMore "RI-229" Stream
    /// A QP goes while windows are bound to it.
    QpGoesInUse "RI-10" Stream
    /// A QP that was destroyed still uses its PD and CQs.
    DestroyedQpCounts "RI-130" Stream
    /// What completed goes with the QP.
    DestroyTakesBack "RI-190" Stream
    /// A completion of a QP comes after it was destroyed.
    CompletesAfterDestroy "RI-133" Stream
    /// The completions of a QP stay when it is destroyed.
    CompletionsStay "RI-155" Stream
    /// What completions of destroyed QPs took of a CQ stays taken.
    RoomStays "RI-154" Stream
    /// What is not there is `RI_INVALID_MODIFIER`.
    UnsupportedIsModifier "RI-22" Native
    /// In the wrong state is `RI_INVALID_MODIFIER`.
    StateIsModifier "RI-12" Native

    // Regions.

    /// Rights that do not go together are accepted.
    RightsUnchecked "RI-43" Stream
    /// A region needs no right.
    NoRightIsEnough "RI-152" Stream
    /// Remote read needs no local read.
    ReadNeedsNothing "RI-149" Stream
    /// Rights that do not go together are `RI_INVALID_MODIFIER`.
    RightsAreModifier "RI-18" Stream
    /// Every region can be written by peers.
    RemoteWriteForAll "RI-54" Stream
    /// Every region can be read by peers.
    RemoteReadForAll "RI-57" Stream
    /// No such STag is `RI_INVALID_HANDLE`.
    NoStagIsHandle "RI-16" Stream
    /// The key of a peer's STag is not looked at.
    KeyIgnored "RI-45" Stream
    /// The key of a local STag is not looked at.
    LocalKeyIgnored "RI-45" Stream
    /// The key is always 0.
    KeyIsZero "RI-45" Stream
    /// The key is not said.
    KeyUnsaid "RI-47" Stream
    /// Invalid regions are said to be valid.
    AlwaysValid "RI-47" Stream
    /// The length of a region is rounded to pages.
    RegionLengthRounded "RI-47" Stream
    /// The remote rights of a region are not said.
    RightsUnsaid "RI-47" Stream
    /// Zero-based regions are absolute.
    AlwaysAbsolute "RI-44" Stream
    /// The owner of a region is never released.
    OwnerKept "RI-25" Stream
    /// The owner of a region that was refused is never released.
    RefusedOwnerKept "RI-25" Stream
    /// Deregistration leaves the region as it is.
    DeregisterIsLost "RI-124" Stream
    /// Nothing is pinned.
    PinIgnored "RI-46" Stream
    /// Nothing is unpinned.
    UnpinForgotten "RI-27" Stream
    /// Half is unpinned.
    UnpinOther "RI-27" Stream
    /// What is registered through the queue can be read, whatever its rights.
    FastRightsForAll "RI-61" Stream
    /// Every QP may register through the queue.
    PrivilegeForAll "RI-19" Stream
    /// Invalidate Local does nothing.
    InvalidateLocalLost "RI-62" Stream
    /// A Send with Invalidate is a Send.
    RemoteInvalidateLost "RI-53" Stream
    /// A Send with Invalidate invalidates, and does not report it.
    InvalidatedUnsaid "RI-76" Stream

    // Shared and re-registered regions.

    /// A shared region has the rights of the first.
    SharedHasOldRights "RI-48" Stream
    /// A shared region goes with the first.
    SharedDiesWithFirst "RI-48" Stream
    /// A shared region is absolute.
    SharedAbsolute "RI-48" Stream
    /// A shared region has the PD of the first.
    SharedHasFirstPd "RI-48" Stream
    /// The key of a shared region is 0.
    SharedKeyIsZero "RI-48" Stream
    /// A region does not say that it is zero-based.
    AddressingUnsaid "RI-47" Stream
    /// A region does not say that it is shared.
    SharedUnsaid "RI-137" Stream
    /// After reregistration the old STag is still good.
    ReregisterKeepsOld "RI-138" Stream
    /// Reregistration keeps the rights.
    ReregisterKeepsRights "RI-138" Stream
    /// Reregistration keeps the PD.
    ReregisterKeepsPd "RI-138" Stream
    /// Reregistration keeps the addressing.
    ReregisterKeepsAddressing "RI-138" Stream
    /// Reregistration keeps the key.
    ReregisterKeepsKey "RI-138" Stream
    /// Reregistration never releases the new owner.
    ReregisterKeepsOwner "RI-25" Stream
    /// A refused reregistration leaves the region.
    ReregisterFailsSoftly "RI-123" Stream

    // Bases.

    /// A region that is to begin at a base begins at its address.
    BaseIgnored "RI-223" Stream
    /// Reregistration keeps no base.
    ReregisterForgetsBase "RI-223" Stream
    /// Elements name the octets of a region with a base by their addresses.
    BasedElementsByAddress "RI-224" Stream
    /// Windows are bound to a region with a base by addresses.
    BasedWindowsByAddress "RI-225" Stream
    /// A base that leaves too little room is 0.
    BaseWraps "RI-226" Stream

    // Windows.

    /// A region with a window goes.
    WindowsGoWithRegion "RI-17" Stream
    /// A region with a window is `RI_IN_USE`.
    WindowIsInUse "RI-17" Stream
    /// Every region takes windows.
    BindForAll "RI-207" Stream
    /// A window can be deallocated twice.
    WindowGoesTwice "RI-05" Stream
    /// The windows of a region are not counted.
    WindowsUncounted "RI-49" Stream
    /// A narrow window serves every QP.
    NarrowForAll "RI-51" Stream
    /// A wide window serves one QP.
    WideForOne "RI-50" Stream
    /// A bound window does not say its STag.
    WindowUnsaid "RI-52" Stream
    /// A bound window does not say its region.
    WindowRegionUnsaid "RI-52" Stream
    /// A window gives all rights.
    WindowHasAllRights "RI-60" Stream
    /// A window is an octet too long.
    WindowTooLong "RI-60" Stream
    /// A window begins too early.
    WindowBeginsEarly "RI-60" Stream
    /// The key of a window is 0.
    WindowKeyIsZero "RI-60" Stream
    /// A bind of no octets does nothing.
    UnbindIgnored "RI-71" Stream
    /// A window that was deallocated stays bound.
    WindowNeverGoes "RI-139" Stream
    /// The sink of a read stays valid.
    SinkStaysValid "RI-58" Stream

    // Requests.

    /// A Write goes to a multiple of four.
    WriteOffByFour "RI-54" Stream
    /// What was asked for comes without a solicited event.
    SolicitedLost "RI-66" Stream
    /// An immediate has 32 bits.
    ImmediateCut "RI-56" Stream
    /// An immediate after a Write has 32 bits.
    WriteImmediateCut "RI-55" Stream
    /// An immediate beside the data of a Send has 31 bits.
    SendImmediateCut "RI-227" Stream
    /// A Send with Immediate goes as one without where the ends did not agree on it.
    SendImmediateAnyway "RI-228" Stream
    /// A local fence is none.
    LocalFenceIgnored "RI-65" Stream
    /// A read fence is none.
    ReadFenceIgnored "RI-64" Stream
    /// What is not signaled completes, too.
    AlwaysSignaled "RI-63" Stream
    /// Another completion queue than the one of receives.
    WrongRecvCq "RI-140" Stream
    /// What was refused in a list is 0.
    PostedUnsaid "RI-113" Stream
    /// A list goes on after what was refused.
    ListGoesOn "RI-113" Stream
    /// What cannot be is `RI_INVALID_MODIFIER`.
    WrIsModifier "RI-21" Stream

    // Gather and scatter.

    /// The elements of a send are taken backwards.
    GatherBackwards "RI-141" Stream
    /// Only the first element of a send is taken.
    GatherFirstOnly "RI-141" Stream
    /// An element of no octets ends the list of a send.
    GatherEndsAtEmpty "RI-141" Stream
    /// One element of each region is taken.
    GatherOnePerRegion "RI-141" Stream
    /// The elements of a receive are filled backwards.
    ScatterBackwards "RI-142" Stream
    /// Only the first element of a receive is filled.
    ScatterFirstOnly "RI-142" Stream
    /// An element of no octets ends the list of a receive.
    ScatterEndsAtEmpty "RI-142" Stream

    // Atomics.

    /// The mask of a sum is not looked at.
    AddMaskIgnored "RI-70" Stream
    /// The original value goes elsewhere.
    OriginalElsewhere "RI-59" Stream
    /// Every region takes atomics.
    AtomicForAll "RI-148" Stream
    /// A sum has 32 bits.
    AddIs32Bits "RI-69" Stream
    /// The mask of a swap is not looked at.
    SwapMaskIgnored "RI-70" Stream
    /// The mask of a comparison is not looked at.
    CompareMaskIgnored "RI-70" Stream
    /// Swaps whatever is there.
    SwapsAlways "RI-69" Stream
    /// Compares and swaps 32 bits.
    SwapIs32Bits "RI-69" Stream

    // Completions.

    /// The length of a read is 0.
    ReadLengthUnsaid "RI-73" Stream
    /// The length of a receive is 0.
    RecvLengthUnsaid "RI-73" Stream
    /// An immediate does not count what the Write before it has placed.
    ImmediateUncounted "RI-191" Stream
    /// Every receive says that it has an immediate.
    ImmediateForAll "RI-77" Stream
    /// A solicited receive does not say so.
    SolicitedUnsaid "RI-66" Stream
    /// An immediate is not said.
    ImmediateUnsaid "RI-77" Stream
    /// What is flushed succeeds.
    FlushedIsSuccess "RI-74" Stream
    /// Too long a message is an access violation.
    BoundsIsAccess "RI-75" Stream
    /// All requests complete as sends.
    AllAreSends "RI-143" Stream
    /// Only 32 bits of a request's id are returned.
    IdCutShort "RI-143" Stream
    /// The QP is not said.
    QpUnsaid "RI-143" Stream

    // Edges of completion queues.

    /// A CQ has half of the entries that were asked for.
    CqTooSmall "RI-79" Stream
    /// The newest completion comes first.
    NewestFirst "RI-83" Stream
    /// Completions of sends come in another order.
    SendsDisordered "RI-150" Stream
    /// Completions of receives come in another order.
    ReceivesDisordered "RI-151" Stream
    /// Of many the last is lost.
    PollLosesRest "RI-83" Stream
    /// An overrun is not reported.
    OverrunSilent "RI-38" Stream
    /// An overrun is not polled.
    OverrunUnpolled "RI-86" Stream
    /// What waits is not counted.
    QueuedUnsaid "RI-93" Stream
    /// Arming does nothing.
    ArmIgnored "RI-87" Stream
    /// An arming is never consumed.
    ArmedForEver "RI-87" Stream
    /// Every completion is a solicited one.
    ArmSolicitedForAll "RI-88" Stream
    /// An error is no solicited one.
    ArmErrorsIgnored "RI-88" Stream
    /// Notifies without being armed.
    ArmedFromTheStart "RI-80" Stream
    /// Notifies twice.
    CallbackTwice "RI-80" Stream
    /// Names another CQ.
    CallbackNamesOther "RI-144" Stream
    /// Notifies with a lock held.
    CallbackUnderLock "RI-08" Stream
    /// The handler of a CQ is never released.
    CqHandlerKept "RI-82" Stream
    /// The handler of a CQ stays when the CQ was released.
    CqHandlerOutlives "RI-82" Stream
    /// A wait ends at once.
    WaitAlwaysReady "RI-90" Stream
    /// A wait does not say that there is something.
    WaitNeverReady "RI-89" Stream
    /// A wait has no time-out.
    WaitForEver "RI-90" Stream
    /// A thread that leads does not learn that its descriptor is readable.
    LeadNeverReady "RI-213" Stream
    /// A thread leads without a time-out.
    LeadForEver "RI-214" Stream
    /// One CQ notifies, and no other before a thread has led.
    LeadForOneCq "RI-215" Stream
    /// An interrupt does nothing.
    InterruptIgnored "RI-91" Stream
    /// An interrupt ends one wait of many.
    InterruptOne "RI-91" Stream
    /// A CQ that shrinks loses what has no room.
    ShrinkLoses "RI-20" Stream
    /// A CQ that is resized loses what is there.
    ResizeForgets "RI-92" Stream
    /// A resize that is refused changes the depth.
    RefusedResizeGrows "RI-92" Stream
    /// A CQ is not resized.
    ResizeLies "RI-92" Stream

    // Limits of shared receive queues.

    /// An SRQ takes more receives than its depth.
    SrqDepthUnbounded "RI-145" Stream
    /// A receive of an SRQ takes more elements than were agreed.
    SrqSgesUnbounded "RI-145" Stream
    /// The limit of a new SRQ is lost.
    SrqFirstLimitLost "RI-94" Stream
    /// The limit is reported twice.
    SrqLimitTwice "RI-94" Stream
    /// A limit cannot be taken back.
    SrqLimitStays "RI-94" Stream
    /// The limit is not reported.
    SrqLimitSilent "RI-39" Stream
    /// What is posted is not counted.
    SrqPostedUnsaid "RI-97" Stream
    /// What was refused in a list is 0.
    SrqPostedLost "RI-95" Stream
    /// A change of the depth changes the limit.
    SrqWhichIgnored "RI-96" Stream
    /// A QP on an SRQ takes receives.
    SrqQpTakesReceives "RI-99" Stream
    /// The limit of a QP's receives is not reported.
    RecvLimitSilent "RI-40" Stream
    /// The limit of a QP's receives is not kept.
    RecvLimitIgnored "RI-101" Stream

    // Receives that come late.

    /// A Send without a receive ends the stream all the same.
    HoldIgnored "RI-216" Stream
    /// Receives for those that wait are taken from the back.
    HoldReversed "RI-217" Stream
    /// With a Send that waits everything waits.
    HoldStops "RI-218" Stream
    /// Nothing waits for a receive of an SRQ.
    HoldWithoutSrq "RI-219" Stream
    /// A Send waits without end.
    HoldForEver "RI-220" Stream
    /// A hold of nothing becomes one of something.
    HoldOfNothing "RI-221" Stream
    /// Sends wait, and the attributes do not say so.
    HoldUnsaid "RI-222" Stream

    // States of queue pairs.

    /// Peers may do what the QP does not allow.
    AllowIgnored "RI-100" Stream
    /// A receive that is posted in Error is never flushed.
    RecvUnflushed "RI-132" Stream
    /// A send that is posted in Error is never flushed.
    SendUnflushed "RI-132" Stream
    /// A send that is posted in Error, not signaled, is never flushed.
    UnsignaledUnflushed "RI-132" Stream
    /// Established is not reported.
    NeverEstablished "RI-33" Stream
    /// The end of a close is not reported.
    CloseSilent "RI-34" Stream
    /// Which Terminate came is not reported.
    TerminateUnsaid "RI-35" Stream
    /// A Terminate that was sent is not reported.
    TerminateSentSilent "RI-36" Stream
    /// A reset is not reported.
    ResetSilent "RI-37" Stream
    /// The QP does not keep the Terminate.
    TerminateUnkept "RI-112" Stream
    /// A QP in Error says RTS.
    StateStaysRts "RI-112" Stream
    /// What is outstanding is not counted.
    OutstandingUnsaid "RI-112" Stream
    /// Sends that are outstanding are not counted.
    SendsOutstandingUnsaid "RI-209" Stream
    /// Sends that were lost are not counted.
    SendsLostUnsaid "RI-210" Stream
    /// Receives that were lost are not counted.
    RecvsLostUnsaid "RI-210" Stream
    /// What earlier streams lost counts, too.
    LostOfAllStreams "RI-210" Stream
    /// The socket of a refused stream stays open.
    RefusedSocketKept "RI-102" Stream
    /// What came after the start-up frame is lost.
    ReceivedLost "RI-103" Stream
    /// The last message is not sent.
    LastMessageLost "RI-104" Stream
    /// A close is a reset.
    CloseIsAbrupt "RI-106" Stream
    /// A Terminate is a reset.
    TerminateIsReset "RI-107" Stream
    /// Error does nothing.
    ErrorIsLost "RI-108" Stream
    /// Error is refused in Error.
    ErrorOnce "RI-208" Stream
    /// Idle is granted in RTS.
    IdleFromRts "RI-12" Stream
    /// The addresses of a stream are those of the other end.
    AddressesSwapped "RI-112" Stream
    /// The addresses of a stream are not said.
    AddressesUnsaid "RI-112" Stream
    /// From Error it never comes to Idle.
    NeverIdleAgain "RI-109" Stream
    /// A reset is reported by another thread, whatever the QP's state is by then.
    ResetToldLate "RI-153" Stream
    /// New limits are not taken.
    LimitsIgnored "RI-110" Stream
    /// Of a change that is refused a part is made.
    HalfAChange "RI-111" Stream
    /// In RTS no limit changes, the ORD neither.
    OrdStaysInRts "RI-251" Stream

    // Two threads.

    /// Only the posts of the first thread that posted are executed.
    PostsOfOthersLost "RI-07" Stream
    /// A thread that polls sees what another one has taken.
    PollRace "RI-07" Stream

    /// A CQ that was destroyed can be armed.
    DestroyedCqArms "RI-06" Stream
    /// Two threads that register at once get one region.
    RegisterRace "RI-07" Stream
    /// An RNIC that another thread closes stays.
    ClosedElsewhereStays "RI-122" Stream

    // Datagrams.

    /// Datagrams arrive whatever key they name.
    QkeyIgnored "RI-163" Native
    /// A received datagram has no source.
    SourceUnsaid "RI-164" Native
    /// A received datagram does not say the way back.
    PathUnsaid "RI-165" Native
    /// An immediate of a datagram is not said.
    UdImmediateUnsaid "RI-166" Native
    /// The header before a message is not counted.
    HeaderUncounted "RI-167" Native
    /// The key that was wanted is not used.
    QkeyUnused "RI-168" Native
    /// What was refused in a list is 0.
    UdPostedUnsaid "RI-169" Native
    /// Too long a datagram is `RI_INVALID_MODIFIER`.
    TooLongIsModifier "RI-170" Native
    /// Says one octet more than a datagram can have.
    PayloadTooLong "RI-185" Native
    /// Error does nothing.
    UdErrorIsLost "RI-171" Native
    /// Back before all is flushed is `RI_INVALID_STATE`.
    UdFlushingIsState "RI-172" Native
    /// All queue pairs have one id.
    UdIdsAlike "RI-173" Native
    /// The handler of services is never released.
    ServiceHandlerKept "RI-174" Native
    /// The first handler of services stays.
    ServiceHandlerStays "RI-175" Native
    /// A token that is in use is `RI_INVALID_MODIFIER`.
    TokenIsModifier "RI-176" Native
    /// What was sent with a handle that is gone never completes.
    SendsGoWithHandle "RI-177" Native
    /// A service has port 0.
    ServicePortUnsaid "RI-178" Native
    /// The reply of a service is reported twice.
    AnswerTwice "RI-179" Native
    /// A service that does not reply is not reported.
    NoAnswerSilent "RI-179" Native
    /// A cancelled request gets a reply.
    CancelIsLost "RI-180" Native
    /// A request is said to be of another service.
    ServiceOfOther "RI-181" Native
    /// The reply of a service comes without a path.
    AnswerWithoutPath "RI-182" Native
    /// A service that cannot be reached fails without a reason.
    ServiceFailedWithoutReason "RI-206" Native
    /// A refusal comes without its private data.
    RefusalWithoutData "RI-183" Native

    /// A key that is to change stays.
    QkeyStays "RI-237" Path

    // Bring-up by path.

    /// A queue pair has another number when it is asked for again.
    PathNumberMoves "RI-230" Path
    /// A queue pair that receives takes a second peer.
    PathReceivesTwice "RI-231" Path
    /// Sends before it receives.
    PathSendsFirst "RI-232" Path
    /// The peer is served once this end sends.
    PathServesLate "RI-233" Path
    /// Too many reads at once are `RI_INVALID_MODIFIER`.
    PathDepthIsModifier "RI-234" Path
    /// Numbers of 24 bits are cut.
    PathNumbersCut "RI-235" Path
    /// A queue pair that was destroyed is brought up.
    PathOfGone "RI-236" Path
    /// A required entry of the bring-up by path is NULL.
    PathEntryMissing "RI-02" PathTables
    /// A reserved field of the bring-up by path is not zero.
    PathReservedUsed "RI-03" PathTables

    // Events of connections.

    /// A request is said to be of another listener.
    RequestOfOther "RI-114" Native
    /// A request comes without its private data.
    RequestWithoutData "RI-114" Native
    /// A request comes without IRD and ORD.
    RequestWithoutDepths "RI-114" Native
    /// A request has no peer address.
    RequestFromNowhere "RI-114" Native
    /// A request is said to have come to any address.
    RequestToAnywhere "RI-161" Native
    /// A request is said to have come to another port.
    RequestToOtherPort "RI-161" Native
    /// The peer's address is said to be that of this end.
    LocalIsPeers "RI-161" Native
    /// A reply comes without its private data.
    AnswerWithoutData "RI-115" Native
    /// Established is reported twice.
    EstablishedTwice "RI-120" Native
    /// Established is reported to one end.
    EstablishedOnce "RI-115" Native
    /// Disconnected comes before established.
    DisconnectedFirst "RI-146" Native
    /// A rejection comes without its private data.
    RejectWithoutData "RI-116" Native
    /// A rejection is a failure.
    RejectIsFailure "RI-116" Native
    /// A failure has no reason.
    FailedWithoutReason "RI-117" Native
    /// Disconnected is reported twice.
    DisconnectedTwice "RI-118" Native
    /// Disconnected is reported to one end.
    DisconnectedOnce "RI-118" Native
    /// Disconnected is not reported.
    DisconnectedNever "RI-118" Native
    /// What is not connected is disconnected.
    DisconnectsAnything "RI-12" Native
    /// A listener has port 0.
    PortUnsaid "RI-119" Native
    /// A listener never ends.
    UnlistenIsLost "RI-147" Native
    /// Requests go with their listener.
    RequestsGoWithListener "RI-205" Native
    /// Private data are cut.
    PrivateDataCut "RI-32" Native
    /// A wait for events ends at once.
    EventsAlwaysReady "RI-121" Native
    /// A wait for events does not say that there is one.
    EventsNeverReady "RI-121" Native
    /// Completions that are discarded stay.
    DiscardKeeps "RI-238" Stream
    /// A destroyed queue pair does not return a slot of its shared receive queue.
    SrqSlotGoesWithQp "RI-240" Stream
    /// A lost completion frees its slot.
    OverrunFreesSlots "RI-241" Stream
    /// A depth of 0 is 1.
    NoDepthIsOne "RI-242" Stream
    /// A CQ of depth 0 has one entry.
    NoCqDepthIsOne "RI-242" Stream
    /// An SRQ of depth 0 has one slot.
    NoSrqDepthIsOne "RI-242" Stream
    /// The lost receives are those of the last stream, in Idle, too.
    LostStaysInIdle "RI-243" Stream
    /// Idle frees all slots of sends that have completed.
    IdleFreesAll "RI-244" Stream
    /// A full queue refuses a wrong send as one too many.
    FullBeforeWrongSend "RI-245" Stream
    /// A full queue refuses a wrong receive as one too many.
    FullBeforeWrongRecv "RI-245" Stream
    /// A full shared receive queue refuses a wrong receive as one too many.
    SrqFullBeforeWrong "RI-245" Stream
    /// Takes a change of rights without doing it.
    AllowUnoffered "RI-246" Native
    /// Takes a request to discard completions without doing it.
    DiscardUnoffered "RI-247" Native
    /// An element of no octets must name a region.
    EmptyElementChecked "RI-250" Stream
    /// A read beyond the ORD is refused.
    BeyondOrdRefused "RI-248" Stream
    /// A peer that does not close holds a close for an hour.
    SilentPeerHoldsClose "RI-249" Stream
    /// The first region does not say that another one has its memory.
    OriginalUnshared "RI-137" Stream
    /// A reset of a queue pair for datagrams does nothing.
    UdResetIsLost "RI-239" Path
    /// It ends what is posted as an error does.
    UdResetFlushes "RI-239" Path
}
