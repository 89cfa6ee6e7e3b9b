"""The fused decoder of a layout: one function over a buffer and a position.

Tricks, all measured: neighbouring fixed fields and the length byte after them share one unpack; arrays of fixed elements are unpacked in one sweep;
positions are added up in the source, not at run time; rare things are out of line. A bounds check per field is not needed: positions only grow,
so reading beyond the end fails at the next unpack, at the next index, or at the one check in the end.
Source: org.apache.kafka.message.MessageDataGenerator (order of fields and tags); KIP-482.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import calcsize
from struct import error as struct_error

from protocol import fuse_slow
from protocol.declaration import Primitive
from protocol.fuse_source import CODES, Source, fixed_codes, is_fixed
from protocol.resolve import ArrayLayout, PresentField, StructureLayout, field_holds_records, holds_records
from protocol.schema import Message

Decoder = Callable[[bytes, int], tuple[Message, int]]
DecodeFailure = Callable[[bytes, int, Exception], Exception]


def fused_decoder(layout: StructureLayout, failure: DecodeFailure) -> Decoder:
    """Compile `decode(buffer, position) -> (object, position behind it)`; anything wrong is raised as what `failure` makes of it."""
    return decoder_source(layout, failure).compile(layout, "decode")


def decoder_source(layout: StructureLayout, failure: DecodeFailure) -> Source:
    """Write the source of the decoder."""
    source = Source(
        {
            "longer_varint": fuse_slow.longer_varint,
            "longer_string": fuse_slow.longer_string,
            "keep_tags": fuse_slow.keep_tags,
            "keep_tag": fuse_slow.keep_tag,
            "longer_tag": fuse_slow.longer_tag,
            "new": object.__new__,
            "failure": failure,
            "struct_error": struct_error,
        }
    )
    names: dict[int, str] = {}
    _write_tag_readers(source, layout, names)
    with source.block("def decode(buffer, position=0):"):
        source.line("start = position")
        with source.block("try:"):
            if holds_records(layout):
                source.line("view = memoryview(buffer)")
            writer = DecoderWriter(source, names)
            writer.structure(layout, "it")
            writer.finish()
        with source.block("except (struct_error, IndexError, ValueError) as error:"):
            source.line("raise failure(buffer, start, error) from error")
    return source


class DecoderWriter:
    """Writes statements that read fields one after the other.

    `_run` holds fixed fields that are not read yet: (code, size, where to put it). The byte to be read next is `position + _ahead`.
    """

    def __init__(self, source: Source, tag_readers: dict[int, str]) -> None:
        self._source = source
        self._tag_readers = tag_readers
        self._run: list[tuple[str, int, str]] = []
        self._ahead = 0
        self._depth = source.depth
        self._end_is_checked = True

    def finish(self) -> None:
        """Write the check of the end, and the result."""
        self._read_run()
        if not self._end_is_checked:
            with self._source.block(f"if {self._at()} > len(buffer):"):
                self._source.line('raise ValueError("the message ends too early")')
        self._source.line(f"return it, {self._at()}")

    def structure(self, layout: StructureLayout, target: str) -> None:
        """Read a structure into a new object called `target`."""
        source = self._source
        cls = source.bind(f"class_{layout.cls.__name__}", layout.cls)
        source.line(f"{target} = new({cls})")
        for field in layout.fields:
            self.field(field, f"{target}.{field.name}")
        for absent in layout.absent:
            source.line(f"{target}.{absent.name} = {source.default(absent)}")
        if not layout.flexible:
            source.line(f"{target}._tags = None")
            return
        count = source.fresh("tags")
        self._run.append(("B", 1, count))
        self._read_run()
        reader = self._tag_readers[id(layout)] if layout.tags else "keep_tags"
        with source.block(f"if {count}:"):
            self._jump(f"{reader}({count}, buffer, {self._at()}, {target})")
        with source.block("else:"):
            for field in layout.tags:
                source.line(f"{target}.{field.name} = {source.default(field.declared)}")
            source.line(f"{target}._tags = None")

    def field(self, field: PresentField, target: str) -> None:
        """Read one field, whatever its type, and put it where `target` says."""
        match field.type:
            case Primitive() as primitive if primitive in CODES:
                self._run.append((*CODES[primitive], target))
            case Primitive() as primitive:
                self._sized(primitive, target, flexible=field.flexible, nullable=field.nullable)
            case ArrayLayout() as array:
                with self._length(target, array=True, short=False, flexible=field.flexible, nullable=field.nullable) as count:
                    self._array(array, target, count, flexible=field.flexible)
            case StructureLayout() as layout:
                self._nested(layout, target, nullable=field.nullable, tagged=field.tagged)

    def _nested(self, layout: StructureLayout, target: str, *, nullable: bool, tagged: bool) -> None:
        nested = self._source.fresh("nested")
        if not nullable:
            self.structure(layout, nested)
            self._source.line(f"{target} = {nested}")
            return
        marker = self._source.fresh("marker")
        self._run.append(("b", 1, marker))
        self._read_run()
        if tagged:
            with self._source.block(f"if {marker} < 0:"):
                self._source.line('raise ValueError("a structure is marked with more than one byte")')
        with self._either(f"if {marker} {'>' if tagged else '>='} 0:", otherwise=f"{target} = None"):
            self.structure(layout, nested)
            self._source.line(f"{target} = {nested}")

    def _sized(self, primitive: Primitive, target: str, *, flexible: bool, nullable: bool) -> None:
        """Read a string, bytes or records."""
        is_text = primitive is Primitive.STRING
        with self._length(target, array=False, short=is_text, flexible=flexible, nullable=nullable) as length:
            end = self._source.fresh("end")
            self._source.line(f"{end} = {self._at(-1 if flexible else 0)} + {length}")
            piece = f"[{self._at()}:{end}]"
            if is_text:
                self._source.line(f"{target} = buffer{piece}.decode()")
            else:
                self._source.line(f"{target} = {'view' if primitive is Primitive.RECORDS else 'buffer'}{piece}")
            self._source.line(f"position = {end}")
            self._ahead = 0
            self._end_is_checked = False

    @contextmanager
    def _length(self, target: str, *, array: bool, short: bool, flexible: bool, nullable: bool) -> Iterator[str]:
        """Read a length or count; inside, what it measures is read. A compact length is left one too high for strings and bytes."""
        source = self._source
        length = source.fresh("count" if array else "size")
        if flexible:
            self._run.append(("B", 1, length))
        else:
            self._run.append(("h", 2, length) if short else ("i", 4, length))
        self._read_run()
        if flexible:
            longer = "longer_string" if short else "longer_varint"
            with source.block(f"if {length} > 127:"):
                source.line(f"{length}, position = {longer}({length}, buffer, {self._at()})")
                if self._ahead:
                    source.line(f"position -= {self._ahead}")
        if nullable:
            with self._either(f"if {length}:" if flexible else f"if {length} >= 0:", otherwise=f"{target} = None"):
                self._count_from_compact(length, wanted=array and flexible)
                yield length
            return
        with source.block(f"if not {length}:" if flexible else f"if {length} < 0:"):
            source.line('raise ValueError("null, but not nullable")')
        self._count_from_compact(length, wanted=array and flexible)
        yield length

    def _count_from_compact(self, length: str, *, wanted: bool) -> None:
        if wanted:
            self._source.line(f"{length} -= 1")

    def _array(self, array: ArrayLayout, target: str, count: str, *, flexible: bool) -> None:
        source = self._source
        element = array.element
        if isinstance(element, Primitive) and element in CODES and element is not Primitive.UUID:
            source.line(f"{target} = [*{source.table(element, 'unpack_from')}[{count}](buffer, {self._at()})] if {count} else []")
            source.line(f"position += {count} * {CODES[element][1]}" + (f" + {self._ahead}" if self._ahead else ""))
            self._ahead = 0
            return
        elements = source.fresh("elements")
        source.line(f"{target} = {elements} = []")
        if isinstance(element, StructureLayout) and is_fixed(element):
            self.synchronize()
            with source.block(f"if {count}:"):
                self._sweep(element, elements, count)
            return
        self.synchronize()
        self._loop(element, elements, count, flexible=flexible)

    def _loop(self, element: "Primitive | StructureLayout", elements: str, count: str, *, flexible: bool) -> None:
        """Read elements one by one."""
        source = self._source
        one = source.fresh("element")
        with source.block(f"for _ in range({count}):"):
            if isinstance(element, StructureLayout):
                self.structure(element, one)
            elif element is Primitive.UUID:
                self._run.append((*CODES[element], one))
            else:
                self._sized(element, one, flexible=flexible, nullable=False)
            self.synchronize()
            source.line(f"{elements}.append({one})")

    def _sweep(self, element: StructureLayout, elements: str, count: str) -> None:
        """Read elements of fixed size with one `iter_unpack`, if no element has tagged fields.

        Whether none has is seen from all tag counts at once: the first that is not zero still stands where it is expected.
        """
        source = self._source
        codes = fixed_codes(element) + ("B" if element.flexible else "")
        size = calcsize(">" + codes)
        end = source.fresh("end")
        source.line(f"{end} = position + {count} * {size}")
        with source.block(f"if {end} > len(buffer):"):
            source.line('raise ValueError("the message ends within an array")')
        if not element.flexible:
            self._sweep_loop(element, elements, codes, end)
            return
        with source.block(f"if buffer[position + {size - 1}:{end}:{size}].count(0) == {count}:"):
            self._sweep_loop(element, elements, codes, end)
        with source.block("else:"):
            self._loop(element, elements, count, flexible=True)

    def _sweep_loop(self, element: StructureLayout, elements: str, codes: str, end: str) -> None:
        source = self._source
        values = [source.fresh("value") for _ in element.fields]
        if element.flexible:
            values.append("_")
        names = ", ".join(values) + ("," if len(values) == 1 else "")
        cls = source.bind(f"class_{element.cls.__name__}", element.cls)
        one = source.fresh("element")
        with source.block(f"for {names} in {source.method(codes, 'iter_unpack')}(buffer[position:{end}]):"):
            source.line(f"{one} = new({cls})")
            for field, value in zip(element.fields, values, strict=False):
                source.line(f"{one}.{field.name} = {value}")
            for absent in element.absent:
                source.line(f"{one}.{absent.name} = {source.default(absent)}")
            source.line(f"{one}._tags = None")
            source.line(f"{elements}.append({one})")
        source.line(f"position = {end}")

    @contextmanager
    def _either(self, head: str, otherwise: str) -> Iterator[None]:
        """Write a branch, and the other one; both end with nothing ahead."""
        ahead = self._ahead
        with self._source.block(head):
            yield
            self.synchronize()
        with self._source.block("else:"):
            self._source.line(otherwise)
            if ahead:
                self._source.line(f"position += {ahead}")

    def _jump(self, expression: str) -> None:
        """Go to a computed position without changing what is ahead."""
        self._source.line(f"position = {expression}" + (f" - {self._ahead}" if self._ahead else ""))

    def synchronize(self) -> None:
        """Read what is pending and let `position` be the true one."""
        self._read_run()
        if self._ahead:
            self._source.line(f"position += {self._ahead}")
            self._ahead = 0

    def _read_run(self) -> None:
        """Read all pending fixed fields with one statement."""
        if not self._run:
            return
        codes = "".join(code for code, _, _ in self._run)
        targets = ", ".join(target for _, _, target in self._run)
        if codes == "B":
            self._source.line(f"{targets} = buffer[{self._at()}]")
        else:
            comma = "," if len(self._run) == 1 else ""
            self._source.line(f"{targets}{comma} = {self._source.method(codes, 'unpack_from')}(buffer, {self._at()})")
        self._ahead += sum(size for _, size, _ in self._run)
        self._run = []
        if self._source.depth == self._depth:
            self._end_is_checked = True

    def _at(self, offset: int = 0) -> str:
        ahead = self._ahead + offset
        return f"position + {ahead}" if ahead > 0 else f"position - {-ahead}" if ahead else "position"


def _write_tag_readers(source: Source, layout: StructureLayout, names: dict[int, str]) -> None:
    """Write, for each structure that knows tagged fields, the function that reads them; inner structures first."""
    for field in (*layout.fields, *layout.tags):
        shape = field.type.element if isinstance(field.type, ArrayLayout) else field.type
        if isinstance(shape, StructureLayout):
            _write_tag_readers(source, shape, names)
    if not layout.tags:
        return
    name = names[id(layout)] = source.fresh(f"tags_of_{layout.cls.__name__}")
    with source.block(f"def {name}(count, buffer, position, it):"):
        if any(field_holds_records(field) for field in layout.tags):
            source.line("view = memoryview(buffer)")
        for field in layout.tags:
            source.line(f"it.{field.name} = {source.default(field.declared)}")
        source.line("it._tags = None")
        source.line("last_tag = -1")
        with source.block("if count > 127:"):
            source.line("count, position = longer_varint(count, buffer, position)")
        with source.block("for _ in range(count):"):
            _write_tag_reader(source, layout, names)
        with source.block("if position > len(buffer):"):
            source.line('raise ValueError("the tagged fields end behind the message")')
        source.line("return position")


def _write_tag_reader(source: Source, layout: StructureLayout, names: dict[int, str]) -> None:
    """Write what is done for each tagged field: one that is known is read in place, another one is kept."""
    source.line("tag, size = buffer[position], buffer[position + 1]")
    source.line("position += 2")
    with source.block("if tag > 127 or size > 127:"):
        source.line("tag, size, position = longer_tag(buffer, position - 2)")
    with source.block("if tag <= last_tag:"):
        source.line('raise ValueError("tags do not ascend")')
    source.line("last_tag = tag")
    source.line("expected = position + size")
    for index, field in enumerate(layout.tags):
        with source.block(f"{'elif' if index else 'if'} tag == {field.tag}:"):
            writer = DecoderWriter(source, names)
            writer.field(field, f"it.{field.name}")
            writer.synchronize()
    with source.block("else:"):
        source.line("keep_tag(tag, buffer[position:expected], it)")
        source.line("position = expected")
    with source.block("if position != expected:"):
        source.line('raise ValueError(f"tag {tag} has another size than it says")')
