"""Segments that an encoder packs at once: consecutive fields whose sizes are all known before the
first byte is written.

Numbers, and between them strings and arrays of numbers: one Struct per combination of lengths takes
them all. Two cases need another way and rarely happen: a compact length of more than one byte, and
tagged fields that are set; then the parts are written one after the other.
Source: KIP-482 (compact lengths, tagged fields).
"""

from dataclasses import dataclass
from struct import Struct

from protocol.codec.source import Source

ONE_BYTE = "B"
"""The code of a compact length in the common case."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A number by its code; `value` is an expression."""

    code: str
    value: str


@dataclass(frozen=True, slots=True)
class LengthPart:
    """The length before something of variable size, in a local variable; a compact one is one too
    high, as on the wire.
    """

    code: str
    name: str
    longer: str
    """Function that writes a compact length of more than one byte."""

    @property
    def is_compact(self) -> bool:
        return self.code == ONE_BYTE

    def of(self, expression: str) -> str:
        """Return the statement that computes the length."""
        return f"{self.name} = len({expression})" + (" + 1" if self.is_compact else "")

    def of_null(self) -> Fixed:
        """Return the length of null."""
        return Fixed(self.code, "0" if self.is_compact else "-1")


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes (code s) or numbers in a local variable, after their length.

    A nullable string is neither encoded nor measured yet.
    """

    code: str
    name: str
    length: LengthPart
    is_nullable_text: bool = False


@dataclass(frozen=True, slots=True)
class Tags:
    """The tagged fields of a structure: a zero byte if `usual` holds, else what the statement
    `unusual` appends.
    """

    usual: str
    unusual: str


Part = Fixed | LengthPart | Content | Tags


class Segment:
    """Parts that are not encoded yet."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.parts: list[Part] = []

    def flush(self, *, as_result: bool = False, is_before_blob: bool = False) -> None:
        """Encode the parts: append them as one chunk, or return them.

        Before a blob a last length of two or three bytes is common, too.
        """
        parts, self.parts = self.parts, []
        if not parts:
            return
        texts = [part for part in parts if isinstance(part, Content) and part.is_nullable_text]
        if len(texts) != 1:
            for text in texts:
                self._measure_or_empty(text)
            self._write(parts, as_result=as_result, is_before_blob=is_before_blob)
            return
        (text,) = texts
        with self._source.block(f"if {text.name} is None:"):
            short: list[Part] = [
                text.length.of_null() if part is text.length else part
                for part in parts
                if part is not text
            ]
            self._write(short, as_result=as_result, is_before_blob=is_before_blob)
        with self._source.block("else:"):
            self._measure(text)
            self._write(parts, as_result=as_result, is_before_blob=is_before_blob)

    def _measure(self, text: Content) -> None:
        self._source.line(f"{text.name} = {text.name}.encode()")
        self._source.line(text.length.of(text.name))

    def _measure_or_empty(self, text: Content) -> None:
        with self._source.block(f"if {text.name} is None:"):
            self._source.line(f"{text.name} = b''")
            self._source.line(f"{text.length.name} = {text.length.of_null().value}")
        with self._source.block("else:"):
            self._measure(text)

    def _write(self, parts: list[Part], *, as_result: bool, is_before_blob: bool) -> None:
        source = self._source
        compact = [part for part in parts if isinstance(part, LengthPart) and part.is_compact]
        usual = [part.usual for part in parts if isinstance(part, Tags)]
        if not compact and not usual:
            source.line(self._statement(parts, as_result=as_result))
            return
        with source.block(
            f"if {' and '.join([f'{length.name} < 128' for length in compact] + usual)}:"
        ):
            source.line(self._statement(parts, as_result=as_result))
        last = parts[-1]
        if is_before_blob and isinstance(last, LengthPart) and last.is_compact:
            others = [f"{length.name} < 128" for length in compact if length is not last]
            first = f"({last.name} & 127 | 128) << 8 | {last.name} >> 7"
            two_bytes, three_bytes = (
                [Fixed("H", first)],
                [Fixed("H", f"{first} & 127 | 128"), Fixed("B", f"{last.name} >> 14")],
            )
            for limit, length in ((1 << 14, two_bytes), (1 << 21, three_bytes)):
                with source.block(
                    f"elif {' and '.join([f'{last.name} < {limit}', *others, *usual])}:"
                ):
                    source.line(self._statement([*parts[:-1], *length], as_result=False))
        with source.block("else:"):
            if as_result:
                source.line("chunks = []")
                source.line("append = chunks.append")
            self._one_by_one(parts)
            if as_result:
                source.line("return join(chunks)")

    def _statement(self, parts: list[Part], *, as_result: bool) -> str:
        """Return the statement for the common case: pack everything at once, unless there are only
        strings, which are already encoded.
        """
        if len(parts) > 1 and all(
            isinstance(part, Tags)
            or (isinstance(part, LengthPart) and part.is_compact)
            or _is_text(part)
            for part in parts
        ):
            ready = ", ".join(
                part.name
                if isinstance(part, Content)
                else f"BYTE[{part.name if isinstance(part, LengthPart) else 0}]"
                for part in parts
            )
            return f"return join(({ready}))" if as_result else f"chunks += ({ready})"
        return f"return {self._packed(parts)}" if as_result else f"append({self._packed(parts)})"

    def _packed(self, parts: list[Part]) -> str:
        """Return the expression that packs all parts in the common case."""
        codes = ""
        values: list[str] = []
        lengths: list[LengthPart] = []
        for part in parts:
            match part:
                case Fixed(code, value):
                    codes += code
                    values.append(value)
                case LengthPart(code, name):
                    codes += code
                    values.append(name)
                case Content(code, name, length):
                    codes += "{}" + code
                    values.append(name if code == "s" else f"*{name}")
                    lengths.append(length)
                case Tags():
                    codes += "x"
        if all(value.lstrip("-").isdigit() for value in values):
            return repr(Struct(">" + codes).pack(*map(int, values)))
        if codes == ONE_BYTE:
            return f"BYTE[{values[0]}]"
        if not lengths:
            return f"{self._source.method(codes, 'pack')}({', '.join(values)})"
        table = self._source.table(
            codes, tuple(int(length.is_compact) for length in lengths), "pack"
        )
        return f"{table}[{', '.join(length.name for length in lengths)}]({', '.join(values)})"

    def _one_by_one(self, parts: list[Part]) -> None:
        """Append the parts with any lengths and any tagged fields."""
        source = self._source
        run: list[Part] = []

        def flush() -> None:
            if run:
                source.line(f"append({self._packed(run)})")
                run.clear()

        for part in parts:
            match part:
                case LengthPart(_, name, longer) if part.is_compact:
                    flush()
                    source.line(f"append({longer}({name}))")
                case Fixed() | LengthPart():
                    run.append(part)
                case Content("s", name):
                    flush()
                    source.line(f"append({name})")
                case Content(code, name):
                    flush()
                    with source.block(f"if {name}:"):
                        source.line(
                            f"append({source.table('{}' + code, (0,), 'pack')}[len({name})](*"
                            f"{name}))"
                        )
                case Tags(usual, unusual):
                    flush()
                    with source.block(f"if {usual}:"):
                        source.line("append(BYTE[0])")
                    with source.block("else:"):
                        source.line(unusual)
        flush()


def _is_text(part: Part) -> bool:
    return isinstance(part, Content) and part.code == "s"
