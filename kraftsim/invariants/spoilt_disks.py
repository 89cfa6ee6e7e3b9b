"""Tracks hosts whose disk lost or corrupted flushed data by a fault: invariants about durable data
no longer apply to them.
"""

from kraftsim.events.runs import FaultInjected

SPOIL_WHAT_WAS_FLUSHED = (
    "bit-rot",
    "lost-disk",
    "lying-flush",
    "misdirected-write",
    "old-disk-image",
)


class SpoiltDisks:
    """Tracks such hosts by the faults that were injected."""

    def __init__(self) -> None:
        self._hosts: dict[str, None] = {}

    def learn(self, fired: FaultInjected) -> None:
        """Process a fault; faults that leave flushed data intact are ignored."""
        if fired.fault in SPOIL_WHAT_WAS_FLUSHED:
            self._hosts[fired.target] = None

    def has(self, host: str) -> bool:
        """Return whether a host has lost or corrupted flushed data."""
        return host in self._hosts


SPOILT_CTE = f"""
    spoilt AS (
        SELECT run, target, min(position) AS position FROM fault_injected
        WHERE fault IN ({", ".join(f"'{fault}'" for fault in SPOIL_WHAT_WAS_FLUSHED)}) GROUP BY run,
            target
    )
"""
"""The same in SQL: the position of the first such fault on each host (`target`)."""
