"""The codecs that ours is compared with: kio, kafka-python, and construct interpreting the same
declarations.

Before it is timed, the output of a peer must equal ours. The peers are called as their users do:
kio by the reader and writer of an entity, kafka-python by `decode` and `encode` of a class.
"""

import importlib
import io
import pkgutil
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from protocol.codec.declaration import snake_case
from protocol.codec.message_codec import construct_of
from protocol.schema import declaration_of

Job = tuple[Callable[..., object], Any] | tuple[Callable[..., object], Any, Any]
"""A function and its arguments: nothing but the call itself is measured."""
Jobs = tuple[Job, Job]
"""Parse and build."""


def kio_jobs(cls: type, version: int, frame: bytes) -> Jobs | None:
    """Return kio's parse and build calls for the message, or None if it does not support it."""
    kio_class = _kio_class(cls, version)
    if kio_class is None:
        return None
    from kio.serial import entity_reader, entity_writer

    read, write = entity_reader(kio_class), entity_writer(kio_class)
    entity, _ = read(frame, 0)

    def build(entity: object) -> bytes:
        buffer = io.BytesIO()
        write(buffer, entity)
        return buffer.getvalue()

    assert build(entity) == frame, f"kio builds different bytes for {cls.__name__} v{version}"
    return (read, frame, 0), (build, entity)


def kafka_python_jobs(cls: type, version: int, frame: bytes) -> Jobs | None:
    """Return kafka-python's parse and build calls for the message, or None if it does not support
    it.
    """
    peer = _kafka_python_classes().get(declaration_of(cls).name)
    if (
        peer is None
        or not hasattr(peer, "min_version")
        or not peer.min_version <= version <= peer.max_version
    ):
        return None
    message = peer.decode(frame, version=version)
    message._header = None
    assert bytes(message.encode(version=version)) == frame, (
        f"kafka-python builds different bytes for {cls.__name__} v{version}"
    )
    return (partial(peer.decode, version=version), frame), (
        partial(type(message).encode, version=version),
        message,
    )


def construct_jobs(cls: type, version: int, frame: bytes) -> Jobs:
    """Return construct's parse and build calls with our declaration."""
    interpreted = construct_of(cls, version)
    message = interpreted.parse(frame)
    assert interpreted.build(message) == frame, (
        f"construct builds different bytes for {cls.__name__} v{version}"
    )
    return (interpreted.parse, frame), (interpreted.build, message)


def _kio_class(cls: type, version: int) -> Any:
    declaration = declaration_of(cls)
    api_name = snake_case(declaration.name.removesuffix("Request").removesuffix("Response"))
    try:
        return getattr(
            importlib.import_module(f"kio.schema.{api_name}.v{version}.{declaration.kind}"),
            declaration.name,
        )
    except (ImportError, AttributeError):
        return None


@cache
def _kafka_python_classes() -> dict[str, Any]:
    import kafka.protocol

    found: dict[str, Any] = {}
    for module_info in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" in module_info.name or "generate" in module_info.name:
            continue
        module = importlib.import_module(module_info.name)
        found |= {
            name: value
            for name, value in vars(module).items()
            if isinstance(value, type) and hasattr(value, "decode")
        }
    return found
