"""Validation of a cluster's znodes: a controller ignores unreadable ones and reports them, instead
of failing.

An unreadable configuration, ACL or token is treated as missing; a topic with any unreadable part is
ignored as a whole, so that no leader is elected on an unknown state.
Source: kafka.zk.{ConfigEntityZNode, TopicZNode, TopicPartitionStateZNode, ResourceZNode}.decode
(None for invalid JSON).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kraftsim.core.zookeeper_mode.znode_reading import Znodes
from protocol.malformed import MalformedMessage
from protocol.zookeeper.kafka_access_znodes import (
    ACLS,
    DELEGATION_TOKENS,
    EXTENDED_ACLS,
    DelegationTokenZnode,
    parse_acls,
)
from protocol.zookeeper.kafka_znodes import (
    CONFIG,
    TOPICS,
    PartitionStateZnode,
    TopicZnode,
    config_path,
    parse_config,
)

STATE: Final = "/state"
Unreadable = list[tuple[str, str]]
"""Paths of unreadable znodes, with the errors."""


def readable(znodes: Znodes) -> tuple[Znodes, Unreadable]:
    """Return the readable znodes, and the errors of the others."""
    unreadable: Unreadable = []
    topics: dict[str, None] = {}
    lone: dict[str, None] = {}
    for path, (data, _) in znodes.items():
        read = _reader_of(path)
        if read is None or not data:
            continue
        try:
            read(data)
        except MalformedMessage as malformed:
            unreadable.append((path, malformed.reason))
            if path.startswith(f"{TOPICS}/"):
                topics[topic_of(path)] = None
            else:
                lone[path] = None
    if not unreadable:
        return znodes, []
    return {
        path: znode
        for path, znode in znodes.items()
        if path not in lone and not _belongs_to(path, topics)
    }, unreadable


@contextmanager
def read_at(path: str) -> Iterator[None]:
    """Add the path to a parse error in this context. Raises MalformedMessage with that path."""
    try:
        yield
    except MalformedMessage as malformed:
        raise MalformedMessage(None, None, path, malformed.reason) from malformed


def topic_of(path: str) -> str:
    """Return the topic of a path below /brokers/topics."""
    return path.removeprefix(f"{TOPICS}/").partition("/")[0]


def _belongs_to(path: str, topics: dict[str, None]) -> bool:
    if path.startswith(f"{TOPICS}/"):
        return topic_of(path) in topics
    configs = f"{config_path('topics')}/"
    return path.startswith(configs) and path.removeprefix(configs) in topics


def _reader_of(path: str) -> Callable[[bytes], object] | None:
    if path.startswith(f"{TOPICS}/"):
        if "/" not in path.removeprefix(f"{TOPICS}/"):
            return TopicZnode.parse
        return PartitionStateZnode.parse if path.endswith(STATE) else None
    if path.startswith(f"{CONFIG}/"):
        return parse_config
    if path.startswith((f"{ACLS}/", f"{EXTENDED_ACLS}/")):
        return parse_acls
    return DelegationTokenZnode.parse if path.startswith(f"{DELEGATION_TOKENS}/") else None
