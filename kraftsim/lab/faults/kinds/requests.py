"""Faults of requests and answers: single frames are repeated, overtaken, delayed, lost, or replaced
by older ones.

TCP keeps the order on one connection, and nothing keeps it between connections. So a server may see
a request again after a retry, or after a later one; a client may get its answer too late, or never;
and a node that was away may send an answer of a former epoch. Sequence numbers, epochs and
incarnation ids exist for these cases. The trigger names a frame, or the fault takes the target's
next one (`kraftsim.lab.faults.kinds.requests`); over sockets the proxy between the nodes holds it.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence

from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    EVERYWHERE,
    Between,
    Family,
    FaultKind,
    OneOf,
    OnFrame,
)
from kraftsim.lab.faults.fault_space import BROKER_REGISTRATION
from kraftsim.lab.faults.field import HeldFrame, SocketInjection, Watch
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.recorded_answers import SIZE_FIELD_BYTES, RecordedAnswers
from kraftsim.world.simulated import FrameSeen
from protocol.api_keys import ApiKey
from protocol.messages.k01_fetch import FetchResponse
from protocol.messages.k52_vote import VoteResponse
from protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochResponse
from protocol.messages.k54_end_quorum_epoch import EndQuorumEpochResponse
from protocol.messages.k59_fetch_snapshot import FetchSnapshotResponse
from protocol.requests import decode_response_body, read_request_head

# --------------------------------------------------------------------------------------------------
# The frame that a protocol fault targets: the one that fired its trigger, the answer to that, or
# the next one at a server
#
# A kind targets requests or answers, and acts before the frame is sent, when it can still be
# dropped, delayed or changed.

Act = Callable[[FrameSeen], bool]
"""Acts on a frame. Returns whether the fault is done; if not, the next frame is tried."""
BEFORE = "before"
ANY_API = None
API_KEY = "api_key"
"""The parameter that names an API where the trigger names none; absent: any."""
ASKED_BY_SERVER = "asked_by_server"
"""The parameter that makes a fault target the requests that the server of the trigger's frame sends
to other servers in turn.
"""


def await_frame(
    injection: Injection, act: Act, *, is_response: bool, apis: Sequence[int] | None = ANY_API
) -> None:
    """Act on the frame of the trigger or, if that is of another type or was sent already, on the
    next one that matches, until the fault is over.

    Without a frame as the trigger, any frame of the chosen APIs matches that the target serves;
    with the parameter `asked_by_server`, that it sends.
    """
    own = _own_frame(injection, apis)
    if own is not None and own.is_response == is_response and injection.is_before and act(own):
        return
    seen = injection.trigger_context.frame
    server = (
        seen.server
        if seen is not None and injection.fault.target == AT_THE_TRIGGER
        else injection.target
    )
    is_from_server = ASKED_BY_SERVER in injection.fault.params and injection.flag(ASKED_BY_SERVER)

    def fits(frame: FrameSeen) -> bool:
        if own is None:
            return (frame.client if is_from_server else frame.server) == server and (
                apis is None or frame.api_key in apis
            )
        if frame.is_response and not own.is_response:
            return frame.request is own
        return frame is not own and (frame.api_key, frame.server, frame.client) == (
            own.api_key,
            own.server,
            own.client,
        )

    def look(frame: FrameSeen, moment: str) -> None:
        if moment == BEFORE and frame.is_response == is_response and fits(frame) and act(frame):
            end()

    end = injection.simulation.triggers.follow_frames(look)
    injection.finally_(end)


def apis_of(injection: Injection) -> tuple[int, ...] | None:
    """Return the API of a fault's parameter, or None for any."""
    api_key = injection.number_or_none(API_KEY)
    return None if api_key is None else (api_key,)


def _own_frame(injection: Injection, apis: Sequence[int] | None) -> FrameSeen | None:
    """Return the frame of the trigger, if the fault may target it."""
    frame = injection.trigger_context.frame
    if frame is None or (apis is not None and frame.api_key not in apis):
        return None
    return frame if injection.fault.target in (AT_THE_TRIGGER, frame.server) else None


# --------------------------------------------------------------------------------------------------
# The frame that a protocol fault targets, over sockets: the one that fired its trigger, the
# answer to that, or the next one at a server
#
# The same rules as in simulation (`kraftsim.lab.faults.kinds.requests`); the proxy finds the frame
# and holds it.


async def held_frame(injection: SocketInjection, *, is_response: bool) -> HeldFrame | None:
    """Return the frame, held, and store it in the fault; None if the fault ended before one came.

    The trigger's frame passes if it is another one.
    """
    own, api_key = injection.frame, injection.number_or_none("api_key")
    trigger = injection.fault.trigger
    is_meant = (
        own is not None
        and api_key in (None, own.api_key)
        and injection.fault.target in (AT_THE_TRIGGER, own.server)
    )
    if own is None or not is_meant:
        server = (
            own.server
            if own is not None and injection.fault.target == AT_THE_TRIGGER
            else injection.target
        )
        is_from_server = ASKED_BY_SERVER in injection.fault.params and injection.flag(
            ASKED_BY_SERVER
        )
        watch = Watch(
            api_key=api_key,
            is_response=is_response,
            client=server if is_from_server else None,
            server=None if is_from_server else server,
        )
    elif (
        own.is_response == is_response
        and isinstance(trigger, OnFrame)
        and trigger.moment == "before"
    ):
        return own
    elif is_response:
        watch = Watch(
            is_response=True, connection=own.connection, correlation_id=own.correlation_id
        )
    else:
        watch = Watch(api_key=own.api_key, client=own.client, server=own.server)
    coming = asyncio.ensure_future(injection.field.next_frame(watch))
    await asyncio.sleep(0)  # the request to watch is sent before the one to release
    if own is not None:
        await own.let_pass()
    injection.frame = await injection.before_it_ends(coming, injection.integer("duration_ms"))
    return injection.frame


COPIED_AT_ONCE = (
    ApiKey.BROKER_REGISTRATION,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.UPDATE_METADATA,
)
"""A late copy of a registration registers a process that has ended, and the next one is refused
until it is restarted again. A late copy of UpdateMetadata replaces newer leaders and replicas, of
which the controller says nothing again: kafka.server.MetadataCache 2.8.2 and ZkMetadataCache 3.9.1
compare no epochs of partitions. Both in Apache Kafka as well.
"""


def _copy_after_ms(api_key: int, after_ms: int, wanted: int | None) -> int:
    """Return after how long a request is copied: 0 if a late copy does lasting harm, unless the
    fault names the API.
    """
    return 0 if api_key in COPIED_AT_ONCE and api_key != wanted else after_ms


def duplicate_request(injection: Injection) -> None:
    """A request is processed twice: its bytes are sent again on a new connection of the same
    client, as after a retry, and that answer is discarded.

    The retry need not be one that kraftsim's clients make: a server must handle whatever the
    network delivers. The effect of a repeated request depends on sequence numbers, epochs and
    incarnation ids, or on nothing at all. Source: KIP-98 (duplicates), KAFKA-9144.

    Registrations and UpdateMetadata are copied at once unless `api_key` names the API: nothing
    repairs what a late copy of them has undone, in Apache Kafka as well.

    Repeat the request of the trigger, or the target's next one; it is effective when the server
    answers a copy.
    """
    simulation = injection.simulation

    def act(frame: FrameSeen) -> bool:
        client = simulation.host(frame.client)
        address, port = frame.transport.remote
        after_ms = _copy_after_ms(
            frame.api_key, injection.integer("after_ms"), injection.number_or_none(API_KEY)
        )

        def on_answer(size_bytes: int) -> None:
            injection.record_effect(
                f"a second request of API {frame.api_key} was answered with {size_bytes} bytes"
            )

        def keep(data: bytes) -> bytes:
            for number in range(injection.integer("times")):
                injection.after(
                    after_ms * (number + 1),
                    lambda: simulation.network.resend(client, address, port, data, on_answer),
                )
            return data

        frame.rewrite(keep)
        return True

    await_frame(injection, act, is_response=False, apis=apis_of(injection))
    injection.lasting(lambda: None, injection.integer("duration_ms"))


async def duplicate_request_over_sockets(injection: SocketInjection) -> None:
    """Let the proxy send copies of the held request on new connections."""
    frame = await held_frame(injection, is_response=False)
    if frame is None:
        return
    after_ms = _copy_after_ms(
        frame.api_key, injection.integer("after_ms"), injection.number_or_none(API_KEY)
    )
    for number in range(injection.integer("times")):
        await frame.repeat(after_ms * (number + 1))
    await frame.let_pass()
    size_bytes = await injection.before_it_ends(
        frame.copy_answered(), injection.integer("duration_ms")
    )
    if size_bytes:
        injection.record_effect(
            f"a second request of API {frame.api_key} was answered with {size_bytes} bytes"
        )


DUPLICATE_REQUEST = FaultKind(
    name="duplicate-request",
    title="a duplicate request",
    family=Family.PROTOCOL,
    inject=duplicate_request,
    over_sockets=duplicate_request_over_sockets,
    modes=EVERYWHERE,
    params={"api_key": None, "after_ms": 1, "times": 1, "duration_ms": 10_000},
    triggers_on=("time", "frame", "event", "state"),
    draws={
        "after_ms": OneOf((0, 1, 10, 200, 2000)),
        "times": OneOf((1, 1, 3)),
        "duration_ms": Between(500, 8000),
    },
)


def overtaken_request(injection: Injection) -> None:
    """A request is overtaken: the network delays it and its connection, while later requests of the
    same API reach the server on other connections.

    A client that timed out has retried by then; the old request is processed after the new one, and
    its answer is lost. On one connection TCP keeps the order; between connections nothing does.
    With `overtaken_by` 0 the request is delayed while the fault lasts.

    BrokerRegistration is excluded unless `api_key` names that API: if the request of a killed
    process arrives after that of the next one, the killed incarnation is registered, and the
    running one gets STALE_BROKER_EPOCH until it is restarted, in Apache Kafka as well.

    Hold the request of the trigger, or the target's next one, until others have overtaken it; it is
    effective when it is released after that.
    """
    releases: list[Callable[[], None]] = []

    def act(frame: FrameSeen) -> bool:
        if _is_spared(frame.api_key, injection.number_or_none(API_KEY)):
            return False
        release = frame.hold()
        releases.append(release)
        wanted = injection.integer("overtaken_by")
        is_same_client = injection.flag("same_client")

        def look(other: FrameSeen, moment: str) -> None:
            nonlocal wanted
            if (
                moment != "after"
                or other.is_response
                or (other.api_key, other.server) != (frame.api_key, frame.server)
            ):
                return
            if other.transport is frame.transport or (
                is_same_client and other.client != frame.client
            ):
                return
            wanted -= 1
            if wanted == 0:
                end()
                injection.after(injection.integer("after_ms"), let_go)

        def let_go() -> None:
            if not injection.is_over:
                injection.record_effect(
                    f"a request of API {frame.api_key} was overtaken by "
                    f"{injection.integer('overtaken_by')} later ones"
                )
            release()

        end = injection.simulation.triggers.follow_frames(look)
        injection.finally_(end)
        return True

    def deliver() -> None:
        if releases and not injection.integer("overtaken_by"):
            injection.record_effect("a request was delayed in the network")
        for release in releases:
            release()

    await_frame(injection, act, is_response=False, apis=apis_of(injection))
    injection.lasting(deliver, injection.integer("duration_ms"))


async def overtaken_request_over_sockets(injection: SocketInjection) -> None:
    """Hold the request in the proxy until others of its API have passed on other connections."""
    frame = await held_frame(injection, is_response=False)
    if frame is None:
        return
    if _is_spared(frame.api_key, injection.number_or_none(API_KEY)):
        await frame.let_pass()
        return
    await frame.send()
    if not injection.integer("overtaken_by"):
        await asyncio.sleep(injection.integer("duration_ms") / 1000)
        injection.record_effect("a request was delayed in the network")
        return
    watch = Watch(
        api_key=frame.api_key,
        client=frame.client if injection.flag("same_client") else None,
        server=frame.server,
        not_connection=frame.connection,
        nth=injection.integer("overtaken_by"),
        moment="after",
    )
    other = await injection.before_it_ends(
        injection.field.next_frame(watch), injection.integer("duration_ms")
    )
    if other is not None:
        await other.let_pass()
        await asyncio.sleep(injection.integer("after_ms") / 1000)
        injection.record_effect(
            f"a request of API {frame.api_key} was overtaken by "
            f"{injection.integer('overtaken_by')} later ones"
        )


def _is_spared(api_key: int, wanted: int | None) -> bool:
    return api_key == BROKER_REGISTRATION != wanted


OVERTAKEN_REQUEST = FaultKind(
    name="overtaken-request",
    title="an overtaken request",
    family=Family.PROTOCOL,
    inject=overtaken_request,
    over_sockets=overtaken_request_over_sockets,
    modes=EVERYWHERE,
    params={
        "api_key": None,
        "asked_by_server": False,
        "overtaken_by": 1,
        "same_client": True,
        "after_ms": 20,
        "duration_ms": 30_000,
    },
    triggers_on=("time", "frame", "event", "state"),
    draws={
        "overtaken_by": OneOf((1, 1, 2, 5)),
        "same_client": OneOf((True, False)),
        "after_ms": OneOf((5, 20, 500)),
        "duration_ms": Between(1000, 30_000),
    },
)


def late_reply(injection: Injection) -> None:
    """An answer arrives after its client's request has timed out: on a closed connection, or at a
    client that has retried elsewhere by now.

    The answer and everything behind it on its connection wait until the client closes the
    connection, and are delivered then; a client that does not time out gets them when the fault is
    over, which is not effective unless `is_given_up` is False.

    Hold the target's next answer, or that to the request of the trigger, until its client gives up;
    it is effective when the client does.
    """
    releases: list[Callable[[], None]] = []

    def act(frame: FrameSeen) -> bool:
        release = frame.hold()
        releases.append(release)

        def on_given_up(error: OSError | None) -> None:
            if error is None and not injection.is_over:
                injection.record_effect(
                    f"the client gave up waiting for the answer to API {frame.api_key}"
                )
            injection.after(injection.integer("after_ms"), release)

        frame.transport.peer.when_lost(on_given_up)
        return True

    def deliver() -> None:
        if releases and not injection.flag("is_given_up"):
            injection.record_effect("an answer came late")
        for release in releases:
            release()

    await_frame(injection, act, is_response=True, apis=apis_of(injection))
    injection.lasting(deliver, injection.integer("duration_ms"))


async def late_reply_over_sockets(injection: SocketInjection) -> None:
    """Let the proxy hold the answer until the client closes the connection."""
    frame = await held_frame(injection, is_response=True)
    if frame is None:
        return
    await frame.send()
    if await injection.before_it_ends(frame.given_up(), injection.integer("duration_ms")):
        injection.record_effect(f"the client gave up waiting for the answer to API {frame.api_key}")
        await asyncio.sleep(injection.integer("after_ms") / 1000)
    elif not injection.flag("is_given_up"):
        injection.record_effect("an answer came late")


LATE_REPLY = FaultKind(
    name="late-reply",
    title="an answer after the request time-out",
    family=Family.PROTOCOL,
    inject=late_reply,
    over_sockets=late_reply_over_sockets,
    modes=EVERYWHERE,
    params={"api_key": None, "after_ms": 1, "is_given_up": True, "duration_ms": 60_000},
    triggers_on=("time", "frame", "event", "state"),
    draws={"after_ms": OneOf((0, 1, 50, 500)), "duration_ms": Between(2000, 60_000)},
)


def lost_reply(injection: Injection) -> None:
    """A request is processed, and its connection is reset before a byte of the answer arrives: the
    client cannot know whether it took effect.

    The case for which idempotent producers and retries of AllocateProducerIds were designed.
    Source: KIP-98, KIP-730.

    Reset the connection in place of the target's next answer, or of that to the request of the
    trigger; it is effective at that moment.
    """

    def act(frame: FrameSeen) -> bool:
        frame.cut(0)
        injection.record_effect(f"the answer to API {frame.api_key} was lost with its connection")
        return True

    await_frame(injection, act, is_response=True, apis=apis_of(injection))
    injection.lasting(lambda: None, injection.integer("duration_ms"))


async def lost_reply_over_sockets(injection: SocketInjection) -> None:
    """The same for an answer that the proxy holds."""
    frame = await held_frame(injection, is_response=True)
    if frame is not None:
        await frame.cut(0)
        injection.record_effect(f"the answer to API {frame.api_key} was lost with its connection")


LOST_REPLY = FaultKind(
    name="lost-reply",
    title="a processed request with a lost answer",
    family=Family.PROTOCOL,
    inject=lost_reply,
    over_sockets=lost_reply_over_sockets,
    modes=EVERYWHERE,
    params={"api_key": None, "duration_ms": 10_000},
    triggers_on=("time", "frame", "event", "state"),
    draws={"duration_ms": Between(500, 8000)},
)


QUORUM_APIS = tuple(
    int(key)
    for key in (
        ApiKey.FETCH,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH_SNAPSHOT,
    )
)
CORRELATION_ID_BYTES = 4
NO_EPOCH = -1


def record_conversations(injection: Injection) -> None:
    """Start recording answers."""
    injection.recorded = RecordedAnswers(injection, QUORUM_APIS, _conversation)


def old_epoch_answer(injection: Injection) -> None:
    """A replica of the metadata quorum sends an answer of an earlier epoch in place of the new one,
    as if it had not learned of the new epoch.

    The answers of Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot contain their
    epoch, and a replica must ignore one of an epoch before its own. Answers without an epoch
    (AllocateProducerIds, BrokerHeartbeat) are not replaced: a receiver could not detect those.

    Replace the target's next answers for which one of an earlier epoch was recorded; it is
    effective with the first.

    Source: KIP-595, org.apache.kafka.raft.KafkaRaftClient.maybeHandleCommonResponse.
    """
    recorded = injection.recorded
    assert recorded is not None, "answers are recorded since the fault was armed"
    left = injection.integer("times")

    def act(frame: FrameSeen) -> bool:
        def older(answers: list[bytes], current: bytes) -> bytes | None:
            nonlocal left
            epoch = epoch_of(frame.api_key, frame.api_version, current)
            others = [
                answer
                for answer in answers
                if NO_EPOCH < epoch_of(frame.api_key, frame.api_version, answer) < epoch
            ]
            if not others or left == 0:
                return None
            left -= 1
            injection.record_effect(
                f"an answer of API {frame.api_key} in epoch {epoch} was replaced by one of an "
                "earlier epoch"
            )
            return others[-1]

        if left and frame.request is not None and frame.request.data:
            recorded.replace(frame, older)
        return left == 0

    await_frame(injection, act, is_response=True, apis=QUORUM_APIS)
    injection.lasting(lambda: None, injection.integer("duration_ms"))


def epoch_of(api_key: int, api_version: int, content: bytes) -> int:
    """Return the leader epoch of a quorum answer; NO_EPOCH if it has none.

    `content` begins behind the correlation id.
    """
    body = decode_response_body(api_key, api_version, bytes(CORRELATION_ID_BYTES) + content)
    epochs: list[int] = []
    match body:
        case FetchResponse():
            epochs = [
                part.current_leader.leader_epoch
                for topic in body.responses
                for part in topic.partitions
            ]
        case FetchSnapshotResponse():
            epochs = [
                part.current_leader.leader_epoch
                for topic in body.topics
                for part in topic.partitions
            ]
        case VoteResponse() | BeginQuorumEpochResponse() | EndQuorumEpochResponse():
            epochs = [part.leader_epoch for topic in body.topics for part in topic.partitions]
    return epochs[0] if len(epochs) == 1 else NO_EPOCH


def _conversation(frame: FrameSeen) -> Hashable:
    """Return client, server, API and version of an answer."""
    return frame.client, frame.server, frame.api_key, frame.api_version


OLD_EPOCH_ANSWER = FaultKind(
    name="old-epoch-answer",
    title="an answer of an earlier leader epoch",
    family=Family.PROTOCOL,
    inject=old_epoch_answer,
    needs_quorum=True,
    prepare=record_conversations,
    params={"times": 1, "duration_ms": 10_000},
    triggers_on=("time", "frame", "event", "state"),
    draws={"times": Between(1, 10), "duration_ms": Between(500, 8000)},
)


METADATA = int(ApiKey.METADATA)


def record_metadata(injection: Injection) -> None:
    """Start recording answers."""
    injection.recorded = RecordedAnswers(injection, (METADATA,), _question)


def stale_metadata(injection: Injection) -> None:
    """A server sends an older answer to the same Metadata request in place of the new one: a broker
    that lags behind.

    Clients must handle it (with the leader epochs of KIP-320): they send requests to a former
    leader, get an error, and refresh their metadata.

    Replace the target's next answers for which an older, different one was recorded; it is
    effective with the first.
    """
    recorded = injection.recorded
    assert recorded is not None, "answers are recorded since the fault was armed"
    left = injection.integer("times")

    def older(answers: list[bytes], current: bytes) -> bytes | None:
        nonlocal left
        others = [answer for answer in answers if answer != current]
        if not others or left == 0:
            return None
        left -= 1
        injection.record_effect("an answer to Metadata was replaced by an old one")
        return others[-min(injection.integer("age"), len(others))]

    def act(frame: FrameSeen) -> bool:
        if left and frame.request is not None and frame.request.data:
            recorded.replace(frame, older)
        return left == 0

    await_frame(injection, act, is_response=True, apis=(METADATA,))
    injection.lasting(lambda: None, injection.integer("duration_ms"))


def _question(frame: FrameSeen) -> Hashable:
    """Return server, request and version of an answer."""
    assert frame.request is not None, "only answers to recorded requests are looked at"
    request = frame.request.data[SIZE_FIELD_BYTES:]
    return frame.server, frame.api_version, request[read_request_head(request).body_position :]


STALE_METADATA = FaultKind(
    name="stale-metadata",
    title="a stale answer to Metadata",
    family=Family.PROTOCOL,
    inject=stale_metadata,
    prepare=record_metadata,
    params={"age": 1, "times": 1, "duration_ms": 10_000},
    triggers_on=("time", "frame", "event", "state"),
    draws={"age": Between(1, 8), "times": Between(1, 5), "duration_ms": Between(500, 8000)},
)


FAULTS = (
    DUPLICATE_REQUEST,
    OVERTAKEN_REQUEST,
    LATE_REPLY,
    LOST_REPLY,
    OLD_EPOCH_ANSWER,
    STALE_METADATA,
)
