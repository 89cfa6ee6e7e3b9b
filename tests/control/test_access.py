"""Strangers at the HTTP port: no token, a wrong one, another Host, a page of another origin."""

from pathlib import Path

import pytest

from kraftsim.control.access import (
    BODY_BYTES_MAX,
    OWN_HEADERS,
    TOKEN_VARIABLE,
    BadToken,
    HttpAddress,
    read_token,
)
from kraftsim.control.routes import ROUTES
from tests.control.fake_cluster import HOST, NODE, PORT, TOKEN, Api, asked_raw

KILL = f"/v1/nodes/{NODE}/kill"
PROTECTED = [
    (route.method, route.path.replace("{node}", NODE).replace("{number}", "1"))
    for route in ROUTES
    if not route.is_public
]
OF_THE_PAGE = (b"content-security-policy", b"cache-control")
OWN = [(b"host", HOST.encode()), (b"authorization", f"Bearer {TOKEN}".encode())]


@pytest.mark.parametrize(("method", "path"), PROTECTED)
async def test_every_route_needs_the_token(method: str, path: str) -> None:
    """Nothing is carried out, and nothing of the cluster is in the answer."""
    api = Api()
    for token, status in ((None, 401), ("0" * len(TOKEN), 403), (TOKEN + "x", 403)):
        answer = await api.ask(method, path, token=token)
        assert answer.status_code == status
        assert set(answer.json()) == {"error", "hint"}
        assert NODE not in answer.text
    assert api.cluster.done == [] and api.cluster.rules.status(0) == ()


async def test_the_answer_without_a_token_says_where_it_is() -> None:
    answer = await Api().ask("GET", "/v1/nodes", token=None)
    assert answer.headers["www-authenticate"] == 'Bearer realm="kraftsim"'
    assert "cluster.json" in answer.json()["hint"]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {TOKEN}",
        TOKEN,
        f"Token {TOKEN}",
        f"Bearer: {TOKEN}",
    ],
)
async def test_another_scheme_is_no_token(value: str) -> None:
    answer = await Api().ask("GET", "/v1/nodes", token=None, headers={"Authorization": value})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "token", [TOKEN[:-1], TOKEN.upper(), f"{TOKEN} {TOKEN}", f"{TOKEN},", "\xff" * 40]
)
async def test_a_token_that_is_near_the_right_one_is_wrong(token: str) -> None:
    status, _ = await asked_raw(
        Api(),
        {
            "headers": [
                (b"host", HOST.encode()),
                (b"authorization", f"Bearer {token}".encode("latin-1")),
            ]
        },
    )
    assert status == 403


async def test_two_tokens_are_none() -> None:
    """Which of them counts would be a matter of who reads them."""
    headers = [*OWN, (b"authorization", b"Bearer other")]
    assert (await asked_raw(Api(), {"headers": headers}))[0] == 401


@pytest.mark.parametrize("path", ["/v1/nodes?token=" + TOKEN, "/v1/nodes?access_token=" + TOKEN])
async def test_a_token_in_the_query_is_none(path: str) -> None:
    """URLs end up in logs and in histories."""
    assert (await Api().ask("GET", path, token=None)).status_code == 401


async def test_the_scheme_is_spelt_in_any_case() -> None:
    answer = await Api().ask(
        "GET", "/v1/nodes", token=None, headers={"Authorization": f"bearer {TOKEN}"}
    )
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        "127.0.0.1:1",
        f"127.0.0.1.evil.example:{PORT}",
        f"localhost.evil.example:{PORT}",
        f"127.0.0.2:{PORT}",
        f"0.0.0.0:{PORT}",
        f"evil@127.0.0.1:{PORT}",
        f"127.0.0.1:{PORT}:{PORT}",
        f"127.0.0.1:{PORT} ",
        f"127.0.0.1:0{PORT}x",
        "[::1]",
        "[::1",
        "",
        ":",
    ],
)
async def test_another_host_is_refused_even_with_the_token(host: str) -> None:
    """DNS rebinding: a page of evil.example whose name now is 127.0.0.1. Public paths, too."""
    api = Api()
    for path in (KILL, "/v1/nodes", "/", "/healthz", "/openapi.json"):
        headers = [(b"host", host.encode()), OWN[1]]
        method = "POST" if path == KILL else "GET"
        status, body = await asked_raw(api, {"headers": headers, "path": path, "method": method})
        assert status == 403 and b"Host" in body, path
    assert api.cluster.done == []


@pytest.mark.parametrize("host", [HOST, f"localhost:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}"])
async def test_the_names_of_loopback_are_its_own(host: str) -> None:
    headers = [(b"host", host.encode()), OWN[1]]
    assert (await asked_raw(Api(), {"headers": headers}))[0] == 200


async def test_no_host_and_two_hosts_are_refused() -> None:
    for hosts in ([], [OWN[0], (b"host", b"evil.example")], [OWN[0], OWN[0]]):
        assert (await asked_raw(Api(), {"headers": [*hosts, OWN[1]]}))[0] == 403


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "https://127.0.0.1:8123",
        "http://127.0.0.1",
        "http://127.0.0.1:81",
        f"http://localhost:{PORT}",
        f"http://127.0.0.1:{PORT}.evil.example",
        "null",
        "",
        "file://",
    ],
)
async def test_another_origin_is_refused_even_with_the_token(origin: str) -> None:
    """Each origin but that of the page that this server served under the same Host."""
    api = Api()
    for method, path in (("POST", KILL), ("GET", "/v1/nodes"), ("GET", "/"), ("OPTIONS", KILL)):
        answer = await api.ask(method, path, headers={"Origin": origin})
        assert answer.status_code == 403 and "origin" in answer.json()["error"]
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert api.cluster.done == []


async def test_the_page_of_this_server_may_act() -> None:
    api = Api()
    headers = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}
    assert (await api.ask("POST", KILL, headers=headers)).status_code == 200
    assert api.cluster.done == [("kill", NODE)]


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
async def test_a_request_that_a_browser_marks_as_foreign_is_refused(site: str) -> None:
    """A link may lead to the page, which says nothing; data and verbs are for its own requests."""
    api = Api()
    headers = {"Sec-Fetch-Site": site}
    assert (await api.ask("GET", "/v1/nodes", headers=headers)).status_code == 403
    assert (await api.ask("GET", "/", headers=headers, token=None)).status_code == 200


async def test_public_paths_say_nothing_about_the_cluster() -> None:
    """The document, the page, its files, and that HTTP is served."""
    api = Api()
    for path in ("/", "/openapi.json", "/healthz"):
        answer = await api.ask("GET", path, token=None)
        assert answer.status_code == 200
        assert "127.0.0.1:9092" not in answer.text and TOKEN not in answer.text
        assert (await api.ask("HEAD", path, token=None)).status_code == 200
        assert (await api.ask("POST", path, token=None)).status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "//healthz",
        "/healthz/",
        "/healthz/../v1/nodes",
        "/openapi.json/v1/nodes",
        "/./v1/nodes",
        "/V1/nodes",
        "/v1/nodes/",
        "http://127.0.0.1:8123/healthz",
    ],
)
async def test_a_path_near_a_public_one_is_not_public(path: str) -> None:
    headers = [OWN[0]]
    assert (await asked_raw(Api(), {"headers": headers, "path": path}))[0] == 401


async def test_every_response_has_the_protecting_headers() -> None:
    """Also those of refusals, and of the page, which has a policy of its own."""
    api = Api()
    answers = [
        await api.ask("GET", "/v1/nodes"),
        await api.ask("GET", "/v1/nodes", token=None),
        await api.ask("GET", "/nothing"),
        await api.ask("GET", "/", token=None),
    ]
    for answer in answers:
        for name, value in OWN_HEADERS:
            got = answer.headers[name.decode()]
            assert got == value.decode() or name in OF_THE_PAGE
            assert len(answer.headers.get_list(name.decode())) == 1
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] in ("no-store", "no-cache")
        assert "server" not in answer.headers


async def test_a_declared_body_that_is_too_long_is_refused_unread() -> None:
    api = Api()
    for length in (str(BODY_BYTES_MAX + 1), "9" * 30, "-1", "1e3", "", "0x10"):
        headers = [*OWN, (b"content-length", length.encode())]
        status, _ = await asked_raw(
            api, {"headers": headers, "method": "POST", "path": "/v1/network/cut"}, ()
        )
        assert status == 413, length


async def test_an_undeclared_body_is_read_up_to_the_limit() -> None:
    """A chunked body has no length; the client may send for ever."""
    headers = [*OWN, (b"content-type", b"application/json")]
    pieces = [b"x" * 1000] * (BODY_BYTES_MAX // 1000 + 2)
    status, body = await asked_raw(
        Api(), {"headers": headers, "method": "POST", "path": "/v1/network/cut"}, pieces
    )
    assert status == 413 and b"too long" in body


async def test_a_websocket_is_closed() -> None:
    api = Api()
    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/v1/events", "headers": OWN}
    # arg-type: Starlette's messages are mutable mappings of anything
    await api.application.app(scope, receive, send)  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.7", False),
        ("example", False),
    ],
)
def test_loopback_is_not_what_others_reach(host: str, is_loopback: bool) -> None:
    assert HttpAddress(host, PORT).is_loopback is is_loopback


@pytest.mark.parametrize(
    ("given", "is_own"),
    [
        ("192.168.1.7:8123", True),
        ("172.17.0.2:80", True),
        ("[fe80::1]:9000", True),
        ("localhost:9000", True),
        ("evil.example:8123", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
    ],
)
def test_on_all_addresses_any_address_is_its_own_and_no_name_is(given: str, is_own: bool) -> None:
    """A container's port may be mapped to another one. Rebinding needs a name."""
    assert HttpAddress("0.0.0.0", PORT).is_own(given) is is_own


def test_port_80_need_not_be_named() -> None:
    assert HttpAddress("127.0.0.1", 80).is_own("localhost")
    assert not HttpAddress("127.0.0.1", 81).is_own("localhost")


@pytest.mark.parametrize("token", ["short", "has a blank in it somewhere", "x" * 257, "", "é" * 20])
def test_a_token_that_protects_nothing_is_refused(token: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    with pytest.raises(BadToken, match="16 to 256 printable characters"):
        read_token(file, {})
    with pytest.raises(BadToken, match=TOKEN_VARIABLE):
        read_token(None, {TOKEN_VARIABLE: token})


def test_a_token_comes_from_the_file_then_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef-of-the-file\n")
    environment = {TOKEN_VARIABLE: "0123456789abcdef-of-the-environment"}
    assert read_token(file, environment) == "0123456789abcdef-of-the-file"
    assert read_token(None, environment) == environment[TOKEN_VARIABLE]
    assert read_token(None, {}) is None
