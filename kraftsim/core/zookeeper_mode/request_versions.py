"""The versions of controller-to-broker requests, by inter.broker.protocol.version or, from KRaft,
by metadata.version.

Source: kafka.controller.AbstractControllerBrokerRequestBatch (2.3, 3.0, 3.9).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from kraftsim.core.metadata.metadata_versions import BEFORE_KRAFT, METADATA_VERSIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestVersions:
    """The request versions; they are not negotiated."""

    leader_and_isr: int
    update_metadata: int
    stop_replica: int


SINCE: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "leader_and_isr": (
        ("3.4-IV0", 7),
        ("3.2-IV0", 6),
        ("2.8-IV1", 5),
        ("2.4-IV1", 4),
        ("2.4-IV0", 3),
        ("2.2-IV0", 2),
    ),
    "update_metadata": (("3.4-IV0", 8), ("2.8-IV1", 7), ("2.4-IV1", 6), ("2.2-IV0", 5)),
    "stop_replica": (("3.4-IV0", 4), ("2.6-IV0", 3), ("2.4-IV1", 2), ("2.2-IV0", 1)),
}
"""Level -> version from this level on, newest first; levels before 2.2-IV0 are not supported."""


@cache
def request_versions(level: str) -> RequestVersions:
    """Return the versions for a level: 2.8-IV1, or 2.8 for the last one of a release.

    Raises ValueError.
    """
    present = _place(level)
    found = {
        name: next((version for since, version in rows if _place(since) <= present), None)
        for name, rows in SINCE.items()
    }
    leader_and_isr, update_metadata, stop_replica = (found[name] for name in SINCE)
    if leader_and_isr is None or update_metadata is None or stop_replica is None:
        raise ValueError(f"unsupported inter.broker.protocol.version {level}")
    return RequestVersions(
        leader_and_isr=leader_and_isr, update_metadata=update_metadata, stop_replica=stop_replica
    )


def _place(level: str) -> int:
    """Return the index of a level. Raises ValueError."""
    known = [*BEFORE_KRAFT.split(), *(version.name for version in METADATA_VERSIONS.values())]
    places = [place for place, name in enumerate(known) if level in (name, name.partition("-")[0])]
    if not places:
        raise ValueError(f"{level} is not a valid level")
    return places[-1]
