"""The rooms: parts of Kafka whose rules get generated mutants in proportion to their lines.

The mutants of a room are drawn by a hash of their names from all changes that the generator can
make to its modules: one for each function, and of all sorts.
"""

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[2] / "kraftsim"
TOTAL: Final = 130
"""Mutants of all rooms together."""
FEWEST: Final = 5
"""Mutants of a room, however few lines of rules it has."""


@dataclass(frozen=True, slots=True)
class Room:
    """A part of Kafka; `modules` are those of its rules, without `kraftsim.`, and may contain *."""

    core: str
    modules: tuple[str, ...]


ROOMS: Final = (
    Room(
        "replication",
        (
            "partitions.rules_follower",
            "partitions.rules_replica*",
            "partitions.rules_leader",
            "partitions.rules_fetch_sessions",
            "partitions.rules_reading",
        ),
    ),
    Room(
        "isr",
        (
            "metadata.rules_partition_changes",
            "metadata.rules_partitions",
            "metadata.rules_replication",
            "metadata.rules_reassignments",
            "metadata.rules_brokers",
        ),
    ),
    Room("logs", ("partitions.rules_log", "partitions.rules_append", "partitions.rules_cleaning")),
    Room(
        "groups",
        ("groups.rules_rebalance", "groups.rules_classic_*", "groups.rules_timing"),
    ),
    Room("kip-848", ("groups.rules_consumer_group*", "groups.rules_assignors")),
    Room("offsets", ("groups.rules_offsets", "groups.rules_committing", "groups.rules_shard")),
    Room("tiered storage", ("tiered_storage.rules_*",)),
    Room("migration", ("migration.rules_*", "zookeeper.rules_znode_writes")),
    Room(
        "zookeeper",
        (
            "zookeeper.rules_control_requests",
            "zookeeper.rules_keeper",
            "zookeeper.rules_partitions",
            "zookeeper.rules_propagation",
            "zookeeper.rules_received_metadata",
            "zookeeper.rules_server",
            "zookeeper.rules_tree",
            "zookeeper.rules_znodes",
        ),
    ),
    Room("security", ("server.rules_authentication", "server.rules_authorization")),
    Room("quotas", ("server.rules_quotas", "metadata.rules_client_quotas")),
)


@dataclass(frozen=True, slots=True)
class RoomFunction:
    """A function of a room, and its source as it is indented in its module."""

    module: str
    name: str
    source: str


def files_of(room: Room) -> list[Path]:
    """Return the files of a room's modules, sorted."""
    return [
        file
        for pattern in room.modules
        for file in sorted(PACKAGE.glob(f"{pattern.replace('.', '/')}.py"))
    ]


@cache
def shares() -> Mapping[str, int]:
    """Return how many mutants each room gets, by its lines of rules."""
    lines = {
        room.core: sum(len(file.read_bytes().splitlines()) for file in files_of(room))
        for room in ROOMS
    }
    return {
        core: max(FEWEST, round(TOTAL * count / sum(lines.values())))
        for core, count in lines.items()
    }


def functions_of(room: Room) -> Iterator[RoomFunction]:
    """Yield the functions and methods of a room's modules; none of a protocol class."""
    for file in files_of(room):
        module = f"kraftsim.{file.parent.name}.{file.stem}"
        text = file.read_text()
        lines = text.splitlines(keepends=True)
        for name, node in _functions(ast.parse(text).body, ""):
            source = "".join(lines[node.lineno - 1 : node.end_lineno])
            yield RoomFunction(module, name, source)


def order_of(name: str) -> str:
    """Return the hash by which the mutants of a room are drawn."""
    return hashlib.sha256(name.encode()).hexdigest()


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        match node:
            case ast.ClassDef(name=name, bases=bases) if not any(
                ast.unparse(base).startswith("Protocol") for base in bases
            ):
                yield from _functions(node.body, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) if not _is_overload(node):
                yield f"{prefix}{name}", node


def _is_overload(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(each) in ("overload", "abstractmethod") for each in node.decorator_list)
