"""The names that generated code may use, beside those that it defines itself."""

from struct import error as struct_error
from typing import Any

from protocol.codec import slow
from protocol.codec.shared_defaults import shared_default
from protocol.codec.source import struct_method, struct_table
from protocol.codec.sweeps import Shapes
from protocol.utf8 import decode_leniently, decode_string

RUNTIME: dict[str, Any] = {
    "BYTE": slow.BYTE,
    "Shapes": Shapes,
    "as_bytes": slow.as_bytes,
    "decode_leniently": decode_leniently,
    "decode_string": decode_string,
    "join": b"".join,
    "keep_tag": slow.keep_tag,
    "keep_tags": slow.keep_tags,
    "longer_count": slow.longer_count,
    "longer_string": slow.longer_string,
    "longer_tag": slow.longer_tag,
    "longer_varint": slow.longer_varint,
    "new": object.__new__,
    "shared_default": shared_default,
    "string_varint": slow.string_varint,
    "struct_error": struct_error,
    "struct_method": struct_method,
    "struct_table": struct_table,
    "varint": slow.varint,
    "write_mixed_tags": slow.write_mixed_tags,
    "write_tags": slow.write_tags,
}
