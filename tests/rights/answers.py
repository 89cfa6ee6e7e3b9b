"""The responses of a node to a principal without ACLs: every API, version and listener, as
comparable texts.

A response is written as its error codes and the lengths of its lists, by path:
`topics[].error_code=29`, `topics#1`.
"""

from collections.abc import Iterator
from functools import partial
from itertools import groupby

from kraftsim.conformance.batches import batch
from kraftsim.conformance.expect import settled
from kraftsim.conformance.peer import Peer, PeerClosed, PeerSilent
from kraftsim.conformance.security_login import log_in
from kraftsim.conformance.security_rights import (
    CLUSTER,
    CLUSTER_NAME,
    GROUP,
    TOPIC,
    TRANSACTION,
    create,
    rule,
)
from kraftsim.conformance.target import Target
from kraftsim.releases.release import release
from kraftsim.server.forwarding import broker_handlers
from kraftsim.server.security.controller_guards import CONTROLLER_TABLE
from protocol.acls import AclOperation
from protocol.api_keys import ApiKey
from protocol.codec.declaration import ArrayOf, StructureOf
from protocol.codec.tree import fields_of
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.registry import response_class, versions_of
from protocol.schema import Message, declaration_of
from tests.rights.bodies import Resources, variants

Table = dict[str, dict[str, dict[str, dict[str, list[str]]]]]
"""Listener -> principal -> request -> range of versions -> response."""
UNRIGHTED, DESCRIBER = "bob", "alice"
PRINCIPALS = {UNRIGHTED: "no rules", DESCRIBER: "DESCRIBE of everything"}
NOT_ASKED = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""APIs that are served before authorization."""
PER_NODE = frozenset(
    {
        "brokers",
        "controllers",
        "supported_features",
        "finalized_features",
        "configs",
        "voters",
        "observers",
        "nodes",
        "node_endpoints",
    }
)
"""Lists that depend on the node and its release."""
OWN_KEYS = frozenset(int(key) for key in ApiKey)
CLOSED, SILENT = ["closed"], ["silent"]
ANSWER_SECONDS = 20.0
SETTLE_SECONDS = 30.0


def served(line: str, listener: str) -> dict[ApiKey, tuple[int, int]]:
    """Return the APIs and versions that our nodes of a release serve on a listener."""
    if listener == "broker":
        offered, built = release(line).broker_apis, {handler.key for handler in broker_handlers()}
    else:
        offered, built = (
            release(line).controller_apis,
            {*CONTROLLER_TABLE.guards, *CONTROLLER_TABLE.exempt},
        )
    found = {}
    for key in sorted(set(offered) & built - NOT_ASKED):
        (first, last), (own_first, own_last) = offered[key], versions_of(key)
        found[key] = max(first, own_first), min(last, own_last)
    return found


def advertised(target: Target) -> dict[ApiKey, tuple[int, int]]:
    """Return the APIs that a broker in ZooKeeper mode advertises and kraftsim can send, and
    Envelope, on which it closes the connection.
    """
    found = {ApiKey.ENVELOPE: (0, 0)}
    for key, (first, last) in sorted(target.ranges().items()):
        if key in OWN_KEYS and key not in NOT_ASKED:
            own_first, own_last = versions_of(ApiKey(key))
            found[ApiKey(key)] = max(first, own_first), min(last, own_last)
    return found


def prepared(target: Target) -> Resources:
    """Create a topic with a record, a group with a commit and a transactional id; allow alice to
    describe everything.
    """
    topic = target.topic(name="rights-topic")
    with target.peer() as peer:
        rows = [
            TopicProduceData(
                name=topic.name, partition_data=[PartitionProduceData(index=0, records=batch())]
            )
        ]
        ask = partial(
            peer.ask, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=rows), 9, ProduceResponse
        )
        settled(
            lambda: ask().responses[0].partition_responses[0].error_code,
            lambda error: not error,
            "a record",
        )
        for kind, name in enumerate(("rights-group", "rights-txn")):
            where = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
            settled(
                partial(_coordinator_error, peer, where),
                lambda error: not error,
                "a coordinator",
                SETTLE_SECONDS,
            )
        offsets = OffsetCommitRequestTopic(
            name=topic.name, partitions=[OffsetCommitRequestPartition(committed_offset=1)]
        )
        commit = OffsetCommitRequest(group_id="rights-group", topics=[offsets])
        settled(
            lambda: peer.ask(commit, 8, OffsetCommitResponse).topics[0].partitions[0].error_code,
            lambda error: not error,
            "a commit",
            SETTLE_SECONDS,
        )
        asked = InitProducerIdRequest(transactional_id="rights-txn", transaction_timeout_ms=60000)
        given = settled(
            lambda: peer.ask(asked, 4, InitProducerIdResponse),
            lambda answer: not answer.error_code,
            "a producer id",
            SETTLE_SECONDS,
        )
        cluster_id = peer.ask(MetadataRequest(topics=[]), 9, MetadataResponse).cluster_id
    of = {TOPIC: "*", GROUP: "*", TRANSACTION: "*", CLUSTER: CLUSTER_NAME}
    create(
        target,
        *(rule(name, AclOperation.DESCRIBE, resource=resource) for resource, name in of.items()),
    )
    return Resources(
        topic.name,
        topic.topic_id,
        "rights-group",
        "rights-txn",
        given.producer_id,
        given.producer_epoch,
        cluster_id or "",
    )


def _coordinator_error(peer: Peer, asked: FindCoordinatorRequest) -> int:
    return peer.ask(asked, 4, FindCoordinatorResponse).coordinators[0].error_code


def table_of(target: Target, line: str) -> Table:
    """Send every request to one node, on all of its listeners: a node without a controller listener
    is in ZooKeeper mode.
    """
    things = prepared(target)
    found: Table = {}
    places = {"broker": target.sasl, "controller": target.sasl_controller}
    for listener, address in places.items():
        if not address:
            continue
        for principal in PRINCIPALS:
            with RetryingClient(target, address, principal) as requester:
                rows: dict[str, dict[int, list[str]]] = {}
                offered = served(line, listener) if target.sasl_controller else advertised(target)
                for key, (first, last) in offered.items():
                    for version in range(first, last + 1):
                        for label, body in variants(key, version, things):
                            rows.setdefault(label, {})[version] = requester.ask(key, body, version)
            found.setdefault(listener, {})[principal] = {
                label: by_ranges(answers) for label, answers in sorted(rows.items())
            }
    return found


class RetryingClient:
    """One client that reconnects and logs in again after the node closed the connection."""

    def __init__(self, target: Target, address: str, user: str) -> None:
        self._target, self._address, self._user = target, address, user
        self._peer: Peer | None = None

    def __enter__(self) -> "RetryingClient":
        return self

    def __exit__(self, *_: object) -> None:
        if self._peer is not None:
            self._peer.close()

    def ask(self, key: ApiKey, body: Message, version: int) -> list[str]:
        """Return the response."""
        if self._peer is None:
            self._peer = self._target.peer(self._address, ANSWER_SECONDS)
            log_in(self._peer, self._user, f"{self._user}-secret")
        try:
            return sorted(
                set(_words("", self._peer.ask(body, version, response_class(key)), version))
            )
        except (PeerClosed, PeerSilent) as failure:
            self._peer.close()
            self._peer = None
            return SILENT if isinstance(failure, PeerSilent) else CLOSED


def _words(path: str, answer: Message, version: int) -> Iterator[str]:
    for field in fields_of(declaration_of(type(answer))):
        value = getattr(answer, field.name)
        if version not in field.versions or field.name in PER_NODE:
            continue
        if field.name.endswith("error_code"):
            yield f"{path}{field.name}={int(value)}"
        elif field.name == "records" and value:
            yield f"{path}records"
        elif isinstance(field.type, ArrayOf):
            size = (
                "null"
                if value is None
                else min(len(value), 1)
                if field.name == "partitions"
                else len(value)
            )
            yield f"{path}{field.name}#{size}"
            if isinstance(field.type.element, StructureOf):
                for each in value or ():
                    yield from _words(f"{path}{field.name}[].", each, version)


def by_ranges(answers: dict[int, list[str]]) -> dict[str, list[str]]:
    """Merge versions with the same response."""
    found = {}
    for words, group in groupby(sorted(answers), key=lambda version: answers[version]):
        versions = list(group)
        found[f"{versions[0]}-{versions[-1]}"] = words
    return found


def by_version(ranges: dict[str, list[str]]) -> dict[int, list[str]]:
    """Expand merged versions."""
    found = {}
    for versions, words in ranges.items():
        first, _, last = versions.partition("-")
        found.update(dict.fromkeys(range(int(first), int(last) + 1), words))
    return found
