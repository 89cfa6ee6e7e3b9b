"""How events name a record: by its key, without a key by its value.

Clients, final logs and readers must agree on the name, because invariants compare them by it. A key
is text, with escapes for bytes that are not UTF-8. Many applications send no keys: their records
are named by the value if it is short, else by a digest of it. Records with equal names in a
partition are counted, not distinguished.
"""

from hashlib import sha256

NAMED_BY_VALUE_MAX_BYTES = 64
DIGEST_DIGITS = 16
Bytes = bytes | bytearray | memoryview


def record_key(key: Bytes | None, value: Bytes | None) -> str:
    """Return the name of a record: its key, else its value or `sha256:` and digits; '' without
    both.
    """
    named_by = value if key is None else key
    if named_by is None:
        return ""
    if key is None and len(named_by) > NAMED_BY_VALUE_MAX_BYTES:
        return f"sha256:{sha256(named_by).hexdigest()[:DIGEST_DIGITS]}"
    return bytes(named_by).decode("utf-8", "backslashreplace")
