"""A call of the HTTP API: its arguments, checked, and how a body is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import structs

from kraftsim.control.access import Refused
from kraftsim.lab.faults.request_fault_text import parse_request_fault
from kraftsim.lab.faults.rules_request_faults import RequestFault, api_key_of, error_code_of

S = TypeVar("S", bound=msgspec.Struct)
HOUR_MS: Final = 3_600_000
NUMBER_DIGITS_MAX: Final = 18


class CallRefused(Exception):
    """A call that cannot be carried out: the status and the body of its answer."""

    def __init__(self, status: int, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.status = status
        self.refused = Refused(error=error, hint=hint)


@dataclass(frozen=True, slots=True)
class HttpCall:
    """The arguments of a call: those in the path, those in the query, the body if the route has
    one, and Last-Event-ID.
    """

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: msgspec.Struct | None = None
    last_event_id: str | None = None

    def number(self, name: str) -> int:
        """Return an argument of the path that is a number: routes match digits only."""
        return int(self.path[name])

    def of(self, kind: type[S]) -> S:
        """Return the body, which the route has declared to be of this type."""
        assert isinstance(self.body, kind), f"the body of this route is a {kind.__name__}"
        return self.body


# Bodies
# --------------------------------------------------------------------------------------------------

Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=HOUR_MS)]
BytesPerSecond = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class RestartBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the nodes run from now on: another release of Kafka, and settings on top of their
    own.
    """

    release: Text | None = None
    settings: dict[str, str] = {}


class UpgradeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The release of Kafka to run."""

    release: Text


class LinkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Links: a node (all its links), `A>B` (one direction), `A<>B` (both). `clients` are all that
    are not nodes, `leader` is the active controller, names may be patterns with `*`.
    """

    target: Text


class SlowBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Links, as for a cut, and how slow they are: latency and jitter in ms for each direction, and
    at most so many bytes per second; 0 is no limit.
    """

    target: Text
    latency_ms: Milliseconds = 0
    jitter_ms: Milliseconds = 0
    bytes_per_second: BytesPerSecond = 0


class HealBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The nodes whose links are healed; none: all."""

    nodes: tuple[Text, ...] = ()


class DiskFaultBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fault: `lost-disk` or `bit-rot`."""

    fault: Text


class RequestFaultText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault of requests as `kraftsim inject` reads it:
    `EndTxn error=CONCURRENT_TRANSACTIONS times=3`.
    """

    text: Text


NAMED: Final = {"api": int | str | None, "error": int | str}
"""Fields of RequestFault that may be Kafka's names here: `EndTxn`, `CONCURRENT_TRANSACTIONS`."""

RequestFaultBody: Final = msgspec.defstruct(
    "RequestFaultBody",
    [
        (each.name, NAMED.get(each.name, each.type), each.default)
        if not each.required
        else (each.name, each.type)
        for each in structs.fields(RequestFault)
    ],
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    namespace={
        "__doc__": "A fault of requests: the fields of `RequestFault`; `api` and `error` are "
        "numbers, or Kafka's names."
    },
)
"""`RequestFault` with names; made of its fields, so that none is forgotten here."""


def request_fault_of(body: msgspec.Struct) -> RequestFault:
    """Return the fault that a body says. Raises CallRefused."""
    try:
        if isinstance(body, RequestFaultText):
            return parse_request_fault(body.text)
        given = structs.asdict(body)
        api, error = given.pop("api"), given.pop("error")
        is_any = api is None or api == "*"
        return RequestFault(
            api=None if is_any else api_key_of(api), error=error_code_of(error), **given
        )
    except ValueError as wrong:
        raise CallRefused(400, str(wrong), "docs/request-faults.md has all fields") from wrong


def decode_body(data: bytes, kinds: tuple[type[msgspec.Struct], ...]) -> msgspec.Struct:
    """Return a body as the type of `kinds` that its fields fit: the first whose required fields are
    there. Nothing at all is an object without fields. Raises CallRefused, with what is near to a
    misspelt field.
    """
    try:
        raw = msgspec.json.decode(data) if data.strip() else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise CallRefused(400, f"the body is no JSON: {wrong}") from wrong
    if not isinstance(raw, dict):
        raise CallRefused(400, "the body is no JSON object", f"it has {_fields_text(kinds)}")
    kind = next((each for each in kinds if _required(each) <= raw.keys()), kinds[-1])
    names = [each.encode_name for each in structs.fields(kind)]
    for name in raw:
        if name not in names:
            near = get_close_matches(name, names, 1)
            raise CallRefused(
                400,
                f"the body has an unknown field {name[:60]!r}",
                f"did you mean {near[0]}?" if near else f"it has {_fields_text(kinds)}",
            )
    try:
        # several structs without tags are no union for msgspec: the fields have chosen one
        return msgspec.convert(raw, kind)
    except (msgspec.ValidationError, RecursionError) as wrong:
        raise CallRefused(400, str(wrong), f"it has {_fields_text(kinds)}") from wrong


def _required(kind: type[msgspec.Struct]) -> set[str]:
    return {each.encode_name for each in structs.fields(kind) if each.required}


def _fields_text(kinds: tuple[type[msgspec.Struct], ...]) -> str:
    return " or ".join(
        f"the fields {', '.join(each.encode_name for each in structs.fields(kind))}"
        for kind in kinds
    )
