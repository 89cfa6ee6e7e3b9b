"""Authentication gate of a SASL connection: until a client is authenticated, only authentication
requests are served.

The states are Kafka's. After a failure the response and the disconnect are delayed, to slow down
password guessing. If sessions have a lifetime, a client may re-authenticate on its connection; one
that does not is disconnected at its next request.
Source: org.apache.kafka.common.security.authenticator.SaslServerAuthenticator,
org.apache.kafka.common.network.KafkaChannel, KIP-152, KIP-368.
"""

import asyncio
from enum import Enum
from typing import Final

from kraftsim.server.call import NO_ANSWER, Answer, Call, Closing, Connection, Deferred, Encoded
from kraftsim.server.events_connections import AuthenticationRefused
from kraftsim.server.frame_server import NO_HEAD, FrameServer, ServedConnection
from kraftsim.server.inbox import Buffer
from kraftsim.server.rules_authentication import (
    USER_TYPE,
    Principal,
    SaslBroken,
    SaslRefused,
    ServerExchange,
    refusal_text,
)
from kraftsim.server.security.listener_settings import SaslSettings
from kraftsim.server.security.node_security import Accounts
from kraftsim.server.shell import NodeShell
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.messages.k18_api_versions import ApiVersionsResponse
from protocol.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from protocol.requests import RequestHead, decode_request

FIRST_VERSION_WITH_HEADERS: Final = 1
"""Of SaslHandshake; after version 0 the tokens follow without request headers."""
REAUTHENTICATION_INTERVAL_S: Final = 1.0
"""The minimum interval between re-authentications of a client."""
NO_ERROR: Final = b"\x00\x00"
FAILED_BEFORE: Final = "the client failed to authenticate"
UNFINISHED: Final = "another request came before the authentication was complete"
MECHANISM_SHOWN_MAX: Final = 64
"""The maximum length of a client's mechanism name in an event."""


class SaslState(Enum):
    """The authentication state of a client."""

    HANDSHAKE_OR_VERSIONS = "handshake or versions"
    HANDSHAKE = "handshake"
    AUTHENTICATE = "authenticate"
    RAW_TOKENS = "raw tokens"
    OTHER_MECHANISM = "another mechanism than before"
    COMPLETE = "complete"
    FAILED = "failed"


class SaslGate:
    """The gate of one connection."""

    def __init__(
        self, server: FrameServer, shell: NodeShell, settings: SaslSettings, accounts: Accounts
    ) -> None:
        self._server = server
        self._shell = shell
        self._settings = settings
        self._accounts = accounts
        self._loop = asyncio.get_running_loop()
        self._state = SaslState.HANDSHAKE_OR_VERSIONS
        self._mechanism = self._other_mechanism = ""
        self._exchange: ServerExchange | None = None
        self._first_principal: Principal | None = None
        """The principal of the first authentication."""
        self._expires_at: float | None = None
        self._next_reauthentication_s = 0.0

    def serve_by(self, server: FrameServer) -> None:
        """Pass requests of authenticated clients to another server from now on."""
        self._server = server

    def serve_run(
        self, connection: ServedConnection, buffer: Buffer, position: int, end: int
    ) -> int:
        """Pass requests to the server once the client is authenticated."""
        if self._state is SaslState.COMPLETE and (
            self._expires_at is None or self._loop.time() < self._expires_at
        ):
            return self._server.serve_run(connection, buffer, position, end)
        return position

    def read_head(self, frame: bytes) -> RequestHead:
        """Parse the request header; a raw token has none."""
        return NO_HEAD if self._state is SaslState.RAW_TOKENS else self._server.read_head(frame)

    def serve(
        self, head: RequestHead, frame: bytes, connection: ServedConnection
    ) -> Answer | Deferred:
        """Process the next authentication step, or pass on a request of an authenticated client."""
        match self._state:
            case SaslState.COMPLETE:
                if (
                    head.api_key != ApiKey.SASL_HANDSHAKE
                    and self._expires_at is not None
                    and self._loop.time() >= self._expires_at
                ):
                    return Closing("the session expired, and the client did not re-authenticate")
                return self._server.serve(head, frame, connection)
            case SaslState.HANDSHAKE_OR_VERSIONS | SaslState.HANDSHAKE:
                return self._serve_first(head, frame, connection)
            case SaslState.AUTHENTICATE:
                return self._serve_authentication(head, frame, connection)
            case SaslState.OTHER_MECHANISM:
                return self._end_other_mechanism(connection)
            case SaslState.RAW_TOKENS:
                return self._take_raw(frame, connection)
            case SaslState.FAILED:
                return Closing(FAILED_BEFORE)

    def on_handshake(self, call: Call) -> Answer | Deferred:
        """SaslHandshake of an authenticated client: start a re-authentication, if allowed."""
        request, now = call.body, self._loop.time()
        assert isinstance(request, SaslHandshakeRequest), "dispatch decodes by API key"
        if (
            self._state is not SaslState.COMPLETE
            or self._expires_at is None
            or now < self._next_reauthentication_s
        ):
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        self._next_reauthentication_s = now + REAUTHENTICATION_INTERVAL_S
        return self._begin(request.mechanism, call.api_version, call.connection)

    def on_authenticate(self, call: Call) -> Answer | Deferred:
        """SaslAuthenticate in a run of other requests: part of a re-authentication, or illegal."""
        request = call.body
        assert isinstance(request, SaslAuthenticateRequest), "dispatch decodes by API key"
        if self._state is SaslState.OTHER_MECHANISM:
            return self._end_other_mechanism(call.connection)
        if self._state is SaslState.AUTHENTICATE:
            return self._take_token(bytes(request.auth_bytes), call.connection)
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=OUT_OF_PLACE
        )

    # Steps
    # ----------------------------------------------------------------------------------------------

    def _serve_first(
        self, head: RequestHead, frame: bytes, connection: ServedConnection
    ) -> Answer | Deferred:
        if head.api_key == ApiKey.API_VERSIONS:
            if self._state is SaslState.HANDSHAKE:
                return Closing("duplicate ApiVersions before the client authenticated")
            answer = self._server.serve(head, frame, connection)
            if isinstance(answer, Encoded) and answer.rest[: len(NO_ERROR)] == NO_ERROR:
                self._state = SaslState.HANDSHAKE
            return answer
        if head.api_key != ApiKey.SASL_HANDSHAKE:
            reason = f"api key {head.api_key} came before the client authenticated"
            return self._fail(Closing(reason), connection, reason)
        request = decode_request(head, frame)
        assert isinstance(request, SaslHandshakeRequest), "decoded by API key"
        return self._begin(request.mechanism, head.api_version, connection)

    def _begin(self, mechanism: str, version: int, connection: Connection) -> Answer | Deferred:
        enabled = list(self._settings.mechanisms)
        if mechanism not in enabled:
            refused = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=enabled
            )
            return self._fail(
                refused, connection, f"mechanism {mechanism[:MECHANISM_SHOWN_MAX]!r} is not enabled"
            )
        if self._first_principal is not None and mechanism != self._mechanism:
            self._state, self._other_mechanism = SaslState.OTHER_MECHANISM, mechanism
        else:
            self._mechanism = mechanism
            self._exchange = self._accounts.exchange(
                self._settings, mechanism, self._shell.world.clock.wall_ms
            )
            self._state = (
                SaslState.AUTHENTICATE
                if version >= FIRST_VERSION_WITH_HEADERS
                else SaslState.RAW_TOKENS
            )
        return SaslHandshakeResponse(mechanisms=enabled)

    def _serve_authentication(
        self, head: RequestHead, frame: bytes, connection: ServedConnection
    ) -> Answer | Deferred:
        if head.api_key != ApiKey.SASL_AUTHENTICATE:
            illegal = ErrorCode.ILLEGAL_SASL_STATE
            if head.api_key == ApiKey.API_VERSIONS:
                return self._fail(ApiVersionsResponse(error_code=illegal), connection, UNFINISHED)
            return self._fail(
                self._server.refuse(head, frame, connection, illegal), connection, UNFINISHED
            )
        request = decode_request(head, frame)
        assert isinstance(request, SaslAuthenticateRequest), "decoded by API key"
        return self._take_token(bytes(request.auth_bytes), connection)

    def _take_token(self, token: bytes, connection: Connection) -> Answer | Deferred:
        try:
            reply = self._step(token)
        except SaslBroken as broken:
            return self._fail(Closing(str(broken)), connection, str(broken))
        except SaslRefused as refused:
            text = refusal_text(
                refused, self._mechanism, is_reauthentication=self._first_principal is not None
            )
            return self._fail(
                SaslAuthenticateResponse(
                    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text
                ),
                connection,
                str(refused),
            )
        lifetime_ms = self._complete(connection)
        return SaslAuthenticateResponse(auth_bytes=reply, session_lifetime_ms=lifetime_ms)

    def _end_other_mechanism(self, connection: Connection) -> Deferred:
        """Close without a response, whatever follows a handshake that changed the mechanism: Kafka
        throws before it reads the request.
        """
        other, mechanism = self._other_mechanism, self._mechanism
        why = (
            f"SASL mechanism '{other}' requested by client is not supported for "
            f"re-authentication of mechanism '{mechanism}'"
        )
        return self._fail(Closing(why), connection, why)

    def _take_raw(self, token: bytes, connection: ServedConnection) -> Answer | Deferred:
        try:
            reply = self._step(token)
        except SaslRefused as refused:
            return self._fail(Closing(str(refused)), connection, str(refused))
        self._complete(connection)
        connection.out.append(len(reply).to_bytes(4) + reply)
        return NO_ANSWER

    def _step(self, token: bytes) -> bytes:
        exchange = self._exchange
        assert exchange is not None, "an exchange is under way"
        reply = exchange.step(token)
        if (
            exchange.is_complete
            and self._first_principal is not None
            and exchange.user != self._first_principal.name
        ):
            was, name = self._first_principal, exchange.user
            why = (
                f"Cannot change principals during re-authentication from {was.kind}.{was.name}: "
                f"{USER_TYPE}.{name}"
            )
            raise SaslRefused(why, why)
        return reply

    def _complete(self, connection: Connection) -> int:
        """Complete the authentication if the exchange is done; return the session lifetime in
        milliseconds.
        """
        exchange = self._exchange
        if exchange is None or not exchange.is_complete:
            return 0
        self._state, self._exchange = SaslState.COMPLETE, None
        self._first_principal = connection.principal = Principal(USER_TYPE, exchange.user)
        connection.limit_frames(self._shell.config.socket_request_max_bytes)
        lifetime_ms = self._settings.session_ms[self._mechanism]
        has_end = lifetime_ms > 0 or exchange.expires_ms is not None
        if exchange.expires_ms is not None:
            of_token_ms = max(0, exchange.expires_ms - self._shell.world.clock.wall_ms())
            lifetime_ms = min(of_token_ms, lifetime_ms or of_token_ms)
        self._expires_at = self._loop.time() + lifetime_ms / 1000 if has_end else None
        return lifetime_ms

    def _fail(self, answer: Answer, connection: Connection, reason: str) -> Deferred:
        """Emit the failure; answer and close the connection after
        `connection.failed.authentication.delay.ms`.
        """
        self._state, self._exchange = SaslState.FAILED, None
        self._shell.world.emit(
            AuthenticationRefused(
                connection=connection.number,
                listener=connection.listener,
                peer=connection.peer,
                sasl_mechanism=self._mechanism,
                reason=reason,
            )
        )
        later = Deferred()

        def say() -> None:
            later.complete(answer)
            self._shell.settle_soon(lambda: connection.close(FAILED_BEFORE))

        self._loop.call_later(
            self._shell.config.connection_failed_authentication_delay_ms / 1000, say
        )
        return later


OUT_OF_PLACE: Final = "SaslAuthenticate request received after successful authentication"


def serve_handshake(node: object, call: Call) -> Answer | Deferred:
    """Serve SaslHandshake after authentication, or on a listener without SASL."""
    gate = call.connection.gate
    return (
        SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        if gate is None
        else gate.on_handshake(call)
    )


def serve_authentication(node: object, call: Call) -> Answer | Deferred:
    """Serve SaslAuthenticate likewise."""
    gate = call.connection.gate
    if gate is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=OUT_OF_PLACE
        )
    return gate.on_authenticate(call)


def refuse_handshake(call: Call, error: ErrorCode) -> Answer:
    """Return an error response."""
    return SaslHandshakeResponse(error_code=error)


def refuse_authentication(call: Call, error: ErrorCode) -> Answer:
    """Return an error response."""
    return SaslAuthenticateResponse(error_code=error, error_message=None)
