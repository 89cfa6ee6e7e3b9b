"""The base of every event, and the envelope that the world puts around it.

Events are flat: fields are Kafka's names, values are ints, booleans, strings or null. An event that
needs more columns is a new class.
"""

from typing import ClassVar, dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, kw_only_default=True)
class EventMeta(msgspec.StructMeta):
    """For type checkers; msgspec does this on its own: a subclass of a frozen, keyword-only struct
    is one, too.
    """


class Event(
    msgspec.Struct,
    metaclass=EventMeta,
    frozen=True,
    kw_only=True,
    gc=False,
    tag_field="kind",
    tag=lambda name: name,
):
    """An event of one node. The class name is the `kind` of its line in the event log."""

    kinds: ClassVar[dict[str, type["Event"]]] = {}

    def __init_subclass__(cls, **options: object) -> None:
        # arg-type: msgspec's options of a class, passed on as they are
        super().__init_subclass__(**options)  # type: ignore[arg-type]
        assert (
            cls.__name__ not in Event.kinds
            or Event.kinds[cls.__name__].__module__ == cls.__module__
        ), f"two events have the name {cls.__name__}"
        Event.kinds[cls.__name__] = cls


ENVELOPE_FIELDS = ("run", "node", "incarnation", "n", "t_ns", "wall_ms", "kind")
"""What the world adds to each line: run name, node name, incarnation (from 1), line number n (from
0, dense per node and incarnation), t_ns (nanoseconds since the run began: virtual in simulation,
monotonic otherwise), wall_ms (the node's own wall clock).
"""
