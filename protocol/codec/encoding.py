"""The statements of a fused encoder: fields are appended as chunks of bytes to a list.

Fields between two arrays of structures are packed at once, strings included (`segments`); records
are appended to the list uncopied. A structure without tagged fields costs one zero byte within the
pack. Values are not checked one by one: struct, `len` and `.encode()` reject what does not fit.
Source: org.apache.kafka.message.MessageDataGenerator; KIP-482.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import construct

from protocol.codec.decoding import fixed_codes, is_fixed, is_plain_fixed, length_code
from protocol.codec.defaults import is_plainly_default, is_set, nothing_but_fields
from protocol.codec.segments import ONE_BYTE, Content, Fixed, LengthPart, Segment, Tags
from protocol.codec.source import Source
from protocol.codec.tree import PresentField, StructureLayout
from protocol.codec.types import Blob, Elements, FixedType, Length, NullableStructure, Text, Uuid

TagWriters = Mapping[int, str]
"""From the id of a layout to the function that appends its tagged fields."""


class EncoderWriter:
    """Generates statements that append fields one after the other; fields that can be packed
    together are collected in `segment`.
    """

    def __init__(self, source: Source, tag_writers: TagWriters) -> None:
        self._source = source
        self._tag_writers = tag_writers
        self.segment = Segment(source)

    def structure(self, layout: StructureLayout, target: str) -> None:
        """Append a structure."""
        source = self._source
        guards = [is_set(source, field, f"{target}.{field.name}") for field in layout.guarded]
        if guards:
            with source.block(f"if {' or '.join(guards)}:"):
                source.line('raise ValueError("a field is set that this version lacks")')
        for field in layout.fields:
            self.field(field, f"{target}.{field.name}")
        if not layout.flexible:
            return
        usual = [
            f"{target}._tags is None",
            *(
                is_plainly_default(source, field.declared, f"{target}.{field.name}")
                for field in layout.tags
            ),
        ]
        unusual = (
            f"{self._tag_writers[id(layout)]}({target}, append)"
            if layout.tags
            else f"write_tags({target}._tags, append)"
        )
        self.segment.parts.append(Tags(" and ".join(usual), unusual))

    def field(self, field: PresentField, expression: str) -> None:
        """Append one field, whatever its type."""
        match field.subcon:
            case FixedType() as fixed:
                self._number(fixed, expression)
            case Text() as text:
                self._text(text, expression)
            case Blob() as blob:
                self._blob(blob, expression)
            case Elements() as array:
                self._array(array, expression)
            case NullableStructure() as nullable:
                nested = self._source.fresh("nested")
                self._source.line(f"{nested} = {expression}")
                self._nullable_structure(
                    nullable.structure, nested, null="0" if nullable.tagged else "-1"
                )
            case StructureLayout() as layout:
                nested = self._source.fresh("nested")
                self._source.line(f"{nested} = {expression}")
                self.structure(layout, nested)

    def _number(self, fixed: FixedType, expression: str) -> None:
        if isinstance(fixed, Uuid):
            uuid = self._source.fresh("uuid")
            self._source.line(f"{uuid} = {expression}")
            with self._source.block(f"if len({uuid}) != 16:"):
                self._source.line('raise ValueError("a uuid has 16 bytes")')
            expression = uuid
        self.segment.parts.append(Fixed(fixed.code, expression))

    def _text(self, declared: Text, expression: str) -> None:
        text = self._source.fresh("text")
        length = LengthPart(_code(declared.length), self._source.fresh("length"), "string_varint")
        if declared.length.nullable:
            self._source.line(f"{text} = {expression}")
        else:
            self._source.line(f"{text} = {expression}.encode()")
            self._source.line(length.of(text))
        self.segment.parts += (
            length,
            Content("s", text, length, is_nullable_text=declared.length.nullable),
        )

    def _blob(self, declared: Blob, expression: str) -> None:
        """Append bytes or records as they are."""
        content = self._source.fresh("content")
        self._source.line(f"{content} = {expression}")
        with self._unless_null(content, declared.length) as length:
            self._source.line(length.of(content))
            self.segment.parts.append(length)
            self.segment.flush(is_before_blob=True)
            self._source.line(f"append({content})")

    def _array(self, array: Elements, expression: str) -> None:
        elements = self._source.fresh("elements")
        self._source.line(f"{elements} = {expression}")
        element = array.element
        if is_plain_fixed(element):
            self._numbers(element.code, elements, array.length)
            return
        with self._unless_null(elements, array.length) as length:
            self._source.line(length.of(elements))
            self.segment.parts.append(length)
            self.segment.flush()
            if (
                isinstance(element, StructureLayout)
                and is_fixed(element)
                and all(is_plain_fixed(field.subcon) for field in element.fields)
            ):
                with self._source.block(f"if {elements}:"):
                    self._sweep(element, elements)
            else:
                self._loop(element, elements)

    def _numbers(self, number_code: str, elements: str, declared: Length) -> None:
        source = self._source
        length = LengthPart(_code(declared), source.fresh("length"), "varint")
        if declared.nullable:
            with source.block(f"if {elements} is None:"):
                source.line(f"{length.name} = {length.of_null().value}")
                source.line(f"{elements} = ()")
            with source.block("else:"):
                source.line(length.of(elements))
        else:
            source.line(length.of(elements))
        self.segment.parts += (length, Content(number_code, elements, length))

    @contextmanager
    def _unless_null(self, value: str, declared: Length) -> Iterator[LengthPart]:
        """Generate the branch for None, and around the body of the other one, which ends with
        nothing pending.
        """
        length = LengthPart(_code(declared), self._source.fresh("length"), "varint")
        if not declared.nullable:
            yield length
            return
        pending = list(self.segment.parts)
        with self._source.block(f"if {value} is None:"):
            self.segment.parts.append(length.of_null())
            self.segment.flush()
        with self._source.block("else:"):
            self.segment.parts = pending
            yield length
            self.segment.flush()

    def _nullable_structure(self, layout: StructureLayout, nested: str, *, null: str) -> None:
        pending = list(self.segment.parts)
        with self._source.block(f"if {nested} is None:"):
            self.segment.parts.append(Fixed("b", null))
            self.segment.flush()
        with self._source.block("else:"):
            self.segment.parts = [*pending, Fixed("b", "1")]
            self.structure(layout, nested)
            self.segment.flush()

    def _sweep(self, element: StructureLayout, elements: str) -> None:
        """Pack elements of fixed size in one comprehension; if one of them is unusual, restart with
        the loop.
        """
        source = self._source
        one = source.fresh("element")
        codes = fixed_codes(element) + ("x" if element.flexible else "")
        values = ", ".join(f"{one}.{field.name}" for field in element.fields)
        conditions = nothing_but_fields(source, element, one)
        packed = source.fresh("packed")
        source.line(
            f"{packed} = [{source.method(codes, 'pack')}({values}) for {one} in {elements} if "
            f"{' and '.join(conditions)}]"
        )
        with source.block(f"if len({packed}) == len({elements}):"):
            source.line(f"chunks += {packed}")
        with source.block("else:"):
            self._loop(element, elements)

    def _loop(self, element: construct.Construct, elements: str) -> None:
        source = self._source
        one = source.fresh("element")
        with source.block(f"for {one} in {elements}:"):
            match element:
                case StructureLayout():
                    self.structure(element, one)
                case FixedType():
                    self._number(element, one)
                case Text():
                    self._text(element, one)
                case Blob():
                    self._blob(element, one)
            self.segment.flush()


def is_one_segment(layout: StructureLayout) -> bool:
    """Return whether all of a message can be packed at its end: numbers, strings, arrays of
    numbers.
    """
    return bool(layout.fields) and all(_is_packed(field.subcon) for field in layout.fields)


def _is_packed(subcon: construct.Construct) -> bool:
    match subcon:
        case StructureLayout():
            return is_one_segment(subcon)
        case Elements(element=element):
            return is_plain_fixed(element)
    return isinstance(subcon, FixedType | Text)


def _code(length: Length) -> str:
    return ONE_BYTE if length.compact else length_code(length)
