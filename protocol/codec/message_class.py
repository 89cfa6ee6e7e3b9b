"""The class made from a declaration: mutable, slotted, keyword-only, compared and printed by its
fields.

Messages are created on the hot path, thousands per second: a frozen dataclass would cost four times
as much, and a class per version would make handlers differ by version. `__init__` and `__eq__` are
source that the compiler writes once per declaration, after it has checked the constructs of the
fields; from then on they come from the store.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from protocol.codec import store
from protocol.codec.declaration import (
    Declaration,
    FieldCall,
    Kind,
    Message,
    VersionRange,
    declaration_of,
    nested_structure,
)

if TYPE_CHECKING:
    import construct

T = TypeVar("T")

LEFT_OUT = object()
"""The argument of `__init__` is missing, so its default is created."""
UNIT = "class"
"""The name of this generated code in the store."""


def message_class(
    body: type[T],
    *,
    name: str,
    kind: Kind,
    api_key: int | None,
    versions: VersionRange,
    flexible: VersionRange,
    latest_unstable: bool = False,
) -> type[T]:
    """Create the slotted class of a class body whose annotated attributes are FieldCalls; methods
    and docstring are kept.
    """
    calls = _calls_of(body)
    namespace: dict[str, Any] = {
        key: value
        for key, value in vars(body).items()
        if key not in (*calls, "__dict__", "__weakref__")
    }
    namespace["__slots__"] = (*calls, "_tags")
    namespace["__declaration__"] = Declaration(
        name=name,
        kind=kind,
        api_key=api_key,
        versions=versions,
        flexible=flexible,
        calls=calls,
        digest=_digest(f"{body.__name__} {name} {versions} {flexible}", calls),
        latest_unstable=latest_unstable,
    )
    namespace["__repr__"] = _repr
    if kind != "structure":
        assert not {"versions", "construct"} & set(calls), (
            f"{body.__name__} has a field that hides what every message class has"
        )
        namespace["versions"] = versions
        namespace["construct"] = classmethod(_construct)
    cls: Any = type(body.__name__, body.__bases__, namespace)
    cls.__qualname__ = body.__qualname__
    _add_generated(cls)
    cls.__hash__ = None
    made: type[T] = cls
    return made


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
        # attr-defined: generated classes have slots
        for slot in structure.__slots__:  # type: ignore[attr-defined]
            object.__setattr__(found, slot, getattr(template, slot))
        _SHARED_DEFAULTS[structure] = found
    return found  # type: ignore[no-any-return]  # an instance of a class made at run time


_SHARED_DEFAULTS: dict[type, Any] = {}


def _refuse_assignment(self: object, name: str, value: object) -> NoReturn:
    raise AttributeError(
        f"this {type(self).__name__} is the shared default of an absent field: assign a new one "
        f"instead of changing .{name}"
    )


def _construct(cls: type, version: int | None = None) -> "construct.Construct":
    """Return the construct of this message at a version: it parses, builds, compiles, and fits into
    any other Struct.

    Without a version it is that of all versions, and `parse(data, version=4)` chooses.
    """
    from protocol.codec.message_codec import construct_of, versioned_construct_of

    return versioned_construct_of(cls) if version is None else construct_of(cls, version)


def _repr(self: Message) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__declaration__.calls)
    return f"{type(self).__name__}({fields})"


def _calls_of(body: type) -> dict[str, FieldCall]:
    calls = {}
    for name in vars(body).get("__annotations__", {}):
        call = vars(body).get(name)
        assert isinstance(call, FieldCall), f"{body.__name__}.{name} is annotated, but no field"
        assert not name.startswith("_"), (
            f"{body.__name__}.{name}: a field has no leading underscore"
        )
        calls[name] = call
    for name, value in vars(body).items():
        assert not isinstance(value, FieldCall) or name in calls, (
            f"{body.__name__}.{name} has no annotation"
        )
    return calls


def _digest(head: str, calls: Mapping[str, FieldCall]) -> str:
    lines = [head]
    for name, call in calls.items():
        structure = nested_structure(call)
        lines.append(
            f"{name} {call.text()} {'' if structure is None else declaration_of(structure).digest}"
        )
    return sha256("\n".join(lines).encode(errors="surrogatepass")).hexdigest()


def _add_generated(cls: Message) -> None:
    """Give the class its generated `__init__` and `__eq__`, and what the compiler found out about
    its fields.
    """

    def source() -> str:
        from protocol.codec.compiler import class_source

        return class_source(cls)

    scope = {"LEFT_OUT": LEFT_OUT, "CLASS": cls, "shared_default": shared_default}
    generated = store.generated(cls, None, UNIT, source, scope)
    for name in ("__init__", "__eq__"):
        method = generated[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
    cls.__records__ = generated["RECORDS"]
    cls.__codes__ = generated["CODES"]
