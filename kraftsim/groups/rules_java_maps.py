"""java.util.HashMap and HashSet as far as their iteration order goes: what a coordinator of Apache
Kafka writes and answers is in the order of their buckets.

A table has buckets; the bucket of a key is its hash modulo their number. A key that is put comes
last in its bucket, one that `computeIfAbsent` makes comes first. Buckets are doubled when more than
3/4 of their number are keys, and never halved. Bins of eight keys and more, which Java turns into
trees, keep this order as well, but for the key that becomes the root of the tree.
Source: java.util.HashMap of Java 17.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
FIRST_CAPACITY: Final = 16
"""Of a table that is made without one."""


class JavaMap(Generic[K, V]):
    """Keys in the order of a HashMap that was made with room for `capacity` keys."""

    __slots__ = ("_buckets", "_capacity", "_hash_of", "_values")

    def __init__(self, hash_of: Callable[[K], int], capacity: int = FIRST_CAPACITY) -> None:
        self._hash_of = hash_of
        self._capacity = 1
        while self._capacity < capacity:
            self._capacity *= 2
        self._buckets: dict[int, list[K]] = {}
        self._values: dict[K, V] = {}

    @classmethod
    def copied(cls, hash_of: Callable[[K], int], rows: Iterable[tuple[K, V]]) -> "JavaMap[K, V]":
        """Return `new HashMap(map)`."""
        kept = list(rows)
        made = cls(hash_of, int(len(kept) / 0.75 + 1))
        for key, value in kept:
            made.put(key, value)
        return made

    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""
        if key not in self._values:
            self._bucket(key).append(key)
        self._values[key] = value
        if len(self._values) > self._threshold:
            self._double()

    def compute(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, made if there is none. Buckets are doubled before, even if
        there is one.
        """
        if len(self._values) > self._threshold:
            self._double()
        if key not in self._values:
            self._bucket(key).insert(0, key)
            self._values[key] = make()
        return self._values[key]

    def pop(self, key: K) -> None:
        """Remove a key, if it is there."""
        if key in self._values:
            self._bucket(key).remove(key)
            del self._values[key]

    def get(self, key: K) -> V | None:
        """Return the value of a key."""
        return self._values.get(key)

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield keys and values as they are now."""
        return iter([(key, self._values[key]) for key in self])

    def __getitem__(self, key: K) -> V:
        return self._values[key]

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[K]:
        return iter([key for number in sorted(self._buckets) for key in self._buckets[number]])

    @property
    def _threshold(self) -> int:
        return int(self._capacity * 0.75)

    def _bucket(self, key: K) -> list[K]:
        hashed = self._hash_of(key) & 0xFFFF_FFFF
        return self._buckets.setdefault((hashed ^ hashed >> 16) & (self._capacity - 1), [])

    def _double(self) -> None:
        keys = list(self)
        self._capacity *= 2
        self._buckets = {}
        for key in keys:
            self._bucket(key).append(key)


class JavaSet(JavaMap[K, None]):
    """Elements in the order of a HashSet."""

    __slots__ = ()

    @classmethod
    def of(cls, hash_of: Callable[[K], int], elements: Iterable[K]) -> "JavaSet[K]":
        """Return `new HashSet(collection)`."""
        kept = list(elements)
        made = cls(hash_of, max(int(len(kept) / 0.75) + 1, FIRST_CAPACITY))
        for element in kept:
            made.add(element)
        return made

    def add(self, element: K) -> None:
        """Add an element."""
        self.put(element, None)


def room_for(count: int) -> int:
    """Return the capacity that AssignorHelpers.newHashMap and newHashSet ask for."""
    return int((count + 1) / 0.75 + 1)
