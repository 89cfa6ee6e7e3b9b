"""Malformed input gets a 4xx with a reason, never a 5xx: known cases, and generated ones."""

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftsim.control.application import ControlApplication
from kraftsim.control.controlled import Controlled
from kraftsim.control.openapi import document
from kraftsim.control.routes import ROUTES
from kraftsim.control.server import HttpServer
from tests.control.fake_cluster import NODE, TOKEN, Api, FakeCluster, FixedSnapshots, asked_raw

EXAMPLES = 300
SECONDS = 10
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("path", "content", "wanted"),
    [
        ("network/cut", b"", "missing required field `target`"),
        ("network/cut", b"{", "no JSON"),
        ("network/cut", b'{"target": "a",}', "no JSON"),
        ("network/cut", b"\xff\xfe", "no JSON"),
        ("network/cut", b'{"target": "\xff"}', "no JSON"),
        ("network/cut", b"[" * 60_000, "no JSON"),
        ("network/cut", b'{"a":' * 10_000, "no JSON"),
        ("network/cut", b"[]", "no JSON object"),
        ("network/cut", b'"text"', "no JSON object"),
        ("network/cut", b"null", "no JSON object"),
        ("network/cut", b'{"target": null}', "$.target"),
        ("network/cut", b'{"target": 1}', "$.target"),
        ("network/cut", b'{"target": ""}', "$.target"),
        ("network/cut", b'{"target": "%s"}' % (b"x" * 2000), "$.target"),
        ("network/cut", b'{"targets": "a"}', "did you mean target?"),
        ("network/cut", b'{"target": "a", "x": 1}', "it has the fields target"),
        ("network/slow", b'{"target": "a"}', "slows nothing"),
        ("network/slow", b'{"target": "a", "latency_ms": -1}', "$.latency_ms"),
        ("network/slow", b'{"target": "a", "latency_ms": 1e999}', "out of range"),
        ("network/slow", b'{"target": "a", "latency_ms": 1e300}', "$.latency_ms"),
        ("network/slow", b'{"target": "a", "latency_ms": NaN}', "no JSON"),
        ("network/slow", b'{"target": "a", "bytes_per_second": 1%s}' % (b"0" * 400), "$.bytes"),
        ("network/heal", b'{"nodes": "broker-1"}', "$.nodes"),
        ("network/heal", b'{"nodes": [1]}', "$.nodes[0]"),
        ("nodes/broker-1/restart", b'{"settings": {"a": 1}}', "$.settings"),
        ("nodes/broker-1/restart", b'{"settings": []}', "$.settings"),
        ("nodes/broker-1/upgrade", b"{}", "missing required field `release`"),
        ("request-faults", b'{"text": "EndTxn error=NONE", "times": 3}', "unknown field 'times'"),
    ],
)
async def test_a_malformed_body_is_400_and_says_where(
    path: str, content: bytes, wanted: str
) -> None:
    api = Api()
    answer = await api.ask("POST", f"/v1/{path}", content=content, headers=JSON)
    assert answer.status_code == 400, answer.text
    assert wanted in answer.text, answer.text
    assert set(answer.json()) == {"error", "hint"}
    assert api.cluster.done == []


@pytest.mark.parametrize(
    "media", ["", "text/html", "application/x-www-form-urlencoded", "multipart/form-data", "json"]
)
async def test_another_media_type_is_415(media: str) -> None:
    """A form of a foreign page can be sent without asking the server first."""
    api = Api()
    answer = await api.ask(
        "POST",
        "/v1/network/cut",
        content=b'{"target": "broker-1"}',
        headers={"Content-Type": media} if media else {},
    )
    assert answer.status_code == 415 and "application/json" in answer.json()["hint"]
    assert api.cluster.done == []


async def test_a_text_is_for_faults_of_requests_only() -> None:
    api = Api()
    headers = {"Content-Type": "text/plain"}
    answer = await api.ask("POST", "/v1/network/cut", content="broker-1", headers=headers)
    assert answer.status_code == 415
    for content in (b"\xff", b"", b"EndTxn"):
        answer = await api.ask("POST", "/v1/request-faults", content=content, headers=headers)
        assert answer.status_code == 400


@pytest.mark.parametrize(
    "number", ["0x1", "-1", "1.5", "1e3", "abc", "\u0661", "9" * 5000, "%00", "1;2", "+1", " 1"]
)
@pytest.mark.parametrize("place", ["network", "request-faults"])
async def test_a_number_that_is_none_is_not_found(number: str, place: str) -> None:
    """Python refuses to parse more than 4,300 digits, and has its own idea of digits."""
    answer = await Api().ask("DELETE", f"/v1/{place}/{number}")
    assert answer.status_code == 404 and set(answer.json()) == {"error", "hint"}


async def test_a_number_has_eighteen_digits_at_most() -> None:
    for digits, wanted in ((18, "has the number"), (19, "no such path")):
        answer = await Api().ask("DELETE", f"/v1/request-faults/{'9' * digits}")
        assert answer.status_code == 404 and wanted in answer.json()["error"]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("kinds=NodeStarted", "did you mean kind?"),
        ("x=1", "known: node, kind, from, follow"),
        ("from=start&from=now", "given twice"),
        ("from=yesterday", "start"),
        ("from=-1", "start"),
        ("from=" + "9" * 400, "start"),
        ("follow=maybe", "true or false"),
        ("follow=", "true or false"),
        ("kind=NodeStart", "did you mean NodeStarted?"),
        ("kind=%00", "no event is called"),
    ],
)
async def test_a_wrong_parameter_says_what_is_right(
    query: str, wanted: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    api = Api(tmp_path_factory.mktemp("events"))
    answer = await api.ask("GET", f"/v1/events?{query}")
    assert answer.status_code == 400 and wanted in answer.text, answer.text


async def test_a_route_without_parameters_takes_none() -> None:
    answer = await Api().ask("GET", "/v1/nodes?verbose=1")
    assert answer.status_code == 400 and answer.json()["hint"] == "it takes none"


async def test_a_defect_is_reported_without_its_traceback() -> None:
    """Only a defect of kraftsim gives 500; the answer has the same form."""
    api = Api()
    del api.cluster.rules
    answer = await api.ask("GET", "/v1/request-faults")
    assert answer.status_code == 500
    assert answer.json()["error"].startswith("a defect of kraftsim: AttributeError")
    assert "Traceback" not in answer.text


async def test_a_client_that_goes_away_in_its_body_is_no_defect() -> None:
    api = Api()
    headers = [
        (b"host", b"127.0.0.1:8123"),
        (b"authorization", f"Bearer {TOKEN}".encode()),
        (b"content-type", b"application/json"),
    ]
    scope: dict[str, object] = {"headers": headers, "method": "POST", "path": "/v1/network/cut"}
    sent: list[dict[str, object]] = []
    messages: Iterator[dict[str, object]] = iter(
        [
            {"type": "http.request", "body": b'{"tar', "more_body": True},
            {"type": "http.disconnect"},
        ]
    )

    async def receive() -> dict[str, object]:
        return next(messages)

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    whole = {"type": "http", "query_string": b"", "root_path": "", "scheme": "http", **scope}
    # arg-type: Starlette's messages are mutable mappings of anything
    await api.application.app(whole, receive, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 400
    assert api.cluster.done == []


# Generated input
# --------------------------------------------------------------------------------------------------

DOCUMENT: Any = document()
PLAIN_VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**30, max_value=10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30)
    | st.sampled_from(["broker-1", "*", "leader", "a>b>c", "<>", ",", "EndTxn", "error", "\x00"])
)
VALUES = st.recursive(
    PLAIN_VALUES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = sorted(
    {
        name
        for schema in DOCUMENT["components"]["schemas"].values()
        for name in schema.get("properties", {})
    }
)
OBJECTS = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=8), VALUES, max_size=6)
BODIES = (
    st.binary(max_size=60)
    | VALUES.map(lambda value: json.dumps(value).encode())
    | OBJECTS.map(lambda value: json.dumps(value).encode())
)
WORDS = st.text(max_size=20) | st.sampled_from([NODE, "1", "orders", "..", "%", "start", "now"])


@st.composite
def requests(draw: st.DrawFn) -> tuple[dict[str, object], bytes]:
    """A route with anything in its places, its query, its headers and its body."""
    route = draw(st.sampled_from(ROUTES))
    path = route.path
    for name in ("{node}", "{number}", "{topic}"):
        path = path.replace(name, draw(WORDS).replace("/", ""))
    names = [each.name for each in route.parameters if each.where == "query"]
    keys = st.sampled_from(names) | WORDS if names else WORDS
    query = draw(st.dictionaries(keys, WORDS, max_size=3))
    media = draw(st.sampled_from(["application/json", "text/plain", "application/json;x", ""]))
    extra = draw(st.lists(st.tuples(st.just(b"last-event-id"), st.binary(max_size=40)), max_size=1))
    scope: dict[str, object] = {
        "method": draw(st.sampled_from([route.method, route.method, "GET", "POST", "DELETE"])),
        "path": path,
        "query_string": urlencode(query).encode(),
        "headers": [
            (b"host", b"127.0.0.1:8123"),
            (b"authorization", f"Bearer {TOKEN}".encode()),
            (b"content-type", media.encode()),
            *extra,
        ],
    }
    return scope, draw(BODIES)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def api() -> Api:
    return Api()


@settings(max_examples=EXAMPLES, deadline=None)
@given(request=requests())
def test_generated_input_never_gives_a_server_error(
    request: tuple[dict[str, object], bytes], loop: asyncio.AbstractEventLoop, api: Api
) -> None:
    """2xx or 4xx, and of the latter each with a reason."""
    scope, body = request

    async def ask() -> tuple[int, bytes]:
        async with asyncio.timeout(SECONDS):
            return await asked_raw(api, scope, (body,))

    status, answer = loop.run_until_complete(ask())
    assert 200 <= status < 500, (status, answer)
    if status >= 400 and scope["method"] != "HEAD":
        assert set(json.loads(answer)) == {"error", "hint"}


# Bytes that are no HTTP, over a socket
# --------------------------------------------------------------------------------------------------


def raw(address: tuple[str, int], sent: bytes) -> bytes:
    """Send bytes to the server; return all that comes back until it closes the connection."""
    with socket.create_connection(address, timeout=SECONDS) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while piece := connection.recv(65536):
            received += piece
    return received


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"\x00\x00\x00\x10\x00\x12\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00" * 20,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
        b"POST /v1/network/cut HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/network/cut HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
        b"Content-Length: 6\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b" GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
)
async def test_bytes_that_are_no_http_get_a_reason(sent: bytes) -> None:
    """TLS, Kafka, and HTTP that is wrong: an answer in the form of all refusals, and the end."""
    server = HttpServer("127.0.0.1", 0)
    cluster: Controlled = FakeCluster()
    await server.open(
        ControlApplication(cluster, FixedSnapshots(), address=server.address, token=TOKEN)
    )
    try:
        received = await asyncio.to_thread(raw, ("127.0.0.1", server.address.port), sent)
    finally:
        await server.close()
    status, _, rest = received.partition(b"\r\n")
    assert status.startswith((b"HTTP/1.1 400", b"HTTP/1.1 403", b"HTTP/1.1 501")), received
    assert set(json.loads(rest.partition(b"\r\n\r\n")[2])) == {"error", "hint"}
