"""Configuration definitions: type, default, validation. The error messages are Kafka's.

Source: org.apache.kafka.common.config.ConfigDef (parseType, Range, ValidString, ValidList).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from math import inf, isfinite, isnan
from typing import Final

from protocol.config_resources import ConfigType
from protocol.disk.java_integers import parse_int32, parse_int64

Value = bool | int | float | str | tuple[str, ...]
Check = Callable[[Value], "str | tuple[str | None, str] | None"]
"""A value -> its error, or None; for one element of a list (element, error); (None, message)
replaces the whole message.
"""

_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
PLAIN_NOTATION: Final = (1e-3, 1e7)
"""Java prints doubles outside of this range with an exponent."""


@dataclass(frozen=True, slots=True)
class ConfigDefinition:
    """The definition of a configuration. `default` is in Kafka's text form; None: there is none."""

    kind: ConfigType
    default: str | None
    check: Check | None = None

    @property
    def is_list(self) -> bool:
        """Whether it is a list, to which values can be appended."""
        return self.kind is ConfigType.LIST

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is sensitive, so that it is not returned."""
        return self.kind is ConfigType.PASSWORD

    def complaint(self, name: str, text: str) -> str | None:
        """Return Kafka's error message about an invalid value, or None."""
        try:
            value = parse_value(self.kind, text)
        except ValueError as reason:
            return f"Invalid value {text} for configuration {name}: {reason}"
        found = None if self.check is None else self.check(value)
        if found is None:
            return None
        shown, why = found if isinstance(found, tuple) else (shown_value(value), found)
        sentence = why.format(name=name)
        return (
            sentence
            if shown is None
            else f"Invalid value {shown} for configuration {name}: {sentence}"
        )


def parse_value(kind: ConfigType, text: str) -> Value:
    """Parse a text. Raises ValueError with the reason."""
    plain = text.strip()
    match kind:
        case ConfigType.BOOLEAN:
            if plain.lower() not in ("true", "false"):
                raise ValueError("Expected value to be either true or false")
            return plain.lower() == "true"
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            return _integer(kind, plain)
        case ConfigType.DOUBLE:
            if _DOUBLE.fullmatch(plain) is None:
                raise ValueError(f"Not a number of type {kind.name}")
            return float(
                plain.rstrip("fFdD") if plain[-1] in "fFdD" else plain.replace("Infinity", "inf")
            )
        case ConfigType.LIST:
            return tuple(part.strip() for part in plain.split(",")) if plain else ()
        case _:
            return plain


def shown_value(value: Value) -> str:
    """Return a value in Java's text form."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return shown_double(value)
        case tuple():
            return f"[{', '.join(value)}]"
        case _:
            return str(value)


def plain_text(kind: ConfigType, text: str) -> str:
    """Return a valid value as responses show it: in Java's text form of the parsed value."""
    value = parse_value(kind, text)
    return ",".join(value) if isinstance(value, tuple) else shown_value(value)


# Validators
# --------------------------------------------------------------------------------------------------
# --------------------------------------------------------------------------------------------------


def at_least(lowest: float) -> Check:
    """A number not below a minimum."""
    return between(lowest, inf)


def between(lowest: float, highest: float) -> Check:
    """A number in a range, inclusive."""

    def check(value: Value) -> str | None:
        assert isinstance(value, int | float), "a range is for numbers"
        if value < lowest:
            return f"Value must be at least {lowest}"
        return f"Value must be no more than {highest}" if value > highest else None

    return check


def one_of(*choices: str) -> Check:
    """One of some strings."""
    return lambda value: (
        None if value in choices else f"String must be one of: {', '.join(choices)}"
    )


def any_case_of(*choices: str) -> Check:
    """One of some strings, case-insensitive."""
    lower = [choice.lower() for choice in choices]
    return lambda value: (
        None
        if str(value).lower() in lower
        else f"String must be one of (case insensitive): {', '.join(choices)}"
    )


def non_empty(value: Value) -> str | None:
    """A string that is not empty."""
    return None if value else "String must be non-empty"


def some_of(*choices: str) -> Check:
    """A list of these strings, possibly empty."""

    def check(value: Value) -> tuple[str, str] | None:
        assert isinstance(value, tuple), "this check is for lists"
        wrong = next((part for part in value if part not in choices), None)
        return None if wrong is None else (wrong, f"String must be one of: {', '.join(choices)}")

    return check


EMPTY_ELEMENT: Final = (None, "Configuration '{name}' values must not be empty.")


def no_empty_elements(value: Value) -> tuple[str | None, str] | None:
    """No list element may be empty (since 4.2, KIP-1161)."""
    assert isinstance(value, tuple), "this check is for lists"
    return EMPTY_ELEMENT if "" in value else None


def java_split(text: str, separator: str = ",") -> list[str]:
    """Split like Java's String.split: empty parts at the end are dropped."""
    parts = text.split(separator)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts if parts != [""] or not text else []


def non_empty_some_of(*choices: str) -> Check:
    """Like `some_of` since 4.2: no element may be empty (KIP-1161); the first invalid one is
    reported.
    """
    any_of = some_of(*choices)

    def check(value: Value) -> str | tuple[str | None, str] | None:
        assert isinstance(value, tuple), "this check is for lists"
        wrong = next((part for part in value if part not in choices), None)
        return EMPTY_ELEMENT if wrong == "" else any_of(value)

    return check


def gzip_level(value: Value) -> str | None:
    """A gzip level; -1 is gzip's own default."""
    return (
        None
        if isinstance(value, int) and (value == -1 or 1 <= value <= 9)
        else "Value must be between 1 and 9 or equal to -1"
    )


def throttled_replicas(value: Value) -> str | None:
    """All replicas, or some as partition:broker."""
    assert isinstance(value, tuple), "this check is for lists"
    if all(re.fullmatch(r"([0-9]+:[0-9]+)?", part) for part in value) or "".join(value) == "*":
        return None
    return (
        "{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


def _integer(kind: ConfigType, plain: str) -> int:
    try:
        value = parse_int64(plain) if kind is ConfigType.LONG else parse_int32(plain)
        if kind is ConfigType.SHORT and not -(2**15) <= value < 2**15:
            raise ValueError(plain)
    except ValueError:
        raise ValueError(f"Not a number of type {kind.name}") from None
    return value


def shown_double(value: float) -> str:
    """Return a double in the format of Java's Double.toString."""
    if not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or PLAIN_NOTATION[0] <= abs(value) < PLAIN_NOTATION[1]:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), "the number is finite"
    plain = "".join(map(str, digits))
    return f"{'-' if sign else ''}{plain[0]}.{plain[1:] or '0'}E{exponent + len(plain) - 1}"
