"""What a request names: topics and partitions, transactional ids, groups.

It is read from the fields of a decoded request of any API, by their names: Kafka's messages have
few names for the same thing. Faults of requests (`rules_request_faults`) match by it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from protocol.schema import Message

TRANSACTION_KEY: Final = 1
"""The key type of FindCoordinator that asks for a transactional id."""
NO_ID: Final = bytes(16)
THROTTLE_TIME: Final = "throttle_time_ms"
"""The field of a response that says how long its client is muted."""


@dataclass(frozen=True, slots=True)
class Subjects:
    """What a request is about. A topic is its name, or its id where the request has only that; a
    partition is None if the request names the whole topic.
    """

    partitions: list[tuple[str | bytes, int | None]] = field(default_factory=list)
    transactional_ids: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)


def subjects_of(body: Message) -> Subjects:
    """Return what a request of any API names."""
    found = Subjects()
    _collect(body, found, in_topics=False)
    return found


def _collect(part: object, found: Subjects, *, in_topics: bool) -> None:
    topic = _topic_of(part, in_topics=in_topics)
    indexes = [] if topic is None else list(_indexes(part))
    if topic is not None:
        found.partitions.extend((topic, index) for index in indexes or (None,))
    for name in _field_names(part):
        value = getattr(part, name)
        if isinstance(value, list):
            _collect_list(name, value, found)
        elif isinstance(value, str):
            _collect_name(name, value, part, found)
        elif _is_structure(value):
            _collect(value, found, in_topics=False)


def _collect_list(name: str, values: list[object], found: Subjects) -> None:
    is_about_topics = "topic" in name
    for value in values:
        if _is_structure(value):
            _collect(value, found, in_topics=is_about_topics)
        elif isinstance(value, str):
            if name in ("topic_names", "subscribed_topic_names"):
                found.partitions.append((value, None))
            elif name == "transactional_ids":
                found.transactional_ids.append(value)
            elif name in ("groups", "group_ids", "groups_names"):
                found.groups.append(value)
            elif name == "coordinator_keys":
                found.groups.append(value)
                found.transactional_ids.append(value)


def _collect_name(name: str, value: str, part: object, found: Subjects) -> None:
    if name.endswith("transactional_id"):
        found.transactional_ids.append(value)
    elif name == "group_id":
        found.groups.append(value)
    elif name == "key" and hasattr(part, "key_type"):  # FindCoordinator before version 4
        is_transaction = part.key_type == TRANSACTION_KEY
        (found.transactional_ids if is_transaction else found.groups).append(value)


def _topic_of(part: object, *, in_topics: bool) -> str | bytes | None:
    for name in ("topic", "topic_name", *(("name",) if in_topics else ())):
        value = getattr(part, name, None)
        if isinstance(value, str) and value:
            return value
    topic_id = getattr(part, "topic_id", NO_ID)
    return topic_id if isinstance(topic_id, bytes) and topic_id != NO_ID else None


def _indexes(part: object) -> Iterator[int]:
    """Yield the partitions of a topic of a request."""
    for name in _field_names(part):
        value = getattr(part, name)
        if name in ("partition", "partition_index") and isinstance(value, int):
            yield value
        elif "partition" in name and isinstance(value, list):
            for each in value:
                if isinstance(each, int):
                    yield each
                    continue
                for key in ("partition_index", "partition", "index"):
                    index = getattr(each, key, None)
                    if isinstance(index, int):
                        yield index
                        break


def _field_names(part: object) -> tuple[str, ...]:
    return tuple(getattr(type(part), "__slots__", ()))


def _is_structure(value: object) -> bool:
    return "_tags" in _field_names(value)
