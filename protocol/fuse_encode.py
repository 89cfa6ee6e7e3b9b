"""The fused encoder of a layout: one function that appends chunks of bytes to a list.

Fields between two arrays of structures are packed at once, strings included (`fuse_segments`);
records are appended to the list uncopied. A structure without tagged fields costs one zero byte
within the pack. Values are not checked one by one: struct, `len` and `.encode()` reject what does
not fit.
Source: org.apache.kafka.message.MessageDataGenerator; KIP-482.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import error as struct_error

from protocol import fuse_slow
from protocol.declaration import Primitive
from protocol.fuse_defaults import is_default, is_plainly_default, is_set, nothing_but_fields
from protocol.fuse_segments import ONE_BYTE, Content, Fixed, Length, Segment, Tags
from protocol.fuse_source import CODES, Source, fixed_codes, is_fixed
from protocol.resolve import ArrayLayout, PresentField, StructureLayout
from protocol.schema import Message

Chunks = list[bytes | memoryview]
Encoder = Callable[[Message, Chunks], None]
EncodeFailure = Callable[[object, Exception], Exception]


def fused_encoder(layout: StructureLayout, failure: EncodeFailure) -> Encoder:
    """Compile `encode_into(object, chunks)`; errors are raised as the exception that `failure`
    returns.
    """
    return encoder_source(layout, failure, into=True).compile(layout, "encode_into")


def fused_builder(layout: StructureLayout, failure: EncodeFailure) -> Callable[[Message], bytes]:
    """Compile `encode(object) -> bytes`, the same with the chunks joined."""
    return encoder_source(layout, failure, into=False).compile(layout, "encode")


def fused_packer(
    layout: StructureLayout, prefix: str, otherwise: Callable[..., bytes]
) -> Callable[..., bytes] | None:
    """Compile `pack(*prefix_values, object)` for a message of fixed size, or return None for
    others.

    `prefix` are struct codes of the fields before the message. Unusual objects (unknown tags, wrong
    values) are passed to `otherwise`, which takes the same arguments.
    """
    if not is_fixed(layout):
        return None
    source = Source({"otherwise": otherwise, "struct_error": struct_error})
    codes = prefix + fixed_codes(layout) + ("x" if layout.flexible else "")
    numbers = [f"prefix_{index}" for index in range(len(prefix.replace("x", "")))]
    usual = nothing_but_fields(source, layout, "it") + [
        f"len(it.{field.name}) == 16" for field in layout.fields if field.type is Primitive.UUID
    ]
    values = ", ".join([*numbers, *(f"it.{field.name}" for field in layout.fields)])
    arguments = ", ".join([*numbers, "it"])
    with source.block(f"def pack({arguments}):"):
        with source.block("try:"), source.block(f"if {' and '.join(usual)}:"):
            source.line(f"return {source.method(codes, 'pack')}({values})")
        with source.block("except (struct_error, AttributeError, TypeError):"):
            source.line("pass")
        source.line(f"return otherwise({arguments})")
    return source.compile(layout, "pack")


def encoder_source(layout: StructureLayout, failure: EncodeFailure, *, into: bool) -> Source:
    """Write the source of the encoder: into the caller's list, or into bytes."""
    source = Source(
        {
            "BYTE": fuse_slow.BYTE,
            "varint": fuse_slow.varint,
            "string_varint": fuse_slow.string_varint,
            "write_tags": fuse_slow.write_tags,
            "write_mixed_tags": fuse_slow.write_mixed_tags,
            "join": b"".join,
            "failure": failure,
            "struct_error": struct_error,
        }
    )
    names: dict[int, str] = {}
    _write_tag_writers(source, layout, names)
    is_one_chunk = not into and _is_one_segment(layout)
    with source.block("def encode_into(it, chunks):" if into else "def encode(it):"):
        with source.block("try:"):
            if not is_one_chunk:
                if not into:
                    source.line("chunks = []")
                source.line("append = chunks.append")
            writer = EncoderWriter(source, names)
            writer.structure(layout, "it")
            writer.segment.flush(as_result=is_one_chunk)
            if not into and not is_one_chunk:
                source.line("return join(chunks)")
        with source.block(
            "except (struct_error, AttributeError, TypeError, ValueError, IndexError) as error:"
        ):
            source.line("raise failure(it, error) from error")
    return source


class EncoderWriter:
    """Generates statements that append fields one after the other; fields that can be packed
    together are collected in `segment`.
    """

    def __init__(self, source: Source, tag_writers: dict[int, str]) -> None:
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
        match field.type:
            case Primitive() as primitive if primitive in CODES:
                self._number(primitive, expression)
            case Primitive.STRING | Primitive.USTRING:
                self._text(
                    expression,
                    "h" if field.type is Primitive.STRING else "i",
                    flexible=field.flexible,
                    nullable=field.nullable,
                )
            case Primitive():
                self._blob(expression, flexible=field.flexible, nullable=field.nullable)
            case ArrayLayout() as array:
                self._array(array, expression, flexible=field.flexible, nullable=field.nullable)
            case StructureLayout() as layout:
                nested = self._source.fresh("nested")
                self._source.line(f"{nested} = {expression}")
                if field.nullable:
                    self._nullable_structure(layout, nested, null="0" if field.tagged else "-1")
                else:
                    self.structure(layout, nested)

    def _number(self, primitive: Primitive, expression: str) -> None:
        if primitive is Primitive.UUID:
            uuid = self._source.fresh("uuid")
            self._source.line(f"{uuid} = {expression}")
            with self._source.block(f"if len({uuid}) != 16:"):
                self._source.line('raise ValueError("a uuid has 16 bytes")')
            expression = uuid
        self.segment.parts.append(Fixed(CODES[primitive][0], expression))

    def _text(self, expression: str, code: str, *, flexible: bool, nullable: bool) -> None:
        text = self._source.fresh("text")
        length = Length(
            ONE_BYTE if flexible else code, self._source.fresh("length"), "string_varint"
        )
        if nullable:
            self._source.line(f"{text} = {expression}")
        else:
            self._source.line(f"{text} = {expression}.encode()")
            self._source.line(length.of(text))
        self.segment.parts += (length, Content("s", text, length, is_nullable_text=nullable))

    def _blob(self, expression: str, *, flexible: bool, nullable: bool) -> None:
        """Append bytes or records as they are."""
        content = self._source.fresh("content")
        self._source.line(f"{content} = {expression}")
        with self._unless_null(content, ONE_BYTE if flexible else "i", nullable=nullable) as length:
            self._source.line(length.of(content))
            self.segment.parts.append(length)
            self.segment.flush(is_before_blob=True)
            self._source.line(f"append({content})")

    def _array(
        self, array: ArrayLayout, expression: str, *, flexible: bool, nullable: bool
    ) -> None:
        elements = self._source.fresh("elements")
        self._source.line(f"{elements} = {expression}")
        element = array.element
        code = ONE_BYTE if flexible else "i"
        if isinstance(element, Primitive) and element in CODES and element is not Primitive.UUID:
            self._numbers(CODES[element][0], elements, code, nullable=nullable)
            return
        with self._unless_null(elements, code, nullable=nullable) as length:
            self._source.line(length.of(elements))
            self.segment.parts.append(length)
            self.segment.flush()
            if (
                isinstance(element, StructureLayout)
                and is_fixed(element)
                and all(field.type is not Primitive.UUID for field in element.fields)
            ):
                with self._source.block(f"if {elements}:"):
                    self._sweep(element, elements, flexible=flexible)
            else:
                self._loop(element, elements, flexible=flexible)

    def _numbers(self, number_code: str, elements: str, code: str, *, nullable: bool) -> None:
        source = self._source
        length = Length(code, source.fresh("length"), "varint")
        if nullable:
            with source.block(f"if {elements} is None:"):
                source.line(f"{length.name} = {length.of_null().value}")
                source.line(f"{elements} = ()")
            with source.block("else:"):
                source.line(length.of(elements))
        else:
            source.line(length.of(elements))
        self.segment.parts += (length, Content(number_code, elements, length))

    @contextmanager
    def _unless_null(self, value: str, code: str, *, nullable: bool) -> Iterator[Length]:
        """Generate the branch for None, and around the body of the other one, which ends with
        nothing pending.
        """
        length = Length(code, self._source.fresh("length"), "varint")
        if not nullable:
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

    def _sweep(self, element: StructureLayout, elements: str, *, flexible: bool) -> None:
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
            self._loop(element, elements, flexible=flexible)

    def _loop(
        self, element: "Primitive | StructureLayout", elements: str, *, flexible: bool
    ) -> None:
        source = self._source
        one = source.fresh("element")
        with source.block(f"for {one} in {elements}:"):
            match element:
                case StructureLayout():
                    self.structure(element, one)
                case Primitive.UUID:
                    self._number(element, one)
                case Primitive.STRING | Primitive.USTRING:
                    self._text(
                        one,
                        "h" if element is Primitive.STRING else "i",
                        flexible=flexible,
                        nullable=False,
                    )
                case _:
                    self._blob(one, flexible=flexible, nullable=False)
            self.segment.flush()


def _is_one_segment(layout: StructureLayout) -> bool:
    """Return whether all of a message can be packed at its end: numbers, strings, arrays of
    numbers.
    """
    for field in layout.fields:
        match field.type:
            case StructureLayout() as nested:
                if field.nullable or not _is_one_segment(nested):
                    return False
            case ArrayLayout(element):
                if element not in CODES or element is Primitive.UUID:
                    return False
            case Primitive.BYTES | Primitive.RECORDS:
                return False
    return bool(layout.fields)


def _write_tag_writers(source: Source, layout: StructureLayout, names: dict[int, str]) -> None:
    """Generate, for each structure with known tagged fields, the function that appends the
    non-default ones; inner structures first.
    """
    for field in (*layout.fields, *layout.tags):
        shape = field.type.element if isinstance(field.type, ArrayLayout) else field.type
        if isinstance(shape, StructureLayout):
            _write_tag_writers(source, shape, names)
    if not layout.tags:
        return
    name = names[id(layout)] = source.fresh(f"tags_of_{layout.cls.__name__}")
    with source.block(f"def {name}(it, append_outside):"):
        source.line("written = [b'']")
        for field in layout.tags:
            assert field.tag is not None and field.tag < len(fuse_slow.BYTE), (
                f"{field.name} has a tag of more than one byte"
            )
            with source.block(
                f"if not ({is_default(source, field.declared, f'it.{field.name}')}):"
            ):
                source.line("chunks = []")
                source.line("append = chunks.append")
                writer = EncoderWriter(source, names)
                writer.field(field, f"it.{field.name}")
                writer.segment.flush()
                source.line("content = join(chunks)")
                source.line("size = len(content)")
                source.line(
                    f"written += ({fuse_slow.BYTE[field.tag]!r}, BYTE[size] if size < 128 else "
                    "varint(size), content)"
                )
        with source.block("if it._tags:"):
            known = ", ".join(str(field.tag) for field in layout.tags)
            source.line(f"write_mixed_tags(it._tags, ({known},), written, append_outside)")
        with source.block("else:"):
            source.line("written[0] = BYTE[len(written) // 3]")
            source.line("append_outside(join(written))")
