"""What only the user who started a cluster may read or do: files that may hold passwords, and the
sockets that control faults.

A socket on loopback can be reached by every user of the machine. The two sockets that control
faults therefore serve only a client that knows a secret, which is in a file that only that user can
read.
"""

import hmac
import os
from pathlib import Path


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read, replacing an existing one."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def new_secret() -> str:
    """Return 32 hexadecimal digits from the operating system's entropy."""
    return os.urandom(16).hex()


def is_same_secret(given: str, expected: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())
