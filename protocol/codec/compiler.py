"""The compiler: walks the construct tree of a message at one version, and writes Python that does
the same without a call per field.

What it reads. `tree.layout_of(cls, version)` is a Struct whose versions are already evaluated, so
the compiler never sees one. For each construct it reads the attributes that the interpreter uses,
too:

    construct            read                      decoded by               encoded by
    FixedType            code                      a run of neighbours,     a run of neighbours,
                                                   one unpack               one pack
    Text, Blob           length.compact,           length, check, slice     one pack with the
                         .nullable                                          fields around it
    Elements             length, element           numbers: one unpack;     numbers: one pack;
                                                   fixed structures:        fixed structures: one
                                                   one iter_unpack          pack each in a
                                                                            comprehension
    NullableStructure    structure, tagged         a marker byte, then      the same
                                                   the structure
    StructureLayout      fields, tags, absent      statements inline,       statements inline,
                                                   no call                  no call
    TaggedFields         tags (by their layout)    one byte if there are    one zero byte within
                                                   none, else a function    the pack, else a
                                                   of the structure         function

Versions: a field that is absent gets its default as a constant, and if its value would be lost, the
encoder tests it. Tagged fields: the usual count of zero is part of the unpack or the pack before
it. Compact lengths: the first byte is part of the unpack before it; only a length above 127 costs a
call. construct's own compiler emits a call per field and returns short data silently; this one is
exact, because every read beyond the end fails.

What it writes. InitProducerIdRequest v2 is `transactional_id: compact nullable string,
transaction_timeout_ms: int32, tags`, and its decoder:

    class_InitProducerIdRequest = CLASSES[0]
    unpack_from_iB = struct_method('iB', 'unpack_from')
    def decode(buffer, position=0):
        start = position
        try:
            it = new(class_InitProducerIdRequest)
            length_1 = buffer[position]
            if length_1 > 127:
                length_1, position = longer_string(length_1, buffer, position + 1)
                position -= 1
            if length_1:
                end_2 = position + length_1
                it.transactional_id = buffer[position + 1:end_2].decode() if length_1 > 1 else ''
                position = end_2
            else:
                it.transactional_id = None
                position += 1
            it.producer_id = -1
            it.producer_epoch = -1
            it.enable2_pc = False
            it.keep_prepared_txn = False
            it.transaction_timeout_ms, tags_3 = unpack_from_iB(buffer, position)
            if tags_3:
                position = keep_tags(tags_3, buffer, position + 5, it) - 5
            else:
                it._tags = None
            return it, position + 5
        except (UnicodeDecodeError, AttributeError) as error:
            return again(buffer, start, error)
        except (struct_error, IndexError, ValueError) as error:
            raise failure(buffer, start, error) from error

`again` decodes invalid UTF-8 as Java does, `failure` interprets the tree to find the field of the
error. What is written is kept by `store`, so a node that starts with its codecs there never imports
this module. `decoding` and `encoding` write the statements, `segments` what is packed at once,
`sweeps` the loops over uniform elements, of which some are written while decoding.
Source: org.apache.kafka.message.MessageDataGenerator (order of fields and tags); KIP-482.
"""

from protocol.codec import slow
from protocol.codec.declaration import (
    ALL_VERSIONS,
    NO_VERSIONS,
    Fresh,
    Primitive,
    classes_of,
    declaration_of,
)
from protocol.codec.decoding import DecoderWriter, fixed_codes, is_fixed
from protocol.codec.defaults import default, is_default, literal, nothing_but_fields
from protocol.codec.encoding import EncoderWriter, is_one_segment
from protocol.codec.source import Source
from protocol.codec.tree import (
    ArrayLayout,
    PresentField,
    StructureLayout,
    check,
    field_holds,
    fields_of,
    has_fresh_default,
    holds,
    inner_layout,
    layout_of,
    structure_of,
    versions_with_records,
)
from protocol.codec.types import FixedType, Uuid


def class_source(cls: type) -> str:
    """Write `__init__` and `__eq__` of a message class, and what a node asks about its fields; an
    inconsistent declaration is an AssertionError.

    RECORDS are the versions that contain record batches; CODES the struct codes of all fields, if
    these are all of fixed size in all versions.
    """
    check(cls)
    declaration = declaration_of(cls)
    fields = fields_of(declaration)
    source = Source(classes_of(cls))
    arguments, assignments = [], []
    for field in fields:
        match field.default:
            case Fresh.LIST:
                fresh = "[]"
            case Fresh.STRUCTURE:
                structure = structure_of(field)
                fresh = (
                    f"{source.bind_class(structure)}()"
                    if has_fresh_default(structure)
                    else source.shared_default(structure)
                )
            case value:
                arguments.append(f"{field.name}={literal(value)}")
                assignments.append(f"self.{field.name} = {field.name}")
                continue
        arguments.append(f"{field.name}=LEFT_OUT")
        assignments.append(
            f"self.{field.name} = {fresh} if {field.name} is LEFT_OUT else {field.name}"
        )
    with source.block(f"def __init__(self{', *, ' if arguments else ''}{', '.join(arguments)}):"):
        for assignment in assignments:
            source.line(assignment)
        source.line("self._tags = None")
    with source.block("def __eq__(self, other):"):
        with source.block("if not isinstance(other, CLASS):"):
            source.line("return NotImplemented")
        equal = [f"self.{field.name} == other.{field.name}" for field in fields]
        source.line(f"return {' and '.join(equal) or 'True'}")
    ranges = sorted(
        {(found.first, found.last) for found in versions_with_records(cls, declaration.versions)}
    )
    source.line(f"RECORDS = {tuple(ranges)!r}")
    source.line(f"CODES = {_codes(cls)!r}")
    return source.text()


def decoder_source(cls: type, version: int, *, is_lenient: bool) -> str:
    """Write `decode(buffer, position) -> (object, end position)`; errors are raised as the
    exception that `failure` of the scope returns.

    `again` of the scope is called for invalid UTF-8, and if the buffer is not bytes. A lenient
    decoder accepts such text.
    """
    layout = layout_of(cls, version)
    source = Source(classes_of(cls))
    readers: dict[int, str] = {}
    _write_tag_readers(source, layout, readers, is_lenient=is_lenient)
    with source.block("def decode(buffer, position=0):"):
        source.line("start = position")
        with source.block("try:"):
            if holds(layout, Primitive.BYTES):
                with source.block("if type(buffer) is not bytes:"):
                    source.line("buffer = as_bytes(buffer)")
            if holds(layout, Primitive.RECORDS):
                source.line("view = memoryview(buffer)")
            writer = DecoderWriter(source, readers, is_lenient=is_lenient)
            writer.structure(layout, "it")
            writer.finish()
        if not is_lenient:
            with source.block("except (UnicodeDecodeError, AttributeError) as error:"):
                source.line("return again(buffer, start, error)")
        with source.block("except (struct_error, IndexError, ValueError) as error:"):
            source.line("raise failure(buffer, start, error) from error")
    return source.text()


def encoder_source(cls: type, version: int) -> str:
    """Write `encode_into(object, chunks)`; errors are raised as the exception that `failure` of the
    scope returns.
    """
    layout = layout_of(cls, version)
    source = Source(classes_of(cls))
    _write_encoder(source, layout, into=True)
    return source.text()


def builder_source(cls: type, version: int) -> str:
    """Write `encode(object) -> bytes`, the same with the chunks joined; a message of fixed size is
    packed at once.
    """
    layout = layout_of(cls, version)
    source = Source(classes_of(cls))
    _write_encoder(source, layout, into=False)
    if is_fixed(layout):
        source.line("otherwise = encode")
        _write_packer(source, layout, "")
        source.line("encode = pack")
    return source.text()


def packer_source(cls: type, version: int, prefix: str) -> str:
    """Write `pack(*prefix_values, object)` for a message of fixed size, None for others.

    `prefix` are struct codes of the fields before the message. Unusual objects (unknown tags, wrong
    values) are passed to `otherwise` of the scope, which takes the same arguments.
    """
    layout = layout_of(cls, version)
    source = Source(classes_of(cls))
    if is_fixed(layout):
        _write_packer(source, layout, prefix)
    else:
        source.line("pack = None")
    return source.text()


def json_source(cls: type, version: int) -> str:
    """Write JSON, the `JsonStructure` of a message."""
    source = Source(classes_of(cls))
    source.line(f"JSON = {_json_structure(source, layout_of(cls, version))}")
    return source.text()


def _json_structure(source: Source, layout: StructureLayout) -> str:
    present = {field.name: field for field in (*layout.fields, *layout.tags)}
    in_order = [
        present[field.name]
        for field in fields_of(declaration_of(layout.cls))
        if field.name in present
    ]
    fields = "".join(f"{_json_field(source, field)}, " for field in in_order)
    guarded = "".join(
        f"({field.name!r}, lambda value: {is_default(source, field, 'value')}), "
        for field in layout.guarded
    )
    return (
        f"JsonStructure({source.bind_class(layout.cls)}, {layout.version}, ({fields}), ({guarded}))"
    )


def _json_field(source: Source, field: PresentField) -> str:
    name = field.declared.kafka_name
    tests = (
        f"lambda value: {is_default(source, field.declared, 'value')}, lambda: "
        f"{default(source, field.declared)}"
    )
    kind = _json_kind(source, field.type)
    return (
        f"JsonField({name[:1].lower() + name[1:]!r}, {field.name!r}, {kind}, {field.nullable}, "
        f"{field.tagged}, {tests})"
    )


def _json_kind(source: Source, kind: Primitive | ArrayLayout | StructureLayout) -> str:
    match kind:
        case StructureLayout():
            return _json_structure(source, kind)
        case ArrayLayout(element):
            return f"JsonArray({_json_kind(source, element)})"
    return f"Primitive.{kind.name}"


def _codes(cls: type) -> str | None:
    codes = ""
    for field in fields_of(declaration_of(cls)):
        if field.versions != ALL_VERSIONS or field.tagged:
            return None
        match field.at(0, NO_VERSIONS).subcon:
            case FixedType(code=code):
                codes += code
            case StructureLayout(cls=inner):
                inner_codes = _codes(inner)
                if inner_codes is None:
                    return None
                codes += inner_codes
            case _:
                return None
    return codes


def _write_tag_readers(
    source: Source, layout: StructureLayout, readers: dict[int, str], *, is_lenient: bool
) -> None:
    """Generate, for each structure with known tagged fields, the function that decodes them; inner
    structures first.
    """
    for field in (*layout.fields, *layout.tags):
        inner = inner_layout(field)
        if inner is not None:
            _write_tag_readers(source, inner, readers, is_lenient=is_lenient)
    if not layout.tags:
        return
    name = readers[id(layout)] = source.fresh(f"tags_of_{layout.cls.__name__}")
    with source.block(f"def {name}(count, buffer, position, it):"):
        if any(field_holds(field, Primitive.RECORDS) for field in layout.tags):
            source.line("view = memoryview(buffer)")
        for field in layout.tags:
            source.line(f"it.{field.name} = {default(source, field.declared)}")
        source.line("it._tags = None")
        with source.block("if count > 127:"):
            source.line("count, position = longer_count(count, buffer, position)")
        with source.block("for _ in range(count):"):
            _write_tag_reader(source, layout, readers, is_lenient=is_lenient)
        with source.block("if position > len(buffer):"):
            source.line('raise ValueError("the tagged fields end behind the message")')
        source.line("return position")


def _write_tag_reader(
    source: Source, layout: StructureLayout, readers: dict[int, str], *, is_lenient: bool
) -> None:
    """Generate the handling of each tagged field: a known one is decoded in place, ignoring its
    size, as Kafka does; an unknown one is stored.
    """
    source.line("tag, size = buffer[position], buffer[position + 1]")
    source.line("position += 2")
    with source.block("if tag > 127 or size > 127:"):
        source.line("tag, size, position = longer_tag(buffer, position - 2)")
    for index, field in enumerate(layout.tags):
        with source.block(f"{'elif' if index else 'if'} tag == {field.tag}:"):
            writer = DecoderWriter(source, readers, is_lenient=is_lenient)
            writer.field(field, f"it.{field.name}")
            writer.synchronize()
    with source.block("else:"):
        source.line("keep_tag(tag, buffer[position : position + size], it)")
        source.line("position += size")


def _write_packer(source: Source, layout: StructureLayout, prefix: str) -> None:
    codes = prefix + fixed_codes(layout) + ("x" if layout.flexible else "")
    numbers = [f"prefix_{index}" for index in range(len(prefix.replace("x", "")))]
    usual = nothing_but_fields(source, layout, "it") + [
        f"len(it.{field.name}) == 16" for field in layout.fields if isinstance(field.subcon, Uuid)
    ]
    values = ", ".join([*numbers, *(f"it.{field.name}" for field in layout.fields)])
    arguments = ", ".join([*numbers, "it"])
    with source.block(f"def pack({arguments}):"):
        with source.block("try:"), source.block(f"if {' and '.join(usual)}:"):
            source.line(f"return {source.method(codes, 'pack')}({values})")
        with source.block("except (struct_error, AttributeError, TypeError):"):
            source.line("pass")
        source.line(f"return otherwise({arguments})")


def _write_encoder(source: Source, layout: StructureLayout, *, into: bool) -> None:
    """Write the encoder: into the caller's list, or into bytes."""
    names: dict[int, str] = {}
    _write_tag_writers(source, layout, names)
    is_one_chunk = not into and is_one_segment(layout)
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


def _write_tag_writers(source: Source, layout: StructureLayout, names: dict[int, str]) -> None:
    """Generate, for each structure with known tagged fields, the function that appends the
    non-default ones; inner structures first.
    """
    for field in (*layout.fields, *layout.tags):
        inner = inner_layout(field)
        if inner is not None:
            _write_tag_writers(source, inner, names)
    if not layout.tags:
        return
    name = names[id(layout)] = source.fresh(f"tags_of_{layout.cls.__name__}")
    with source.block(f"def {name}(it, append_outside):"):
        source.line("written = [b'']")
        for field in layout.tags:
            assert field.tag < len(slow.BYTE), f"{field.name} has a tag of more than one byte"
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
                    f"written += ({slow.BYTE[field.tag]!r}, BYTE[size] if size < 128 else "
                    "varint(size), content)"
                )
        with source.block("if it._tags:"):
            known = ", ".join(str(field.tag) for field in layout.tags)
            source.line(f"write_mixed_tags(it._tags, ({known},), written, append_outside)")
        with source.block("else:"):
            source.line("written[0] = BYTE[len(written) // 3]")
            source.line("append_outside(join(written))")
