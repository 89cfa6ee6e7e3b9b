"""The static types of a codec for editors and mypy: it decodes to the class that it was requested
for.
"""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from typing import assert_type
from protocol import codec_of
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

request, position = codec_of(InitProducerIdRequest, 4).decode(b"", 0)
assert_type(request, InitProducerIdRequest)
assert_type(position, int)
assert_type(request.transactional_id, str | None)
assert_type(request.producer_id, int)
assert_type(codec_of(InitProducerIdRequest, 4).parse(b""), InitProducerIdRequest)
assert_type(codec_of(InitProducerIdRequest, 4).encode(InitProducerIdRequest(producer_id=1)), bytes)
codec_of(InitProducerIdRequest, 4).decode(b"")
"""
MISTAKES = {
    "codec_of(InitProducerIdRequest, 4).encode(InitProducerIdResponse())": "arg-type",
    "codec_of(InitProducerIdRequest, 4).encode_into(InitProducerIdResponse(), [])": "arg-type",
    "InitProducerIdRequest(producer_id='1')": "arg-type",
    "InitProducerIdRequest('txn')": "call-arg",
    "request.epoch": "attr-defined",
}


CONFIGURATION = """
[mypy]
strict = True
follow_imports = silent
[mypy-construct.*,cramjam.*,crc32c.*]
ignore_missing_imports = True
"""


def test_a_codec_is_typed_by_its_message(tmp_path: Path) -> None:
    configuration = tmp_path / "mypy.ini"
    configuration.write_text(CONFIGURATION)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(configuration),
        "--cache-dir",
        str(tmp_path),
        "-c",
        PROGRAM + "\n".join(MISTAKES),
    ]
    checked = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    found = [
        line.rpartition("[")[2].removesuffix("]")
        for line in checked.stdout.splitlines()
        if ": error:" in line
    ]
    assert found == list(MISTAKES.values()), checked.stdout + checked.stderr
