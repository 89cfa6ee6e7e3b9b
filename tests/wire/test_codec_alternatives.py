"""Two independent implementations read our messages and build the same bytes, so an error would
have to be made three times.

kafka-python and kio have the messages of clients, kio also those between nodes. Values that they
never support are not tested.
"""

import importlib
import io
import pkgutil
from functools import cache
from random import Random
from typing import Any

import pytest

from protocol.codec.declaration import ArrayOf, Primitive, StructureOf, snake_case
from protocol.codec.message_codec import compiled
from protocol.codec.tree import fields_of, layout_of
from protocol.examples import example
from protocol.schema import declaration_of
from tools.drift.comparison import declared_messages

kafka_protocol = pytest.importorskip("kafka.protocol")
kio_serial = pytest.importorskip("kio.serial")

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # kafka-python uses a deprecated API for its resources

EXAMPLES_PER_VERSION = 4
KNOWN_ERROR_CODE = 35
"""An error code known to both; kafka-python reads an ApiVersions response with an error as version
0, so that one has none.
"""
TIMESTAMP_MS = 1_700_000_000_000
REQUESTS_AND_RESPONSES = [
    cls for cls in declared_messages() if declaration_of(cls).kind in ("request", "response")
]


@pytest.mark.parametrize(
    "cls", REQUESTS_AND_RESPONSES, ids=[cls.__name__ for cls in REQUESTS_AND_RESPONSES]
)
def test_other_libraries_build_the_same_bytes(cls: type) -> None:
    declaration = declaration_of(cls)
    compared = 0
    for version in range(declaration.versions.first, declaration.versions.last + 1):
        random = Random(f"{cls.__name__} {version}")
        for _ in range(EXAMPLES_PER_VERSION):
            message = example(layout_of(cls, version), random.randrange, unknown_tags=False)
            _simplified(
                message,
                error_code=0 if declaration.name == "ApiVersionsResponse" else KNOWN_ERROR_CODE,
            )
            frame = compiled(cls, version).encode(message)
            for rebuilt in (
                _by_kafka_python(declaration.name, version, frame),
                _by_kio(declaration.name, declaration.kind, version, frame),
            ):
                assert rebuilt is None or rebuilt == frame, f"version {version}"
                compared += rebuilt is not None
    if not compared:
        pytest.skip("unknown to both")


def _simplified(message: Any, *, error_code: int) -> None:
    """Replace values for which kio has narrower types: error codes, timestamps and durations."""
    for field in fields_of(declaration_of(type(message))):
        value = getattr(message, field.name)
        match field.type:
            case StructureOf(structure) if value is not None and value != structure():
                _simplified(value, error_code=error_code)
            case ArrayOf(StructureOf()):
                for element in value or ():
                    _simplified(element, error_code=error_code)
            case Primitive.INT16 if "error_code" in field.name and value != field.default:
                setattr(message, field.name, error_code)
            case Primitive.INT64 if (
                "timestamp" in field.name or field.name.endswith("_ms")
            ) and value != field.default:
                setattr(message, field.name, TIMESTAMP_MS)


@cache
def _kafka_python_classes() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module_info in pkgutil.walk_packages(kafka_protocol.__path__, "kafka.protocol."):
        if ".old" not in module_info.name and "generate" not in module_info.name:
            members = vars(importlib.import_module(module_info.name))
            found |= {
                name: value
                for name, value in members.items()
                if isinstance(value, type) and hasattr(value, "decode")
            }
    return found


def _by_kafka_python(name: str, version: int, frame: bytes) -> bytes | None:
    rival = _kafka_python_classes().get(name)
    if rival is None or not rival.min_version <= version <= rival.max_version:
        return None
    message = rival.decode(frame, version=version)
    message._header = None
    return bytes(message.encode(version=version))


def _by_kio(name: str, kind: str, version: int, frame: bytes) -> bytes | None:
    api_name = snake_case(name.removesuffix("Request").removesuffix("Response"))
    try:
        rival = getattr(importlib.import_module(f"kio.schema.{api_name}.v{version}.{kind}"), name)
    except (ImportError, AttributeError):
        return None
    entity, size = kio_serial.entity_reader(rival)(frame, 0)
    assert size == len(frame)
    buffer = io.BytesIO()
    kio_serial.entity_writer(rival)(buffer, entity)
    return buffer.getvalue()
