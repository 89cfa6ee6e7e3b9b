"""Requests with responses that are hard to encode: names of maximal length, null names, arrays of
extremes, invalid UTF-8.

Half of the frames are requests of any API and version with values chosen to be echoed in responses;
the other half are valid requests with a few bytes changed. Text longer than kraftsim's codec would
write replaces a marker, so that a frame can contain what no valid client sends.
Source: none of Kafka's; the limits are those of org.apache.kafka.common.protocol.Readable.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from struct import pack

from protocol.api_keys import FORWARDABLE, ApiKey
from protocol.codec.declaration import INTEGER_RANGES, Primitive
from protocol.codec.slow import varint
from protocol.codec.tree import ArrayLayout, PresentField, StructureLayout, default_of, layout_of
from protocol.messages import registry
from protocol.messages.k58_envelope import EnvelopeRequest
from protocol.requests import request_chunks
from protocol.schema import Message
from protocol.version_prefixed import DefaultPrincipalData, build_principal
from tools.fuzz.message_targets import examples
from tools.fuzz.mutation import mutated

LONGEST = 32767
MARKER = "\x03" * 100
"""Placeholder for text that the encoder would not write. Its compact length is one byte."""
BEHIND_COMPACT, BEHIND_PLAIN = (
    bytes((len(MARKER) + 1,)) + MARKER.encode(),
    pack(">h", len(MARKER)) + MARKER.encode(),
)
LONG_TEXTS = (
    b"/" * LONGEST,
    b"a" * LONGEST,
    b"\xff" * LONGEST,
    "\u00e9".encode() * (LONGEST // 2),
    b"\0" * LONGEST,
    b"'" * LONGEST,
)
TOO_LONG = b"/" * 40_000
"""Too long for any but a compact length."""
LONG_TEXTS_MAX = 8
"""The maximum per frame; other markers remain."""
ARRAY_SIZES = (0, 1, 1, 1, 2, 3)
LONG_ARRAY = 300
"""The length of one array in a hundred, unless it is nested."""
CLIENT_ID = "answer-fuzz"
SIZE_BYTES = 4
HEAD_BYTES = 8
"""API key, API version, correlation id: these are not changed, so that every frame reaches its
API.
"""
CHANGED_BODY_BYTES_MAX = 8192


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its frame with the size prefix, and the type of its response."""

    api_key: int
    version: int
    correlation_id: int
    frame: bytes


@dataclass(slots=True)
class FrameMaker:
    """Generates random frames.

    `offered` is what a node supports: API key to first and last version.

    `left_out` is not sent. `names` and `ids` are those of real topics.
    """

    rng: Random
    offered: Mapping[int, tuple[int, int]]
    names: Sequence[str]
    ids: Sequence[bytes]
    left_out: frozenset[int] = frozenset()
    _valid: dict[tuple[int, int], list[bytes]] = field(default_factory=dict)
    _pairs: list[tuple[int, int]] = field(default_factory=list)
    _inner: list[tuple[int, int]] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        keys = [key for key in sorted(self.offered) if key not in self.left_out]
        self._pairs = [
            (key, version)
            for key in keys
            for version in range(self.offered[key][0], self.offered[key][1] + 1)
        ]
        self._inner = [pair for pair in self._pairs if pair[0] in FORWARDABLE]

    def each_once(self, *, newest_only: bool = False) -> Iterator[Asked]:
        """Yield a request of each API and version, or of its newest version, with every text at its
        maximal length.
        """
        for key, version in self._pairs:
            if not newest_only or version == self.offered[key][1]:
                yield self._constructed(key, version, is_longest=True)

    def each_truncated(self) -> Iterator[Asked]:
        """Yield a valid request of each API and version that ends one byte early, if it has a
        body.
        """
        for key, version in self._pairs:
            number = self._number()
            content = self._examples(key, version)[0]
            if len(content) > HEAD_BYTES:
                yield Asked(
                    key,
                    version,
                    number,
                    _framed(pack(">hhi", key, version, number) + content[HEAD_BYTES:-1]),
                )

    def next(self) -> Asked:
        """Return the next frame: alternately constructed and mutated."""
        pair = self.rng.choice(self._pairs)
        return self._constructed(*pair) if self._count % 2 else self._changed(*pair)

    def _number(self) -> int:
        self._count += 1
        return self._count

    def _changed(self, key: int, version: int) -> Asked:
        """Return a valid request with some bytes changed after its correlation id."""
        number = self._number()
        valid = self._examples(key, version)
        data = self.rng.choice(valid)
        body = mutated(self.rng, data[HEAD_BYTES:], [each[HEAD_BYTES:] for each in valid])[
            :CHANGED_BODY_BYTES_MAX
        ]
        return Asked(key, version, number, _framed(pack(">hhi", key, version, number) + body))

    def _examples(self, key: int, version: int) -> list[bytes]:
        """Return valid requests, without their size prefixes."""
        valid = self._valid.get((key, version))
        if valid is None:
            bodies = examples(registry.request_class(key), version)
            valid = self._valid[key, version] = [
                b"".join(request_chunks(key, version, 0, CLIENT_ID, body))[SIZE_BYTES:]
                for body in bodies
            ]
        return valid

    def _constructed(self, key: int, version: int, *, is_longest: bool = False) -> Asked:
        number = self._number()
        if key == ApiKey.ENVELOPE and self._inner:
            return self._envelope(version, number)
        return Asked(key, version, number, self._frame(key, version, number, is_longest))

    def _envelope(self, version: int, number: int) -> Asked:
        """Return an Envelope around a constructed request."""
        inner = self._frame(*self.rng.choice(self._inner), number, is_longest=False)[SIZE_BYTES:]
        principal = build_principal(
            DefaultPrincipalData(
                principal_type="User", name=self.rng.choice(("ANONYMOUS", "bob", "x" * 30_000))
            )
        )
        body = EnvelopeRequest(
            request_data=inner,
            request_principal=principal,
            client_host_address=bytes((127, 0, 0, 1)),
        )
        return Asked(
            int(ApiKey.ENVELOPE),
            version,
            number,
            b"".join(request_chunks(ApiKey.ENVELOPE, version, number, CLIENT_ID, body)),
        )

    def _frame(self, key: int, version: int, number: int, is_longest: bool) -> bytes:
        cls = registry.request_class(key)
        layout = layout_of(cls, version)
        body = Values(self, is_longest).structure(layout)
        client_id = MARKER if self.rng.randrange(20) == 0 else CLIENT_ID
        content = b"".join(request_chunks(key, version, number, client_id, body))[SIZE_BYTES:]
        content = content.replace(BEHIND_PLAIN, self._long_text(compact=False), LONG_TEXTS_MAX)
        return _framed(
            content.replace(BEHIND_COMPACT, self._long_text(compact=True), LONG_TEXTS_MAX)
            if layout.flexible
            else content
        )

    def _long_text(self, *, compact: bool) -> bytes:
        text = self.rng.choice((*LONG_TEXTS, TOO_LONG) if compact else LONG_TEXTS)
        return (varint(len(text) + 1) if compact else pack(">h", len(text))) + text


@dataclass(frozen=True, slots=True)
class Values:
    """Chooses the value of each field of a request."""

    maker: FrameMaker
    is_longest: bool
    depth: int = 0

    def structure(self, layout: StructureLayout) -> Message:
        """Return a structure."""
        rng = self.maker.rng
        values = {each.name: self._value(each) for each in layout.fields}
        for each in layout.tags:
            values[each.name] = default_of(each.declared) if rng.randrange(2) else self._value(each)
        made: Message = layout.cls(**values)
        return made

    def _value(self, each: PresentField) -> object:
        rng = self.maker.rng
        if each.nullable and rng.randrange(4) == 0:
            return None
        match each.type:
            case StructureLayout() as layout:
                return self.structure(layout)
            case ArrayLayout(element):
                size = (
                    1
                    if self.is_longest
                    else rng.choice(ARRAY_SIZES)
                    if self.depth or rng.randrange(100)
                    else LONG_ARRAY
                )
                inner = Values(self.maker, self.is_longest, self.depth + 1)
                return [
                    inner.structure(element)
                    if isinstance(element, StructureLayout)
                    else self._primitive(element)
                    for _ in range(size)
                ]
            case Primitive() as primitive:
                return self._primitive(primitive)
        raise AssertionError(f"{each.name} has no wire type")

    def _primitive(self, primitive: Primitive) -> object:
        rng, maker = self.maker.rng, self.maker
        match primitive:
            case Primitive.STRING | Primitive.USTRING:
                return (
                    MARKER
                    if self.is_longest or rng.randrange(3) == 0
                    else rng.choice((*maker.names, *maker.names, "", "user", "1", "retention.ms"))
                )
            case Primitive.UUID:
                return rng.choice((*maker.ids, bytes(16), bytes((255,)) * 16))
            case Primitive.BOOLEAN:
                return rng.randrange(2) == 1
            case Primitive.FLOAT64:
                return rng.choice((0.0, -1.0, 1e308, float("nan"), float("inf")))
            case Primitive.BYTES:
                return rng.choice(
                    (b"", b"\0" * 8, b"\xff" * 40_000 if rng.randrange(10) == 0 else b"x")
                )
            case Primitive.RECORDS:
                return memoryview(b"")
        lowest, highest = INTEGER_RANGES[primitive]
        number: int = rng.choice(
            (0, 0, 1, 1, 2, 3, 4, 8, 16, 100, -1 if lowest else 0, lowest, highest)
        )
        return min(max(number, lowest), highest)


def _framed(content: bytes) -> bytes:
    return pack(">i", len(content)) + content
