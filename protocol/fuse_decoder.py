"""The fused decoder of a layout: one function over a buffer and a position, and one for each
structure with known tagged fields.

Source: org.apache.kafka.message.MessageDataGenerator (order of fields and tags); KIP-482.
"""

from struct import error as struct_error

from protocol import fuse_slow
from protocol.declaration import Primitive
from protocol.fuse_decode import DecodeAgain, DecodeFailure, Decoder, DecoderWriter
from protocol.fuse_source import Source
from protocol.resolve import ArrayLayout, StructureLayout, field_holds, holds
from protocol.utf8 import decode_leniently, decode_string


def fused_decoder(
    layout: StructureLayout, failure: DecodeFailure, again: DecodeAgain | None
) -> Decoder:
    """Compile `decode(buffer, position) -> (object, end position)`; errors are raised as the
    exception that `failure` returns.

    `again` is called for invalid UTF-8, and if the buffer is not bytes. Without it, text is decoded
    leniently.
    """
    return decoder_source(layout, failure, again).compile(
        layout, "decode" if again else "decode leniently", "decode"
    )


def decoder_source(
    layout: StructureLayout, failure: DecodeFailure, again: DecodeAgain | None
) -> Source:
    """Write the source of the decoder."""
    source = Source(
        {
            "again": again,
            "as_bytes": fuse_slow.as_bytes,
            "decode_leniently": decode_leniently,
            "decode_string": decode_string,
            "longer_count": fuse_slow.longer_count,
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
    readers: dict[int, str] = {}
    _write_tag_readers(source, layout, readers, is_lenient=again is None)
    with source.block("def decode(buffer, position=0):"):
        source.line("start = position")
        with source.block("try:"):
            if holds(layout, Primitive.BYTES):
                with source.block("if type(buffer) is not bytes:"):
                    source.line("buffer = as_bytes(buffer)")
            if holds(layout, Primitive.RECORDS):
                source.line("view = memoryview(buffer)")
            writer = DecoderWriter(source, readers, is_lenient=again is None)
            writer.structure(layout, "it")
            writer.finish()
        if again is not None:
            with source.block("except (UnicodeDecodeError, AttributeError) as error:"):
                source.line("return again(buffer, start, error)")
        with source.block("except (struct_error, IndexError, ValueError) as error:"):
            source.line("raise failure(buffer, start, error) from error")
    return source


def _write_tag_readers(
    source: Source, layout: StructureLayout, readers: dict[int, str], *, is_lenient: bool
) -> None:
    """Generate, for each structure with known tagged fields, the function that decodes them; inner
    structures first.
    """
    for field in (*layout.fields, *layout.tags):
        shape = field.type.element if isinstance(field.type, ArrayLayout) else field.type
        if isinstance(shape, StructureLayout):
            _write_tag_readers(source, shape, readers, is_lenient=is_lenient)
    if not layout.tags:
        return
    name = readers[id(layout)] = source.fresh(f"tags_of_{layout.cls.__name__}")
    with source.block(f"def {name}(count, buffer, position, it):"):
        if any(field_holds(field, Primitive.RECORDS) for field in layout.tags):
            source.line("view = memoryview(buffer)")
        for field in layout.tags:
            source.line(f"it.{field.name} = {source.default(field.declared)}")
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
