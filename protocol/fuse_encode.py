"""The fused encoder of a layout: one function that appends chunks of bytes to a list.

Neighbouring fixed fields and the length after them are packed at once; records go into the list as they are, uncopied. A structure without tagged
fields costs one zero byte within the last pack. Values are not checked one by one: struct, `len` and `.encode()` refuse what does not fit.
Source: org.apache.kafka.message.MessageDataGenerator; KIP-482.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from struct import error as struct_error

from protocol import fuse_slow
from protocol.declaration import Field, Fresh, Primitive
from protocol.fuse_source import CODES, Source, fixed_codes, is_fixed
from protocol.resolve import ArrayLayout, PresentField, StructureLayout
from protocol.schema import Message

Chunks = list[bytes | memoryview]
Encoder = Callable[[Message, Chunks], None]
EncodeFailure = Callable[[object, Exception], Exception]


def fused_encoder(layout: StructureLayout, failure: EncodeFailure) -> Encoder:
    """Compile `encode_into(object, chunks)`; anything wrong is raised as what `failure` makes of it."""
    return encoder_source(layout, failure, into=True).compile(layout, "encode_into")


def fused_builder(layout: StructureLayout, failure: EncodeFailure) -> Callable[[Message], bytes]:
    """Compile `encode(object) -> bytes`, the same with the chunks joined."""
    return encoder_source(layout, failure, into=False).compile(layout, "encode")


def fused_packer(layout: StructureLayout, prefix: str, otherwise: Callable[..., bytes]) -> Callable[..., bytes] | None:
    """Compile `pack(*prefix_values, object)` for a message of fixed size, or return None for others.

    `prefix` are struct codes of what stands before the message. Objects that are unusual (unknown tags, wrong values) are left to `otherwise`,
    which takes the same arguments.
    """
    if not is_fixed(layout):
        return None
    source = Source({"otherwise": otherwise, "struct_error": struct_error})
    codes = prefix + fixed_codes(layout) + ("x" if layout.flexible else "")
    numbers = [f"prefix_{index}" for index in range(len(prefix.replace("x", "")))]
    usual = _conditions(source, layout, "it") + [f"len(it.{field.name}) == 16" for field in layout.fields if field.type is Primitive.UUID]
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
    with source.block("def encode_into(it, chunks):" if into else "def encode(it):"):
        if not into:
            source.line("chunks = []")
        with source.block("try:"):
            source.line("append = chunks.append")
            writer = EncoderWriter(source, names)
            writer.structure(layout, "it")
            writer.flush()
            if not into:
                source.line("return join(chunks)")
        with source.block("except (struct_error, AttributeError, TypeError, ValueError, IndexError) as error:"):
            source.line("raise failure(it, error) from error")
    return source


class EncoderWriter:
    """Writes statements that append fields one after the other.

    `_run` holds fixed fields that are not appended yet: (code, expression), None for a zero byte.
    """

    def __init__(self, source: Source, tag_writers: dict[int, str]) -> None:
        self._source = source
        self._tag_writers = tag_writers
        self._run: list[tuple[str, str | None]] = []

    def structure(self, layout: StructureLayout, target: str) -> None:
        """Append a structure."""
        source = self._source
        guards = [_is_not_default(source, field, f"{target}.{field.name}") for field in layout.guarded]
        if guards:
            with source.block(f"if {' or '.join(guards)}:"):
                source.line('raise ValueError("a field is set that this version lacks")')
        for field in layout.fields:
            self.field(field, f"{target}.{field.name}")
        if not layout.flexible:
            return
        pending = self._run
        usual = [f"{target}._tags is None", *(_is_plainly_default(source, field.declared, f"{target}.{field.name}") for field in layout.tags)]
        with source.block(f"if {' and '.join(usual)}:"):
            self._run = [*pending, ("x", None)]
            self.flush()
        with source.block("else:"):
            self._run = pending
            self.flush()
            if layout.tags:
                source.line(f"{self._tag_writers[id(layout)]}({target}, append)")
            else:
                source.line(f"write_tags({target}._tags, append)")

    def field(self, field: PresentField, expression: str) -> None:
        """Append one field, whatever its type."""
        match field.type:
            case Primitive() as primitive if primitive in CODES:
                self._number(primitive, expression)
            case Primitive() as primitive:
                self._sized(primitive, expression, flexible=field.flexible, nullable=field.nullable)
            case ArrayLayout() as array:
                self._array(array, expression, flexible=field.flexible, nullable=field.nullable)
            case StructureLayout() as layout if not field.nullable:
                nested = self._source.fresh("nested")
                self._source.line(f"{nested} = {expression}")
                self.structure(layout, nested)
            case StructureLayout() as layout:
                nested = self._source.fresh("nested")
                self._source.line(f"{nested} = {expression}")
                with self._unless_null(nested, code="b", null="0" if field.tagged else "-1"):
                    self._run.append(("b", "1"))
                    self.structure(layout, nested)

    def flush(self) -> None:
        """Append everything that is pending as one chunk."""
        run, self._run = self._run, []
        if not run:
            return
        codes = "".join(code for code, _ in run)
        values = [value for _, value in run if value is not None]
        if all(value.lstrip("-").isdigit() for value in values):
            constant = Struct(">" + codes).pack(*(int(value) for value in values))
            self._source.line(f"append({constant!r})")
        elif codes == "B":
            self._source.line(f"append(BYTE[{values[0]}])")
        else:
            self._source.line(f"append({self._source.method(codes, 'pack')}({', '.join(values)}))")

    def _number(self, primitive: Primitive, expression: str) -> None:
        if primitive is Primitive.UUID:
            uuid = self._source.fresh("uuid")
            self._source.line(f"{uuid} = {expression}")
            with self._source.block(f"if len({uuid}) != 16:"):
                self._source.line('raise ValueError("a uuid has 16 bytes")')
            expression = uuid
        self._run.append((CODES[primitive][0], expression))

    def _sized(self, primitive: Primitive, expression: str, *, flexible: bool, nullable: bool) -> None:
        """Append a string, bytes or records."""
        is_text = primitive is Primitive.STRING
        value = self._source.fresh("text" if is_text else "content")
        encoded = ".encode()" if is_text else ""
        code = "B" if flexible else "h" if is_text else "i"
        if not nullable:
            self._source.line(f"{value} = {expression}{encoded}")
            self._append_sized(value, code, is_text=is_text)
            return
        self._source.line(f"{value} = {expression}")
        with self._unless_null(value, code=code, null="0" if flexible else "-1"):
            if is_text:
                self._source.line(f"{value} = {value}.encode()")
            self._append_sized(value, code, is_text=is_text)

    def _append_sized(self, value: str, code: str, *, is_text: bool) -> None:
        self._length(value, code, longer="string_varint" if is_text else "varint")
        self._source.line(f"append({value})")

    def _length(self, value: str, code: str, *, longer: str) -> None:
        """Append a length, with what is pending if it takes one byte."""
        if code != "B":
            self._run.append((code, f"len({value})"))
            self.flush()
            return
        length = self._source.fresh("length")
        pending = self._run
        self._source.line(f"{length} = len({value}) + 1")
        with self._source.block(f"if {length} < 128:"):
            self._run = [*pending, ("B", length)]
            self.flush()
        with self._source.block("else:"):
            self._run = pending
            self.flush()
            self._source.line(f"append({longer}({length}))")

    def _array(self, array: ArrayLayout, expression: str, *, flexible: bool, nullable: bool) -> None:
        source = self._source
        elements = source.fresh("elements")
        source.line(f"{elements} = {expression}")
        code = "B" if flexible else "i"
        if nullable:
            with self._unless_null(elements, code=code, null="0" if flexible else "-1"):
                self._length(elements, code, longer="varint")
                self._elements(array, elements, flexible=flexible)
            return
        self._length(elements, code, longer="varint")
        self._elements(array, elements, flexible=flexible)

    def _elements(self, array: ArrayLayout, elements: str, *, flexible: bool) -> None:
        source = self._source
        element = array.element
        if isinstance(element, Primitive) and element in CODES and element is not Primitive.UUID:
            with source.block(f"if {elements}:"):
                source.line(f"append({source.table(element, 'pack')}[len({elements})](*{elements}))")
            return
        if isinstance(element, StructureLayout) and is_fixed(element) and all(field.type is not Primitive.UUID for field in element.fields):
            self._sweep(element, elements, flexible=flexible)
            return
        self._loop(element, elements, flexible=flexible)

    def _sweep(self, element: StructureLayout, elements: str, *, flexible: bool) -> None:
        """Pack elements of fixed size in one comprehension; if one of them is unusual, start again with the loop."""
        source = self._source
        one = source.fresh("element")
        codes = fixed_codes(element) + ("x" if element.flexible else "")
        values = ", ".join(f"{one}.{field.name}" for field in element.fields)
        conditions = _conditions(source, element, one)
        packed = source.fresh("packed")
        source.line(f"{packed} = [{source.method(codes, 'pack')}({values}) for {one} in {elements} if {' and '.join(conditions)}]")
        with source.block(f"if len({packed}) == len({elements}):"):
            source.line(f"chunks += {packed}")
        with source.block("else:"):
            self._loop(element, elements, flexible=flexible)

    def _loop(self, element: "Primitive | StructureLayout", elements: str, *, flexible: bool) -> None:
        source = self._source
        one = source.fresh("element")
        with source.block(f"for {one} in {elements}:"):
            if isinstance(element, StructureLayout):
                self.structure(element, one)
            elif element is Primitive.UUID:
                self._number(element, one)
            else:
                self._sized(element, one, flexible=flexible, nullable=False)
            self.flush()

    @contextmanager
    def _unless_null(self, value: str, *, code: str, null: str) -> Iterator[None]:
        """Write the branch for None, and around what is written inside the other one."""
        pending = self._run
        with self._source.block(f"if {value} is None:"):
            self._run = [*pending, (code, null)]
            self.flush()
        with self._source.block("else:"):
            self._run = list(pending)
            yield
            self.flush()


def _conditions(source: Source, layout: StructureLayout, target: str) -> list[str]:
    """Return what must hold so that nothing but the fixed fields of an object needs a look."""
    return [f"{target}._tags is None", *(_is_default(source, field, f"{target}.{field.name}") for field in layout.guarded)]


def _is_default(source: Source, field: Field, expression: str) -> str:
    match field.default:
        case None:
            return f"{expression} is None"
        case True:
            return expression
        case False:
            return f"not {expression}"
        case Fresh.STRUCTURE:
            default = source.default(field)
            return f"({expression} is {default} or ({expression} == {default} and {expression}._tags is None))"
        case _:
            return f"{expression} == {source.default(field)}"


def _is_plainly_default(source: Source, field: Field, expression: str) -> str:
    """The same without a look into structures: one that merely equals the default is found out by whoever writes the tags."""
    return f"{expression} is {source.default(field)}" if field.default is Fresh.STRUCTURE else _is_default(source, field, expression)


def _is_not_default(source: Source, field: Field, expression: str) -> str:
    return f"not ({_is_default(source, field, expression)})" if field.default is not None else f"{expression} is not None"


def _write_tag_writers(source: Source, layout: StructureLayout, names: dict[int, str]) -> None:
    """Write, for each structure that knows tagged fields, the function that appends those not at their default; inner structures first."""
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
            assert field.tag is not None and field.tag < len(fuse_slow.BYTE), f"{field.name} has a tag of more than one byte"
            with source.block(f"if not ({_is_default(source, field.declared, f'it.{field.name}')}):"):
                source.line("chunks = []")
                source.line("append = chunks.append")
                writer = EncoderWriter(source, names)
                writer.field(field, f"it.{field.name}")
                writer.flush()
                source.line("content = join(chunks)")
                source.line("size = len(content)")
                source.line(f"written += ({fuse_slow.BYTE[field.tag]!r}, BYTE[size] if size < 128 else varint(size), content)")
        with source.block("if it._tags:"):
            known = ", ".join(str(field.tag) for field in layout.tags)
            source.line(f"write_mixed_tags(it._tags, ({known},), written, append_outside)")
        with source.block("else:"):
            source.line("written[0] = BYTE[len(written) // 3]")
            source.line("append_outside(join(written))")
