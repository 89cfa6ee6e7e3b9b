"""The state of real objects as bytes: equal for states that have the same future.

Walks the attributes of any object. Names that a symmetry exchanges are replaced; what has no
influence, such as numbers of requests and counts of attempts, is left out; dicts and sets have the
order of their keys. An object that occurs twice is written once, then as a reference, because some
rules compare by identity.
Source: state hashing and scalar sets of model checkers (Murphi, SPIN).
"""

from collections import deque
from collections.abc import Hashable, Mapping
from enum import Enum
from functools import cache
from hashlib import blake2b
from types import FunctionType, MethodType

import msgspec

from kraftsim.clients.rules_producer_steps import OutgoingBatch, SendProduce
from kraftsim.transactions.rules_markers import PreparedTransaction
from kraftsim.transactions.rules_state import TransactionEntry

SKIPPED = frozenset(
    {
        "_effects",
        "_gate",
        "_leader_of",
        "_next_request_id",
        "_now_ms",
        "_sent_count",
        "_settings",
        "number",
        "record_offset",
        "request_id",
        "size_bytes",
    }
)
"""Constants, and counters that no decision of these worlds depends on."""
UNORDERED = frozenset({"partitions", "_partitions", "_new_partitions", "_members", "_requests"})
REFERRED = (PreparedTransaction, TransactionEntry, OutgoingBatch)
Plain = Hashable


def canonical(value: object, names: Mapping[object, object] | None = None) -> bytes:
    """Return 16 bytes; `names` replaces strings and numbers."""
    return blake2b(repr(plain(value, names)).encode(), digest_size=16).digest()


def plain(value: object, names: Mapping[object, object] | None = None) -> Plain:
    """Return the same as nested tuples."""
    return _Walk(names or {}).plain(value)


class _Walk:
    def __init__(self, names: Mapping[object, object]) -> None:
        self._names = names
        self._seen: dict[int, int] = {}

    def plain(self, value: object) -> Plain:
        kind = type(value)
        if kind is str or kind is int:
            return str(self._names.get(value, value))
        if kind is tuple or kind is list:
            # attr-defined: mypy does not narrow by `type(value)`
            return tuple([self.plain(each) for each in value])  # type: ignore[attr-defined]
        if value is None or kind is bool or kind is bytes:
            return str(value)
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, tuple | deque):
            return tuple([self.plain(each) for each in value])
        if isinstance(value, frozenset | set):
            return tuple(sorted(map(repr, map(self.plain, value))))
        if isinstance(value, REFERRED):
            known = self._seen.get(id(value))
            if known is not None:
                return ("as", str(known))
            self._seen[id(value)] = len(self._seen)
        return (kind.__name__, *self._fields(value))

    def _fields(self, value: object) -> list[Plain]:
        found: list[Plain] = []
        kind: type = type(value)
        for name in _names_of(kind) or sorted(vars(value)):
            inside = getattr(value, name)
            if name in SKIPPED or isinstance(inside, type | FunctionType | MethodType):
                continue
            if name in UNORDERED:
                rows = inside.values() if name == "_requests" else inside
                found.append(tuple(sorted(map(repr, map(self.plain, rows)))))
            elif name == "attempts":
                found.append(bool(inside))
            else:
                found.append(self.plain(inside))
        return found

    def _mapping(self, value: dict[object, object]) -> Plain:
        keys = sorted((repr(self.plain(key)), index) for index, key in enumerate(value))
        values = list(value.values())
        return tuple([(key, self.plain(values[index])) for key, index in keys])


@cache
def _names_of(kind: type) -> tuple[str, ...]:
    """Return the attributes of a class that declares them; () if each object has its own."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if "__dict__" in dir(kind) and not hasattr(kind, "__dataclass_fields__"):
        return ()
    declared = getattr(kind, "__dataclass_fields__", None)
    if declared is not None:
        return tuple(declared)
    return tuple(sorted({name for each in kind.__mro__ for name in getattr(each, "__slots__", ())}))


assert SendProduce.__struct_fields__[0] in SKIPPED, "a request's number tells nothing"
