"""The codecs that ours is compared with: kio, kafka-python, construct interpreting the same
declarations, and the least that Python code can do for one message.

Before it is timed, the output of a peer must equal ours. The peers are called as their users do:
kio by the reader and writer of an entity, kafka-python by `decode` and `encode` of a class.
"""

import importlib
import io
import pkgutil
from collections.abc import Callable
from functools import cache, partial
from struct import Struct
from typing import Any

from protocol.codec.declaration import snake_case
from protocol.codec.message_codec import compiled, construct_of
from protocol.codec.tree import PresentField, StructureLayout, inner_layout, layout_of
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


class LeastSource:
    """The source of two functions for one message of known content: `parse` unpacks all numbers and
    strings in one call, creates the same objects and stores every field; `build` loads every field
    and packs all of them in one call.

    There is no length to check and no loop: what is left no codec in Python can leave out. The
    bytes are those of `format`, and not Kafka's.
    """

    def __init__(self) -> None:
        self.codes = ">"
        self.values: list[object] = []
        self.scope: dict[str, object] = {"new": object.__new__}
        self.parsed: list[str] = []
        self.built: list[str] = []
        self.packed: list[str] = []
        self._count = 0

    def text(self, root: str, top: str) -> str:
        """Return the source; `root` is the parsed message, `top` the message to build."""
        names = "".join(f"v{number}, " for number in range(len(self.values)))
        parse = [f"{names}= unpack(buffer)" if names else "pass", *self.parsed, f"return {root}"]
        build = [*self.built, f"return pack({', '.join(self.packed)})"]
        return "\n".join(
            (
                "def parse(buffer):",
                *(f"    {line}" for line in parse),
                f"def build({top}):",
                *(f"    {line}" for line in build),
            )
        )

    def structure(self, content: Any, layout: StructureLayout, loaded: str) -> str:
        """Add a structure, and return the name of its new object; `loaded` loads it."""
        cls, target = type(content), f"o{self._next()}"
        self.scope[cls.__name__] = cls
        if "." in loaded:
            self.built.append(f"{target} = {loaded}")
            loaded = target
        self.parsed.append(f"{target} = new({cls.__name__})")
        present = {field.name: field for field in layout.fields}
        for name in (*declaration_of(cls).calls, "_tags"):
            value = getattr(content, name)
            made = (
                self._value(value, present[name], f"{loaded}.{name}")
                if name in present
                else self._constant(value)
            )
            self.parsed.append(f"{target}.{name} = {made}")
        return target

    def _value(self, content: object, field: PresentField, loaded: str) -> str:
        """Add one value, and return the expression that creates it."""
        match content:
            case None:
                return "None"
            case bool() | int():
                return self._packed("?" if isinstance(content, bool) else "q", content, loaded)
            case str():
                raw = content.encode()
                return self._packed(f"{len(raw)}s", raw, f"{loaded}.encode()") + ".decode()"
            case bytes():
                return self._packed(f"{len(content)}s", content, loaded)
            case memoryview():
                return f"memoryview({self._bound(bytes(content))})[0:{len(content)}]"
            case list():
                names = [f"e{self._next()}" for _ in content]
                if names:
                    self.built.append(f"{', '.join(names)}, = {loaded}")
                made = [
                    self._value(each, field, name)
                    for each, name in zip(content, names, strict=True)
                ]
                return f"[{', '.join(made)}]"
        layout = inner_layout(field)
        assert layout is not None, f"{field.name} has structures"
        return self.structure(content, layout, loaded)

    def _constant(self, content: object) -> str:
        return "[]" if content == [] else self._bound(content)

    def _bound(self, content: object) -> str:
        name = f"constant{self._next()}"
        self.scope[name] = content
        return name

    def _packed(self, code: str, content: object, loaded: str) -> str:
        self.codes += code
        self.values.append(content)
        self.packed.append(loaded)
        return f"v{len(self.values) - 1}"

    def _next(self) -> int:
        self._count += 1
        return self._count


def least_jobs(cls: type, version: int, frame: bytes) -> Jobs:
    """Return the least work of parsing and building this very message in Python."""
    message: object = compiled(cls, version).parse(frame)
    source = LeastSource()
    root = source.structure(message, layout_of(cls, version), "message")
    layout = Struct(source.codes)
    scope = {**source.scope, "unpack": layout.unpack, "pack": layout.pack}
    exec(source.text(root, "message"), scope)
    content = layout.pack(*source.values)
    parse: Any = scope["parse"]
    build: Any = scope["build"]
    assert parse(content) == message and build(message) == content, "the same fields"
    return (parse, content), (build, message)
