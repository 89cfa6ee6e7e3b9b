"""The iteration order of JVM maps, which is the order of keys in znodes; nothing else depends on
it.

Source: scala.collection.mutable.HashMap, scala.collection.immutable.HashMap (2.13),
java.util.concurrent.ConcurrentHashMap; texts of Kafka 3.9.1.
"""

from collections.abc import Sequence
from typing import Final

WORD: Final = 0xFFFFFFFF
SMALL_MAP_MAX: Final = 4
"""Up to this size an immutable map keeps the insertion order."""
TABLE: Final = 16
BITS: Final = 5


def string_hash(text: str) -> int:
    """Return String.hashCode, without its sign."""
    encoded, found = text.encode("utf-16-be"), 0
    for position in range(0, len(encoded), 2):
        found = (31 * found + int.from_bytes(encoded[position : position + 2])) & WORD
    return found


def mutable_map_order(names: Sequence[str]) -> list[str]:
    """Return keys in the order of a mutable map into which they were put one after the other."""
    size = TABLE
    while len(names) >= size * 3 // 4:
        size *= 2
    return sorted(names, key=lambda name: (_spread(name) & (size - 1), _signed(_spread(name))))


def properties_order(names: Sequence[str]) -> list[str]:
    """Return keys in the order of java.util.Properties."""
    size = TABLE
    while len(names) >= size * 3 // 4:
        size *= 2
    return sorted(names, key=lambda name: _spread(name) & (size - 1))


def immutable_map_order(names: Sequence[str]) -> list[str]:
    """Return keys in the order of an immutable map: a hash trie, whose nodes iterate over their own
    keys first.
    """
    return list(names) if len(names) <= SMALL_MAP_MAX else _trie_order(names, 0)


def _trie_order(names: Sequence[str], shift: int) -> list[str]:
    slots: dict[int, list[str]] = {}
    for name in names:
        slots.setdefault((_improved(name) >> shift) & ((1 << BITS) - 1), []).append(name)
    own = [slots[slot][0] for slot in sorted(slots) if len(slots[slot]) == 1]
    deeper = [slots[slot] for slot in sorted(slots) if len(slots[slot]) > 1]
    return own + [
        name
        for group in deeper
        for name in (
            _trie_order(group, shift + BITS) if shift + BITS < WORD.bit_length() else group
        )
    ]


def _spread(name: str) -> int:
    found = string_hash(name)
    return found ^ (found >> 16)


def _signed(found: int) -> int:
    return found if found <= WORD >> 1 else found - WORD - 1


def _improved(name: str) -> int:
    found = string_hash(name)
    found = (found + ~(found << 9)) & WORD
    found ^= found >> 14
    found = (found + (found << 4)) & WORD
    return found ^ (found >> 10)
