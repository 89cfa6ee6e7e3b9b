"""The partition of a coordinator topic that a group or transactional id maps to; the leader of that
partition is the coordinator.

Source: GroupMetadataManager.partitionFor, TransactionStateManager.partitionFor,
java.lang.String.hashCode, Utils.abs.
"""

from struct import iter_unpack
from typing import Final

INT32: Final = 1 << 32
INT32_MIN: Final = -(1 << 31)


def partition_of(key: str, partition_count: int) -> int:
    """Return the partition number."""
    hashed = java_hash(key)
    return (0 if hashed == INT32_MIN else abs(hashed)) % partition_count


def java_hash(text: str) -> int:
    """Return Java's String.hashCode, as a signed 32-bit number."""
    hashed = 0
    for (unit,) in iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        hashed = (31 * hashed + unit) % INT32
    return hashed - INT32 if hashed >= -INT32_MIN else hashed
