"""What the files of extensions can use, for `kraftsim list`: the verbs of a scenario's environment,
triggers, the parts that a bug replaces, the traits of releases, and more about faults and events.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from types import UnionType
from typing import Final, get_args

import msgspec

from kraftsim.cli.kind_tables import AIMS, FaultLine, families
from kraftsim.cluster.scenario import (
    ClientHost,
    ProducerDriver,
    ProducerIdClient,
    ReaderDriver,
    ScenarioEnvironment,
)
from kraftsim.events.catalogue import KINDS as EVENT_KINDS
from kraftsim.events.event import Event, view_name
from kraftsim.lab.faults.fault import FAULTS, DataLoss, FaultKind, Trigger
from kraftsim.releases import traits
from kraftsim.server.parts import Parts

ENVIRONMENT: Final[tuple[tuple[str, type], ...]] = (
    ("stage", ScenarioEnvironment),
    ("producer", ProducerDriver),
    ("reader", ReaderDriver),
    ("producer_id_client", ProducerIdClient),
    ("client_host", ClientHost),
)
"""The argument of a scenario's `run`, and what its methods return, by the names of those."""


def environment_rows() -> list[tuple[str, str]]:
    """Return the verbs of the environment of a scenario, as they are called."""
    return [
        (f"{_awaited(method)}{owner}.{name}{_call(method)}", _about(method))
        for owner, kind in ENVIRONMENT
        for name, method in vars(kind).items()
        if inspect.isfunction(method) and not name.startswith("_")
    ]


def trigger_rows() -> list[tuple[str, str]]:
    """Return the triggers of faults, as they are made."""
    return [
        (
            f"{kind.__name__}({', '.join(map(_field_text, msgspec.structs.fields(kind)))})",
            _about(kind),
        )
        for kind in get_args(Trigger)
    ]


def part_rows() -> list[tuple[str, str]]:
    """Return the parts of a node that a bug may replace by a subclass, with the class."""
    return [
        (field.name, f"{_full_name(field.default)}: {_about(field.default)}")
        for field in fields(Parts)
        if isinstance(field.default, type)
    ]


def trait_rows() -> list[tuple[str, str]]:
    """Return the behaviours in which releases differ."""
    return [
        (each.name, f"since {each.since_release or f'level {each.since_level}'}: {each.why}")
        for each in vars(traits).values()
        if isinstance(each, traits.Trait)
    ]


TABLES: Final[Mapping[str, Callable[[], list[tuple[str, str]]]]] = {
    "environment": environment_rows,
    "triggers": trigger_rows,
    "parts": part_rows,
    "traits": trait_rows,
}
"""Kind of `kraftsim list` -> its rows: a name, and one sentence."""


@dataclass(frozen=True, slots=True)
class LongFault:
    """All that can be said of a kind of fault."""

    kind: FaultKind
    line: FaultLine

    @property
    def name(self) -> str:
        """The name of the kind."""
        return self.kind.name

    def lines(self, place: str | None) -> Iterator[str]:
        """Yield the lines of a paragraph; `place` is that of its extension."""
        yield f"{self.name}  [{self.line.family}]{f' [{place}]' if place else ''}"
        yield f"  {self.line.about}"
        yield f"  target:   {AIMS[self.kind.aim]}"
        yield f"  modes:    {', '.join(self.kind.modes)}"
        yield f"  triggers: {', '.join(self.kind.triggers_on)}"
        if self.line.params:
            yield f"  params:   {'; '.join(self.line.params)}"
        if self.kind.data_loss is not DataLoss.NOTHING:
            condition = f" if {self.kind.data_loss_if}" if self.kind.data_loss_if else ""
            yield f"  may lose: {self.kind.data_loss.value} data{condition}"

    def as_json(self) -> dict[str, object]:
        """Return it as data."""
        return {
            **self.line.as_json(),
            "data_loss": self.kind.data_loss.value,
            "data_loss_if": self.kind.data_loss_if,
        }


def long_faults() -> list[LongFault]:
    """Return every kind of fault, family by family."""
    return [
        LongFault(FAULTS.named(line.name), line) for lines in families().values() for line in lines
    ]


@dataclass(frozen=True, slots=True)
class LongEvent:
    """A kind of event, with its view in SQL and its fields."""

    name: str
    kind: type[Event]

    @property
    def fields(self) -> dict[str, str]:
        """Field -> type, in their order."""
        return {field.name: _type_text(field.type) for field in msgspec.structs.fields(self.kind)}

    def lines(self) -> Iterator[str]:
        """Yield the lines of a paragraph."""
        yield self.name
        yield f"  {_about(self.kind)}"
        yield f"  view:   {view_name(self.name)}"
        yield f"  import: from {self.kind.__module__} import {self.name}"
        if self.fields:
            yield f"  fields: {', '.join(f'{name}: {text}' for name, text in self.fields.items())}"

    def as_json(self) -> dict[str, object]:
        """Return it as data."""
        return {
            "name": self.name,
            "about": _about(self.kind),
            "view": view_name(self.name),
            "module": self.kind.__module__,
            "fields": self.fields,
        }


def long_events() -> list[LongEvent]:
    """Return every kind of event, sorted by name."""
    return [LongEvent(name, kind) for name, kind in EVENT_KINDS.items()]


def _awaited(method: object) -> str:
    return "await " if inspect.iscoroutinefunction(method) else ""


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__name__}"


def _call(method: Callable[..., object]) -> str:
    """Return the arguments of a method, without types."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    has_star = False
    words = []
    for each in parameters:
        if each.kind is inspect.Parameter.VAR_POSITIONAL:
            has_star = True
        elif each.kind is inspect.Parameter.KEYWORD_ONLY and not has_star:
            has_star = True
            words.append("*")
        words.append(str(each.replace(annotation=inspect.Parameter.empty)))
    return f"({', '.join(words)})"


def _about(documented: object) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())


def _field_text(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return f"{field.name}={field.default!r}"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"{field.name}={field.default_factory()!r}"
    return field.name


def _type_text(kind: object) -> str:
    if isinstance(kind, UnionType):
        return " | ".join(_type_text(each) for each in get_args(kind))
    return "None" if kind is type(None) else str(getattr(kind, "__name__", kind))
