"""The statements of a fused decoder: each field of a layout, read from a buffer at a position.

Tricks, all measured: neighbouring fixed fields and the length byte after them share one unpack;
arrays of fixed elements are unpacked in one sweep; positions are added up in the source, not at run
time; rare cases are out of line. A bounds check per field is not needed: positions only grow, so
reading beyond the end fails at the next unpack, at the next index, or at the one check in the end.
Source: org.apache.kafka.message.MessageDataGenerator (order of fields and tags); KIP-482.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from struct import calcsize

import construct

from protocol.codec.declaration import Primitive
from protocol.codec.defaults import default
from protocol.codec.source import Source
from protocol.codec.sweeps import (
    ARRAY,
    BLOB,
    COMPACT,
    FIXED,
    NESTED,
    NULLABLE,
    NUMBERS,
    RECORDS,
    TEXT,
    ElementPlan,
    FieldPlan,
    Sweep,
)
from protocol.codec.tree import PresentField, StructureLayout
from protocol.codec.types import Blob, Elements, FixedType, Length, NullableStructure, Text, Uuid

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
            source.line(f"{target}.{absent.name} = {default(source, absent)}")
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
                source.line(f"{target}.{field.name} = {default(source, field.declared)}")
            source.line(f"{target}._tags = None")

    def field(self, field: PresentField, target: str) -> None:
        """Decode one field of any type, and assign it to `target`."""
        match field.subcon:
            case FixedType() as fixed:
                self._run.append((fixed.code, fixed.size_bytes, target))
            case (Text() | Blob()) as sized:
                self._sized(sized, target)
            case Elements() as elements:
                self._array(elements, target)
            case NullableStructure() as nullable:
                self._nullable(nullable, target)
            case StructureLayout() as layout:
                nested = self._source.fresh("nested")
                self.structure(layout, nested)
                self._source.line(f"{target} = {nested}")

    def _nullable(self, nullable: NullableStructure, target: str) -> None:
        nested = self._source.fresh("nested")
        marker = self._source.fresh("marker")
        self._lengths.append(marker)
        self._run.append(("b", 1, marker))
        self._read_run()
        if nullable.tagged:
            with self._source.block(f"if {marker} < 0:"):
                self._source.line(
                    'raise ValueError("a structure is marked with more than one byte")'
                )
        with self._either(
            f"if {marker} {'>' if nullable.tagged else '>='} 0:", otherwise=f"{target} = None"
        ):
            outer, self._lengths = self._lengths, []
            self.structure(nullable.structure, nested)
            self._lengths = outer
            self._source.line(f"{target} = {nested}")

    def _length(self, length: Length, *, longer: str) -> str:
        """Decode a length or count and reject null where it is not allowed; a compact one stays one
        too high, as on the wire.
        """
        source = self._source
        name = source.fresh("length")
        self._lengths.append(name)
        code = length_code(length)
        self._run.append(("B", 1, name) if length.compact else (code, calcsize(">" + code), name))
        self._read_run()
        if length.compact:
            with source.block(f"if {name} > 127:"):
                self._longer(name, longer)
        if not length.nullable:
            with source.block(f"if not {name}:" if length.compact else f"if {name} < 0:"):
                source.line('raise ValueError("null, but not nullable")')
        return name

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

    def _sized(self, sized: Text | Blob, target: str) -> None:
        """Read a string, bytes or records."""
        source = self._source
        is_short = sized.primitive is Primitive.STRING
        length = self._length(sized.length, longer="longer_string" if is_short else "longer_blob")
        with self._unless_null(length, target, sized.length):
            end = source.fresh("end")
            source.line(f"{end} = {self._at(-1 if sized.length.compact else 0)} + {length}")
            piece = f"[{self._at()}:{end}]"
            if isinstance(sized, Text):
                lenient = "decode_string" if is_short else "decode_leniently"
                text = (
                    f"{lenient}(buffer{piece})" if self._is_lenient else f"buffer{piece}.decode()"
                )
                source.line(
                    f"{target} = {text}"
                    + (
                        f" if {length} > {int(sized.length.compact)} else ''"
                        if sized.length.nullable
                        else ""
                    )
                )
            else:
                source.line(
                    f"{target} = "
                    f"{'view' if sized.primitive is Primitive.RECORDS else 'buffer'}{piece}"
                )
            source.line(f"position = {end}")
            self._ahead = 0
            self._end_is_checked = False

    def _array(self, array: Elements, target: str) -> None:
        source = self._source
        element = array.element
        length = self._length(array.length, longer="longer_varint")
        compact = array.length.compact
        with self._unless_null(length, target, array.length):
            if is_plain_fixed(element):
                self._numbers(element, target, length, compact=compact)
                return
            elements = source.fresh("elements")
            source.line(f"{target} = {elements} = []")
            self.synchronize()
            with source.block(f"if {length} > {int(compact)}:"):
                count = source.fresh("count")
                source.line(f"{count} = {length}" + (" - 1" if compact else ""))
                if isinstance(element, StructureLayout):
                    self._structures(element, elements, count)
                else:
                    self._loop(element, elements, count)

    def _numbers(self, element: FixedType, target: str, length: str, *, compact: bool) -> None:
        size = element.size_bytes
        table = self._source.table("{}" + element.code, (int(compact),), "unpack_from")
        self._source.line(
            f"{target} = [*{table}[{length}](buffer, {self._at()})] if {length} > {int(compact)} "
            "else []"
        )
        self._ahead -= size * compact
        taken = (
            f" + {self._ahead}" if self._ahead > 0 else f" - {-self._ahead}" if self._ahead else ""
        )
        self._source.line(f"position += {length} * {size}{taken}")
        self._ahead = 0

    def _loop(self, element: construct.Construct, elements: str, count: str) -> list[str]:
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
                case FixedType():
                    self._run.append((element.code, element.size_bytes, one))
                case Text() | Blob():
                    self._sized(element, one)
            self.synchronize()
            source.line(f"{elements}.append({one})")
            source.line(f"{count} -= 1")
        inner, self._lengths = self._lengths, outer
        return inner

    def _structures(self, element: StructureLayout, elements: str, count: str) -> None:
        """Decode structures: uniform ones in one sweep, the others one by one."""
        source = self._source
        if is_fixed(element):
            sweep = Sweep(source, element_plan(source, element), ())
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
                    self._loop(element, elements, count)
            return
        if self._is_lenient or not can_be_alike(element):
            self._loop(element, elements, count)
            return
        shapes = source.define(
            source.fresh("shapes"), f"Shapes({element_plan(source, element)!r}, globals())"
        )
        source.line(f"position = {shapes}.read(buffer, position, {count}, {elements})")
        source.line(f"{count} -= len({elements})")
        with source.block(f"if {count}:"):
            lengths = self._loop(element, elements, count)
            source.line(f"{shapes}.learn(({', '.join(lengths)},))")

    @contextmanager
    def _unless_null(self, length: str, target: str, declared: Length) -> Iterator[None]:
        if declared.nullable:
            with self._either(
                f"if {length}:" if declared.compact else f"if {length} >= 0:",
                otherwise=f"{target} = None",
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


def length_code(length: Length) -> str:
    """Return the struct code of a length that is not compact."""
    assert isinstance(length.number, FixedType) or length.compact, (
        "only compact lengths are varints"
    )
    return "" if length.compact else length.number.code


def is_plain_fixed(element: construct.Construct) -> bool:
    """Return whether elements are numbers, which one Struct unpacks into one list."""
    return isinstance(element, FixedType) and not isinstance(element, Uuid)


def is_fixed(layout: StructureLayout) -> bool:
    """Return whether all objects of a layout take the same number of bytes, unless they have
    unknown tags.
    """
    return (
        bool(layout.fields)
        and not layout.tags
        and all(isinstance(field.subcon, FixedType) for field in layout.fields)
    )


def fixed_codes(layout: StructureLayout) -> str:
    """Return the struct codes of the fields of a fixed layout."""
    return "".join(field.subcon.code for field in layout.fields)


def can_be_alike(layout: StructureLayout) -> bool:
    """Return whether shapes are worth learning: there are arrays of numbers, or structures that are
    mostly absent.

    Strings alone rarely have the same length, arrays of structures that exist for their own sake
    are never empty, and records always differ.
    """
    has_arrays = False
    for field in layout.fields:
        match field.subcon:
            case Blob(primitive=Primitive.RECORDS):
                return False
            case Elements(element=element):
                if isinstance(element, StructureLayout) and not (
                    field.nullable or field.declared.ignorable
                ):
                    return False
                has_arrays = True
    return has_arrays


def element_plan(source: Source, layout: StructureLayout) -> ElementPlan:
    """Return how the elements of an array are read."""
    fields = tuple((field.name, _field_plan(source, field.subcon)) for field in layout.fields)
    others = [*(field.declared for field in layout.tags), *layout.absent]
    return (
        source.bind_class(layout.cls),
        fields,
        tuple((field.name, default(source, field)) for field in others),
        layout.flexible,
    )


def _field_plan(source: Source, subcon: construct.Construct) -> FieldPlan:
    match subcon:
        case FixedType():
            return FIXED, subcon.code
        case Blob(primitive=Primitive.RECORDS):
            return (RECORDS,)
        case Text() | Blob():
            return TEXT if isinstance(subcon, Text) else BLOB, _code_in_plan(subcon.length)
        case Elements(element=FixedType() as element):
            return NUMBERS, _code_in_plan(subcon.length), element.code
        case Elements():
            return ARRAY, _code_in_plan(subcon.length)
        case NullableStructure():
            return NULLABLE, "b"
        case StructureLayout():
            return NESTED, element_plan(source, subcon)
    raise AssertionError(f"{subcon} is no construct of a field")


def _code_in_plan(length: Length) -> str:
    return COMPACT if length.compact else length_code(length)
