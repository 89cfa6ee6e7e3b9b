"""The statements of a fused decoder: each field of a layout, read from a buffer at a position.

Tricks, all measured: neighbouring fixed fields and the length byte after them share one unpack;
arrays of fixed elements are unpacked in one sweep; positions are added up in the source, not at run
time; rare cases are out of line. A bounds check per field is not needed: positions only grow, so
reading beyond the end fails at the next unpack, at the next index, or at the one check in the end.
Source: org.apache.kafka.message.MessageDataGenerator (order of fields and tags); KIP-482.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from struct import calcsize

from protocol.declaration import TEXT_TYPES, Primitive
from protocol.fuse_source import CODES, Source, is_fixed
from protocol.fuse_sweep import Shapes, Sweep, can_be_alike
from protocol.resolve import ArrayLayout, PresentField, StructureLayout
from protocol.schema import Message

Decoder = Callable[[bytes, int], tuple[Message, int]]
DecodeFailure = Callable[[bytes, int, Exception], Exception]
DecodeAgain = Callable[[bytes, int, Exception], tuple[Message, int]]
TagReaders = Mapping[int, str]
"""From the id of a layout to the function that decodes its tagged fields."""


class DecoderWriter:
    """Generates statements that decode fields one after the other.

    `_run` contains fixed fields that are not decoded yet: (code, size, target). The next byte is at
    `position + _ahead`.
    """

    def __init__(self, source: Source, tag_readers: TagReaders, *, is_lenient: bool) -> None:
        self._source = source
        self._tag_readers = tag_readers
        self._is_lenient = is_lenient
        self._run: list[tuple[str, int, str]] = []
        self._ahead = 0
        self._lengths: list[str] = []
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
        """Decode a structure into a new object called `target`."""
        source = self._source
        source.line(f"{target} = new({source.bind_class(layout.cls)})")
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
        """Decode one field of any type, and assign it to `target`."""
        match field.type:
            case Primitive() as primitive if primitive in CODES:
                self._run.append((*CODES[primitive], target))
            case Primitive() as primitive:
                self._sized(primitive, target, flexible=field.flexible, nullable=field.nullable)
            case ArrayLayout() as array:
                self._array(array, target, flexible=field.flexible, nullable=field.nullable)
            case StructureLayout() as layout:
                self._nested(layout, target, nullable=field.nullable, tagged=field.tagged)

    def _nested(
        self, layout: StructureLayout, target: str, *, nullable: bool, tagged: bool
    ) -> None:
        nested = self._source.fresh("nested")
        if not nullable:
            self.structure(layout, nested)
            self._source.line(f"{target} = {nested}")
            return
        marker = self._source.fresh("marker")
        self._lengths.append(marker)
        self._run.append(("b", 1, marker))
        self._read_run()
        if tagged:
            with self._source.block(f"if {marker} < 0:"):
                self._source.line(
                    'raise ValueError("a structure is marked with more than one byte")'
                )
        with self._either(
            f"if {marker} {'>' if tagged else '>='} 0:", otherwise=f"{target} = None"
        ):
            outer, self._lengths = self._lengths, []
            self.structure(layout, nested)
            self._lengths = outer
            self._source.line(f"{target} = {nested}")

    def _length(self, code: str, *, longer: str, flexible: bool, nullable: bool) -> str:
        """Decode a length or count and reject null where it is not allowed; a compact one stays one
        too high, as on the wire.
        """
        source = self._source
        length = source.fresh("length")
        self._lengths.append(length)
        self._run.append(("B", 1, length) if flexible else (code, calcsize(">" + code), length))
        self._read_run()
        if flexible:
            with source.block(f"if {length} > 127:"):
                self._longer(length, longer)
        if not nullable:
            with source.block(f"if not {length}:" if flexible else f"if {length} < 0:"):
                source.line('raise ValueError("null, but not nullable")')
        return length

    def _longer(self, length: str, longer: str) -> None:
        """Decode the rest of a compact length of more than one byte; three bytes are so common for
        bytes and records that they need no call.
        """
        source = self._source
        if longer == "longer_blob":
            second = source.fresh("second")
            source.line(f"{second} = buffer[{self._at()}]")
            with source.block(f"if {second} < 128:"):
                source.line(f"{length} += ({second} << 7) - 128")
                source.line("position += 1")
            with source.block("else:"):
                third = source.fresh("third")
                source.line(f"{third} = buffer[{self._at(1)}]")
                with source.block(f"if {third} < 128:"):
                    source.line(
                        f"{length} += ({second} << 7) + ({third} << 14) - {128 + (128 << 7)}"
                    )
                    source.line("position += 2")
                with source.block("else:"):
                    self._longer(length, "longer_varint")
            return
        source.line(f"{length}, position = {longer}({length}, buffer, {self._at()})")
        if self._ahead:
            source.line(f"position -= {self._ahead}")

    def _sized(self, primitive: Primitive, target: str, *, flexible: bool, nullable: bool) -> None:
        """Read a string, bytes or records."""
        source = self._source
        is_text = primitive in TEXT_TYPES
        code, longer = (
            ("h", "longer_string") if primitive is Primitive.STRING else ("i", "longer_blob")
        )
        length = self._length(code, longer=longer, flexible=flexible, nullable=nullable)
        with self._unless_null(length, target, flexible=flexible, nullable=nullable):
            end = source.fresh("end")
            source.line(f"{end} = {self._at(-1 if flexible else 0)} + {length}")
            piece = f"[{self._at()}:{end}]"
            if is_text:
                lenient = "decode_string" if primitive is Primitive.STRING else "decode_leniently"
                text = (
                    f"{lenient}(buffer{piece})" if self._is_lenient else f"buffer{piece}.decode()"
                )
                source.line(
                    f"{target} = {text}"
                    + (f" if {length} > {int(flexible)} else ''" if nullable else "")
                )
            else:
                source.line(
                    f"{target} = {'view' if primitive is Primitive.RECORDS else 'buffer'}{piece}"
                )
            source.line(f"position = {end}")
            self._ahead = 0
            self._end_is_checked = False

    def _array(self, array: ArrayLayout, target: str, *, flexible: bool, nullable: bool) -> None:
        source = self._source
        element = array.element
        length = self._length("i", longer="longer_varint", flexible=flexible, nullable=nullable)
        with self._unless_null(length, target, flexible=flexible, nullable=nullable):
            if (
                isinstance(element, Primitive)
                and element in CODES
                and element is not Primitive.UUID
            ):
                self._numbers(element, target, length, flexible=flexible)
                return
            elements = source.fresh("elements")
            source.line(f"{target} = {elements} = []")
            self.synchronize()
            with source.block(f"if {length} > {int(flexible)}:"):
                count = source.fresh("count")
                source.line(f"{count} = {length}" + (" - 1" if flexible else ""))
                if isinstance(element, StructureLayout):
                    self._structures(element, elements, count)
                else:
                    self._loop(element, elements, count, flexible=flexible)

    def _numbers(self, element: Primitive, target: str, length: str, *, flexible: bool) -> None:
        code, size = CODES[element]
        table = self._source.table("{}" + code, (int(flexible),), "unpack_from")
        self._source.line(
            f"{target} = [*{table}[{length}](buffer, {self._at()})] if {length} > "
            f"{int(flexible)} else []"
        )
        self._ahead -= size * flexible
        taken = (
            f" + {self._ahead}" if self._ahead > 0 else f" - {-self._ahead}" if self._ahead else ""
        )
        self._source.line(f"position += {length} * {size}{taken}")
        self._ahead = 0

    def _loop(
        self, element: "Primitive | StructureLayout", elements: str, count: str, *, flexible: bool
    ) -> list[str]:
        """Decode elements one by one, counting down; return the names of the lengths in the last
        one.

        (A range costs five iterations.)
        """
        source = self._source
        one = source.fresh("element")
        outer, self._lengths = self._lengths, []
        with source.block(f"while {count}:"):
            match element:
                case StructureLayout():
                    self.structure(element, one)
                case Primitive.UUID:
                    self._run.append((*CODES[element], one))
                case Primitive():
                    self._sized(element, one, flexible=flexible, nullable=False)
            self.synchronize()
            source.line(f"{elements}.append({one})")
            source.line(f"{count} -= 1")
        inner, self._lengths = self._lengths, outer
        return inner

    def _structures(self, element: StructureLayout, elements: str, count: str) -> None:
        """Decode structures: uniform ones in one sweep, the others one by one."""
        source = self._source
        if is_fixed(element):
            sweep = Sweep(source, element, ())
            end = source.fresh("end")
            source.line(f"{end} = position + {count} * {sweep.size}")
            with source.block(f"if {end} > len(buffer):"):
                source.line('raise ValueError("the message ends within an array")')
            sweep.write(elements, end)
            with source.block("else:"):
                source.line(f"position = {end}")
            if element.flexible:
                with source.block(f"if position != {end}:"):
                    source.line(f"position += len({elements}) * {sweep.size}")
                    source.line(f"{count} -= len({elements})")
                    self._loop(element, elements, count, flexible=True)
            return
        if self._is_lenient or not can_be_alike(element):
            self._loop(element, elements, count, flexible=element.flexible)
            return
        shapes = source.bind(source.fresh("shapes"), Shapes(element))
        source.line(f"position = {shapes}.read(buffer, position, {count}, {elements})")
        source.line(f"{count} -= len({elements})")
        with source.block(f"if {count}:"):
            lengths = self._loop(element, elements, count, flexible=element.flexible)
            source.line(f"{shapes}.learn(({', '.join(lengths)},))")

    @contextmanager
    def _unless_null(
        self, length: str, target: str, *, flexible: bool, nullable: bool
    ) -> Iterator[None]:
        if nullable:
            with self._either(
                f"if {length}:" if flexible else f"if {length} >= 0:", otherwise=f"{target} = None"
            ):
                yield
        else:
            yield

    @contextmanager
    def _either(self, head: str, otherwise: str) -> Iterator[None]:
        """Generate both branches; both end with nothing ahead."""
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
        """Decode what is pending and make `position` the current one."""
        self._read_run()
        if self._ahead:
            self._source.line(f"position += {self._ahead}")
            self._ahead = 0

    def _read_run(self) -> None:
        """Decode all pending fixed fields with one statement."""
        run, self._run = self._run, []
        if not run:
            return
        codes = "".join(code for code, _, _ in run)
        targets = ", ".join(target for _, _, target in run)
        if codes == "B":
            self._source.line(f"{targets} = buffer[{self._at()}]")
        else:
            comma = "," if len(run) == 1 else ""
            self._source.line(
                f"{targets}{comma} = {self._source.method(codes, 'unpack_from')}(buffer, "
                f"{self._at()})"
            )
        self._ahead += sum(size for _, size, _ in run)
        if self._source.depth == self._depth:
            self._end_is_checked = True

    def _at(self, offset: int = 0) -> str:
        ahead = self._ahead + offset
        return (
            f"position + {ahead}" if ahead > 0 else f"position - {-ahead}" if ahead else "position"
        )
