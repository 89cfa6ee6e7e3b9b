"""ShareFetch and ShareAcknowledge on the leader of partitions: sorts out what a client may not ask,
and joins the results of its acknowledgements and of its fetch in one response.

A ShareFetch acknowledges first and fetches then; it is answered when both are done. Membership is
not checked: a client with a session may fetch for any group that it is authorized for, as in Kafka.

Source: kafka.server.KafkaApis.{handleShareFetchRequest, handleShareAcknowledgeRequest,
validateAcknowledgementBatches, processShareFetchResponse}.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from kraftsim.core.decision import Refusal
from kraftsim.groups.rules_group_configs import SHARE_ISOLATION, GroupConfigs
from kraftsim.server.call import Allows, Answer, Call, Deferred
from kraftsim.server.client_quotas import CONSUMER_BYTES, MeasuringNode, mute
from kraftsim.server.serving_broker import AddressBroker
from kraftsim.share_groups.events import ShareSessionOpened
from kraftsim.share_groups.persister import Persister
from kraftsim.share_groups.rules_share_acknowledgement import Acknowledgement
from kraftsim.share_groups.rules_share_acquisition import AcquireMode
from kraftsim.share_groups.rules_share_sessions import (
    SessionKey,
    SharedTopicPartition,
    ShareFetchContext,
    TopicIdAndPartition,
    rotated,
)
from kraftsim.share_groups.share_fetching import (
    DelayedShareFetch,
    Rows,
    ShareFetchRequestInSession,
    refused_row,
)
from kraftsim.share_groups.share_partitions import SharePartitionManager, ShareSettings
from kraftsim.share_groups.share_reading import SharedLogBroker
from protocol.errors import ErrorCode
from protocol.messages import k78_share_fetch as share_fetch
from protocol.messages import k79_share_acknowledge as share_acknowledge
from protocol.messages.k78_share_fetch import (
    FIRST_SESSION_EPOCH,
    AcknowledgeType,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from protocol.messages.k79_share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

MEMBER_ID_LENGTH_MAX: Final = 36
FIRST_VERSION_WITH_RENEWAL: Final = 2
READ_COMMITTED: Final = "read_committed"
RENEWING_FIELDS: Final = ("max_bytes", "min_bytes", "max_records", "max_wait_ms")
MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Place: TypeAlias = TopicIdAndPartition
Given: TypeAlias = dict[Place, list[Acknowledgement]]
"""What a request acknowledges, by partition."""
Result: TypeAlias = tuple[ErrorCode, str | None]
Results: TypeAlias = dict[Place, Result]
"""The results of acknowledgements."""
NO_ERROR: Final[Result] = (ErrorCode.NONE, None)


class SharingBroker(SharedLogBroker, AddressBroker, MeasuringNode, Protocol):
    """A broker that serves share groups."""

    @property
    def serves_share_groups(self) -> bool:
        """Whether share.version is enabled."""
        ...

    @property
    def group_configs(self) -> GroupConfigs:
        """The configurations of groups."""
        ...


class ShareParts(Protocol):
    """What the release decides for share groups."""

    @property
    def throttles_deliveries(self) -> bool:
        """Whether records that failed several times are delivered in ever smaller numbers."""
        ...

    @property
    def counts_abandoned_deliveries(self) -> bool:
        """Whether a delivery counts although the member's session ended."""
        ...


def share_requests_of(
    broker: SharingBroker, persister: Persister, parts: ShareParts
) -> "ShareRequests":
    """Return what serves the members of share groups on a broker."""
    default = ShareSettings()
    settings = ShareSettings(
        sessions_max=broker.group_configs.setting_number(
            "group.share.max.share.sessions", default.sessions_max
        ),
        throttles_deliveries=parts.throttles_deliveries,
        counts_abandoned=parts.counts_abandoned_deliveries,
    )
    manager = SharePartitionManager(broker, persister, broker.group_configs, settings)
    return ShareRequests(broker, manager)


class ShareRequests:
    """The requests of members of share groups."""

    def __init__(self, broker: SharingBroker, manager: SharePartitionManager) -> None:
        self.manager = manager
        self._broker = broker
        self._connections: set[int] = set()
        """Connections that have, or had, sessions."""

    # ShareFetch
    # ----------------------------------------------------------------------------------------------

    def fetch(self, call: Call, allows: Allows | None) -> Answer | Deferred:
        """Serve a ShareFetch."""
        request = call.body
        assert isinstance(request, ShareFetchRequest), "dispatch decodes by API key"
        refused = self._refuse(request.group_id, request.member_id)
        if refused is None and self._renews(call) and _asks_too_much(request):
            refused = ErrorCode.INVALID_REQUEST
        if refused is not None:
            return ShareFetchResponse(error_code=refused)
        has_acknowledgements = _acknowledges(request.topics)
        context = self._begin(call, request, acknowledges=has_acknowledgements)
        deferred = Deferred()
        if isinstance(context, Refusal):
            response = ShareFetchResponse(error_code=context.error)
            if context.error is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
                _complete_later(deferred, response, request.max_wait_ms)
                return deferred
            return response
        answer = _FetchAnswer(self, call, context, deferred)
        given = acknowledged(request.topics) if has_acknowledgements else {}
        self._acknowledge(call, _key_of(request), given, allows, answer.on_acknowledged)
        if self._renews(call):
            answer.on_fetched({})
        else:
            self._fetch(call, request, context, allows, answer)
        return deferred

    def _begin(
        self, call: Call, request: ShareFetchRequest, *, acknowledges: bool
    ) -> ShareFetchContext | Refusal:
        key = _key_of(request)
        context = self.manager.sessions.begin(
            key,
            request.share_session_epoch,
            call.connection.number,
            added=[
                self._with_name(TopicIdAndPartition(topic.topic_id, partition.partition_index))
                for topic in request.topics
                for partition in topic.partitions
            ],
            removed=[
                TopicIdAndPartition(topic.topic_id, number)
                for topic in request.forgotten_topics_data
                for number in topic.partitions
            ],
            acknowledges=acknowledges,
        )
        if (
            isinstance(context, ShareFetchContext)
            and request.share_session_epoch == FIRST_SESSION_EPOCH
        ):
            self._on_opened(call, key)
        return context

    def _on_opened(self, call: Call, key: SessionKey) -> None:
        number = call.connection.number
        self._broker.world.emit(
            ShareSessionOpened(group_id=key.group_id, member_id=key.member_id, connection=number)
        )
        if number in self._connections:
            return
        self._connections.add(number)

        def on_lost() -> None:
            self._connections.discard(number)
            if not self._broker.shell.is_dead:
                self.manager.on_connection_lost(number)

        call.connection.when_lost(on_lost)

    def _fetch(
        self,
        call: Call,
        request: ShareFetchRequest,
        context: ShareFetchContext,
        allows: Allows | None,
        answer: "_FetchAnswer",
    ) -> None:
        refused: Rows = {}
        readable = []
        for each in context.partitions:
            error = self._refuse_partition(each, allows)
            if error is None:
                readable.append(each)
            else:
                refused[each.id] = refused_row(each.id.partition, error, None)
        if not readable:
            answer.on_fetched(refused)
            return
        limit = self._broker.quotas.most_at_once(call, CONSUMER_BYTES)
        max_bytes = min(request.max_bytes, self._broker.config.fetch_max_bytes)
        isolation = self._broker.group_configs.text(request.group_id or "", SHARE_ISOLATION)
        asked = ShareFetchRequestInSession(
            key=_key_of(request),
            partitions=rotated(readable, request.share_session_epoch),
            min_bytes=request.min_bytes,
            max_bytes=max_bytes if limit is None else min(max_bytes, limit),
            records_max=request.max_records,
            batch_size=request.batch_size,
            mode=AcquireMode(request.share_acquire_mode),
            reads_committed=isolation.lower() == READ_COMMITTED,
        )
        fetch = DelayedShareFetch(
            self._broker, self.manager, asked, lambda rows: answer.on_fetched({**rows, **refused})
        )
        if not fetch.begin():
            return
        waiting = self.manager.waiting
        operation = waiting.try_complete_else_watch(fetch, fetch.keys(), request.max_wait_ms)
        if operation is not None:
            answer.deferred.when_abandoned(lambda: waiting.leave(operation))

    def _refuse_partition(
        self, each: SharedTopicPartition, allows: Allows | None
    ) -> ErrorCode | None:
        if each.topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if allows is not None and not allows(each.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if self._broker.image.partition(each.topic, each.id.partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None

    # ShareAcknowledge
    # ----------------------------------------------------------------------------------------------

    def acknowledge(self, call: Call, allows: Allows | None) -> Answer | Deferred:
        """Serve a ShareAcknowledge."""
        request = call.body
        assert isinstance(request, ShareAcknowledgeRequest), "dispatch decodes by API key"
        refused = self._refuse(request.group_id, request.member_id)
        if refused is not None:
            return ShareAcknowledgeResponse(error_code=refused)
        key = _key_of(request)
        refusal = self.manager.sessions.acknowledge(key, request.share_session_epoch)
        if refusal is not None:
            return ShareAcknowledgeResponse(error_code=refusal.error)
        deferred = Deferred()

        def on_done(results: Results) -> None:
            if request.share_session_epoch == share_fetch.FINAL_SESSION_EPOCH:
                self.manager.close_session(key, "closed by the member")
            deferred.complete(self._acknowledged(call, request, results))

        given = acknowledged(request.topics)
        self._acknowledge(call, key, given, allows, on_done)
        return deferred

    def _acknowledged(
        self, call: Call, request: ShareAcknowledgeRequest, results: Results
    ) -> ShareAcknowledgeResponse:
        response = ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self.lock_timeout_ms(request.group_id)
        )
        topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
        endpoints: dict[int, share_acknowledge.NodeEndpoint] = {}
        for place, (error, message) in results.items():
            topic = topics.get(place.topic_id)
            if topic is None:
                topic = topics[place.topic_id] = ShareAcknowledgeTopicResponse(
                    topic_id=place.topic_id
                )
            row = share_acknowledge.PartitionData(
                partition_index=place.partition, error_code=error, error_message=message
            )
            if error in MOVED:
                found = self.current_leader(place)
                if found is not None:
                    row.current_leader = share_acknowledge.LeaderIdAndEpoch(
                        leader_id=found[0], leader_epoch=found[1]
                    )
                    self._add_endpoint(call, found[0], endpoints)
            topic.partitions.append(row)
        response.responses = list(topics.values())
        response.node_endpoints = list(endpoints.values())
        return response

    def _add_endpoint(
        self, call: Call, leader: int, endpoints: dict[int, share_acknowledge.NodeEndpoint]
    ) -> None:
        address = self._broker.address_of(leader, call.listener)
        if address is not None:
            endpoints[leader] = share_acknowledge.NodeEndpoint(
                node_id=leader, host=address.host, port=address.port, rack=address.rack
            )

    # Both
    # ----------------------------------------------------------------------------------------------

    def _refuse(self, group_id: str | None, member_id: str | None) -> ErrorCode | None:
        if not self._broker.serves_share_groups:
            return ErrorCode.UNSUPPORTED_VERSION
        if group_id is None or not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
            return ErrorCode.INVALID_REQUEST
        return None

    @staticmethod
    def _renews(call: Call) -> bool:
        return call.api_version >= FIRST_VERSION_WITH_RENEWAL and bool(call.body.is_renew_ack)

    def _with_name(self, place: Place) -> SharedTopicPartition:
        known = self._broker.image.topic_by_id(place.topic_id)
        return SharedTopicPartition(place, None if known is None else known.name)

    def _acknowledge(
        self,
        call: Call,
        key: SessionKey,
        given: Given,
        allows: Allows | None,
        on_done: Callable[[Results], None],
    ) -> None:
        """Acknowledge what may be acknowledged.

        A partition without ranges has a result only beside others that are acknowledged.
        """
        may_renew = call.api_version >= FIRST_VERSION_WITH_RENEWAL
        results: Results = {}
        valid: dict[Place, Sequence[Acknowledgement]] = {}
        for place, ranges in given.items():
            each = self._with_name(place)
            error = ErrorCode.UNKNOWN_TOPIC_ID if each.topic is None else None
            if error is None and not is_valid(
                ranges, may_renew=may_renew, is_renewal=self._renews(call)
            ):
                error = ErrorCode.INVALID_REQUEST
            error = error or self._refuse_partition(each, allows)
            if error is None and ranges:
                valid[place] = ranges
            results[place] = NO_ERROR if error is None else (error, None)
        if not valid:
            on_done({place: result for place, result in results.items() if result is not NO_ERROR})
            return

        def applied(found: Mapping[Place, Refusal | None]) -> None:
            for place, refusal in found.items():
                if refusal is not None:
                    results[place] = refusal.error, refusal.why or None
            on_done(results)

        self.manager.acknowledge(key, valid, applied)

    def lock_timeout_ms(self, group_id: str | None) -> int:
        """Return how long the members of a group may keep records."""
        return self.manager.limits(group_id or "").record_lock_duration_ms

    def current_leader(self, place: Place) -> tuple[int, int] | None:
        """Return the leader and leader epoch of a partition; None if it is not known."""
        topic = self._with_name(place).topic
        known = None if topic is None else self._broker.image.partition(topic, place.partition)
        return None if known is None else (known.leader, known.leader_epoch)

    # The response to a ShareFetch
    # ----------------------------------------------------------------------------------------------

    def fetched(
        self, call: Call, context: ShareFetchContext, rows: Rows, results: Results
    ) -> ShareFetchResponse:
        """Build the response, throttled if the client is above its quota, and close the session if
        it is the last one.
        """
        request = call.body
        assert isinstance(request, ShareFetchRequest), "dispatch decodes by API key"
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=self.lock_timeout_ms(request.group_id)
        )
        shown: Rows = {}
        if context.is_overtaken:
            response.error_code = ErrorCode.INVALID_SHARE_SESSION_EPOCH
        elif pause_ms := self._throttle(call, rows):
            response.throttle_time_ms = pause_ms
        else:
            shown = context.changed(rows)
        endpoints: dict[int, share_fetch.NodeEndpoint] = {}
        for place, row in shown.items():
            if row.error_code in MOVED:
                self._name_leader(call, place, row, endpoints)
        for place, (error, message) in results.items():
            row = shown.setdefault(
                place, PartitionData(partition_index=place.partition, records=b"")
            )
            row.acknowledge_error_code, row.acknowledge_error_message = error, message
        response.responses = _by_topic(shown)
        response.node_endpoints = list(endpoints.values())
        if context.is_final:
            self.manager.close_session(_key_of(request), "closed by the member")
        return response

    def _throttle(self, call: Call, rows: Rows) -> int:
        quotas = self._broker.quotas
        if not quotas.are_set:
            return 0
        size_bytes = sum(len(row.records or b"") for row in rows.values())
        pause_ms = quotas.throttle(call, CONSUMER_BYTES, size_bytes)
        if pause_ms:
            quotas.unrecord(call, CONSUMER_BYTES, size_bytes)
            mute(call, pause_ms)
        return pause_ms

    def _name_leader(
        self,
        call: Call,
        place: Place,
        row: PartitionData,
        endpoints: dict[int, share_fetch.NodeEndpoint],
    ) -> None:
        found = self.current_leader(place)
        if found is None:
            return
        leader, leader_epoch = found
        row.current_leader = share_fetch.LeaderIdAndEpoch(
            leader_id=leader, leader_epoch=leader_epoch
        )
        address = self._broker.address_of(leader, call.listener)
        if address is not None:
            endpoints[leader] = share_fetch.NodeEndpoint(
                node_id=leader, host=address.host, port=address.port, rack=address.rack
            )


class _FetchAnswer:
    """Waits for the acknowledgements and for the fetch of one request."""

    def __init__(
        self, requests: ShareRequests, call: Call, context: ShareFetchContext, deferred: Deferred
    ) -> None:
        self.deferred = deferred
        self._requests = requests
        self._call = call
        self._context = context
        self._rows: Rows | None = None
        self._results: Results | None = None

    def on_acknowledged(self, results: Results) -> None:
        """All acknowledgements are stored, or refused."""
        self._results = results
        self._try()

    def on_fetched(self, rows: Rows) -> None:
        """The fetch is done."""
        self._rows = rows
        self._try()

    def _try(self) -> None:
        rows, results = self._rows, self._results
        if rows is not None and results is not None:
            self.deferred.complete_with(
                lambda: self._requests.fetched(self._call, self._context, rows, results)
            )


# --------------------------------------------------------------------------------------------------
# Acknowledgements of a request

AcknowledgingTopic: TypeAlias = share_fetch.FetchTopic | share_acknowledge.AcknowledgeTopic


def acknowledged(topics: Iterable[AcknowledgingTopic]) -> Given:
    """Return what a request acknowledges; of a partition named twice, what is named last."""
    return {
        TopicIdAndPartition(topic.topic_id, partition.partition_index): [
            Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
            for batch in partition.acknowledgement_batches
        ]
        for topic in topics
        for partition in topic.partitions
    }


def is_valid(given: Sequence[Acknowledgement], *, may_renew: bool, is_renewal: bool) -> bool:
    """Return whether the ranges of a partition ascend, and have known types: one, or one for each
    offset; renewals only in a request that is said to renew.
    """
    highest = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    last_offset = -1
    for each in given:
        if each.first_offset > each.last_offset or each.first_offset < last_offset:
            return False
        count = len(each.types)
        if not count or (count > 1 and each.last_offset - each.first_offset != count - 1):
            return False
        if any(not 0 <= kind <= highest for kind in each.types):
            return False
        if AcknowledgeType.RENEW in each.types and not is_renewal:
            return False
        last_offset = each.last_offset
    return True


def _acknowledges(topics: Iterable[share_fetch.FetchTopic]) -> bool:
    """Return whether a ShareFetch has acknowledgements: then all its partitions get a result."""
    return any(
        partition.acknowledgement_batches for topic in topics for partition in topic.partitions
    )


def _asks_too_much(request: ShareFetchRequest) -> bool:
    """Return whether a request that renews fetches, too (KIP-1222)."""
    return any(getattr(request, name) for name in RENEWING_FIELDS)


def _key_of(request: ShareFetchRequest | ShareAcknowledgeRequest) -> SessionKey:
    return SessionKey(request.group_id or "", request.member_id or "")


def _by_topic(rows: Rows) -> list[ShareFetchableTopicResponse]:
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    for place, row in rows.items():
        topic = topics.get(place.topic_id)
        if topic is None:
            topic = topics[place.topic_id] = ShareFetchableTopicResponse(topic_id=place.topic_id)
        topic.partitions.append(row)
    return list(topics.values())


def _complete_later(deferred: Deferred, response: ShareFetchResponse, delay_ms: int) -> None:
    """Answer after a pause, so that a client that cannot get a session does not ask all the
    time.
    """
    alarm = asyncio.get_running_loop().call_later(
        max(delay_ms, 0) / 1000, deferred.complete, response
    )
    deferred.when_abandoned(alarm.cancel)
