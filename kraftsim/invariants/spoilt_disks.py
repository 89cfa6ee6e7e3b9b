"""Which hosts have a disk that lost or changed what it had flushed: of what they keep nothing is expected any more, from that moment on."""

from kraftsim.events.runs import FaultFired

SPOIL_WHAT_WAS_FLUSHED = ("bit-rot", "lost-disk", "lying-flush", "misdirected-write", "old-disk-image")


class SpoiltDisks:
    """Learns of each one by the fault that struck it."""

    def __init__(self) -> None:
        self._hosts: dict[str, None] = {}

    def learn(self, fired: FaultFired) -> None:
        """Take in a fault; those that leave disks alone are passed over."""
        if fired.fault in SPOIL_WHAT_WAS_FLUSHED:
            self._hosts[fired.target] = None

    def has(self, host: str) -> bool:
        """Tell whether the disk of a host is one of them."""
        return host in self._hosts


SPOILT_CTE = f"""
    spoilt AS (
        SELECT run, target, min(position) AS position FROM fault_fired
        WHERE fault IN ({", ".join(f"'{fault}'" for fault in SPOIL_WHAT_WAS_FLUSHED)}) GROUP BY run, target
    )
"""
"""The same for SQL: since when the disk of each such host (`target`) is not to be believed."""
