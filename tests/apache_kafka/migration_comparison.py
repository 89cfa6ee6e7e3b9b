"""A recorded migration without the values that differ in each run: generated ids, ports, times,
offsets, orders of hash maps.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from protocol.uuids import uuid_text
from protocol.zookeeper.kafka_znodes import TOPICS
from tests.apache_kafka.migration_run import Recording, Tree

Each = TypeVar("Each")
UUID = re.compile(r"[A-Za-z0-9_-]{22}")
MOVED_BY_EACH_RECORD = "/migration"
READERS = "__consumer_offsets"


def znodes(tree: Tree, *, counts_states: bool = True) -> dict[str, tuple[object, int]]:
    """The content of each znode and its number of writes, except for /migration, which is written
    twice a second.

    Without `counts_states` the writes of topics and partition states are not counted either: an
    unfenced KRaft broker becomes leader again and reports the directories of its replicas. Both are
    one write if they are committed together, and two if not.
    """
    found: dict[str, tuple[object, int]] = {}
    for path, (data, stat) in tree.items():
        text: object = data
        if data is not None and data.startswith(b"{"):
            text = {key: settled(key, value) for key, value in json.loads(data).items()}
        is_counted = path != MOVED_BY_EACH_RECORD and (counts_states or not is_of_partitions(path))
        found[path] = text, stat.version if is_counted else 0
    return found


def is_of_partitions(path: str) -> bool:
    """Return whether a znode is a topic or a partition state."""
    return path.startswith(TOPICS) and (
        path.endswith("/state") or path.count("/") == TOPICS.count("/") + 1
    )


def settled(key: str, value: object) -> object:
    """A field of a znode without values that differ in each run."""
    if key in ("timestamp", "port", "id", "topic_id") or (
        key == "kraft_metadata_offset" and value != -1
    ):
        return type(value).__name__
    return (
        [re.sub(r":\d+$", "", str(each)) for each in value]
        if key == "endpoints" and isinstance(value, list)
        else value
    )


def records(found: Recording) -> list[object]:
    """The records of the log, read lazily.

    Whether a broker is unfenced during the initial copy or after it depends on its heartbeats.
    """
    names: dict[str, str] = {}
    epochs: dict[int, int] = {}

    def plain(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: plain(each, name) for name, each in sorted(value.items())}
        if isinstance(value, list):
            return [plain(each, key) for each in value]
        if key == "brokerEpoch" and value >= 0:
            return epochs.setdefault(value, len(epochs))
        if key == "port":
            return "port"
        if isinstance(value, str) and UUID.fullmatch(value):
            return names.setdefault(value, f"uuid {len(names)}")
        return value

    until = next(
        (
            place
            for place, record in enumerate(found.records)
            if record["data"].get("name") == READERS
        ),
        None,
    )
    rows = [
        (record["type"], record["version"], json.dumps(plain(record["data"])))
        for record in found.records[:until]
    ]
    let_in = [
        each
        for each in rows
        if each[0] == "BROKER_REGISTRATION_CHANGE_RECORD" and '"fenced": -1' in each[2]
    ]
    return [
        *runs_sorted([each for each in rows if each not in let_in], lambda each: each[0]),
        *let_in,
    ]


def requests(found: Recording, topic: str, *, typed: bool = True) -> list[object]:
    """The requests of the controller about one topic, topics by name, partitions by number;
    `typed`: full or incremental.
    """
    topic_ids: dict[str, str] = {}
    left_out = ("broker_epoch", "port") if typed else ("broker_epoch", "port", "type")

    def plain(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: plain(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return sorted((plain(each) for each in value), key=repr)
        if isinstance(value, bytes):
            return topic_ids.setdefault(uuid_text(value), f"uuid {len(topic_ids)}")
        return key if key in left_out else value

    about = [
        each
        for each in found.requests
        if [state.topic_name for state in each[2].topic_states] == [topic]
    ]
    return [
        (type(body).__name__, client_id, plain(fields_of(body))) for _, client_id, body in about
    ]


def fields_of(message: object) -> Any:
    """A message as dictionaries."""
    names: Iterable[str] = getattr(type(message), "__slots__", ())
    if isinstance(message, msgspec.Struct):
        names = message.__struct_fields__
    if isinstance(message, list):
        return [fields_of(each) for each in message]
    found = {name: fields_of(getattr(message, name)) for name in names if not name.startswith("_")}
    return found or message


def writes(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The writes, without /migration; partitions of one batch are sorted."""
    kept = [each for each in found if each[1] != MOVED_BY_EACH_RECORD]
    return runs_sorted(kept, lambda each: (each[0], each[1].endswith("/state")))


def runs_sorted(rows: list[Each], kind: Callable[[Each], object]) -> list[Each]:
    """Sort adjacent writes of the same kind."""
    found: list[Each] = []
    run: list[Each] = []
    for row in rows:
        if run and kind(run[-1]) != kind(row):
            found += sorted(run, key=repr)
            run = []
        run.append(row)
    return found + sorted(run, key=repr)
