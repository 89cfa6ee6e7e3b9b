"""One instance per structure that stands for "all defaults", below everything that decodes, builds
or compares structures.
"""

from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


def shared_default(structure: type[T]) -> T:
    """Return the one instance that stands for "all defaults": it equals a new one and rejects
    assignment.

    Decoders use it for an absent structure, which is cheaper than creating one, and encoders
    recognise it by identity.
    """
    found = _SHARED_DEFAULTS.get(structure)
    if found is None:
        methods = {
            "__setattr__": _refuse_assignment,
            "__reduce__": lambda _: (structure, ()),
        }  # a copy is an ordinary one
        frozen = type(
            structure.__name__,
            (structure,),
            {"__slots__": (), "__doc__": structure.__doc__, **methods},
        )
        found = object.__new__(frozen)
        template = structure()
        for slot in structure.__slots__:  # type: ignore[attr-defined]  # made at run time
            object.__setattr__(found, slot, getattr(template, slot))
        _SHARED_DEFAULTS[structure] = found
    return found  # type: ignore[no-any-return]  # made at run time


_SHARED_DEFAULTS: dict[type, Any] = {}


def _refuse_assignment(self: object, name: str, value: object) -> NoReturn:
    raise AttributeError(
        f"this {type(self).__name__} is the shared default of an absent field: assign a new one "
        f"instead of changing .{name}"
    )
