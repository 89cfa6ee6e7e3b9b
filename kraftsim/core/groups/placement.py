"""Which partition of a coordinator's topic a group, or a transactional id, belongs to; the leader of that partition is its coordinator.

Source: GroupMetadataManager.partitionFor, TransactionStateManager.partitionFor, java.lang.String.hashCode, Utils.abs.
"""

from struct import iter_unpack
from typing import Final

INT32: Final = 1 << 32
INT32_MIN: Final = -(1 << 31)


def partition_of(key: str, partition_count: int) -> int:
    """Return the number of the partition."""
    hashed = java_hash(key)
    return (0 if hashed == INT32_MIN else abs(hashed)) % partition_count


def java_hash(text: str) -> int:
    """Return what Java's String.hashCode returns: a signed number of 32 bits."""
    hashed = 0
    for (unit,) in iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        hashed = (31 * hashed + unit) % INT32
    return hashed - INT32 if hashed >= -INT32_MIN else hashed
