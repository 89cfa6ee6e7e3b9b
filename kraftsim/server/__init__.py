"""The server: what every node does for its peers, whatever they ask; and how a broker and a
controller are put together.

A node is one event loop. It accepts connections, cuts bytes into requests, authenticates,
authorizes and throttles clients, calls the handler of each API, and sends responses in the order of
requests. In Kafka: kafka.network.SocketServer, kafka.server.{KafkaApis, ControllerApis,
KafkaRequestHandlerPool, BrokerServer, ControllerServer}; KIP-35 (versions), KIP-219 (throttling),
KIP-590 (forwarding), KIP-631 (registration).

Invariants. The responses of a connection are in the order of its requests. Nothing is sent before
the events of what it acknowledges are in the event log. A response is sent when what it says is
true and as durable as promised: a handler returns it, or a `Deferred` that is completed later. A
client occupies bounded memory and bounded time: its socket is not read while a request of it waits
to be served, and it is served for ten milliseconds at a time. A wrong state stops the node: an
AssertionError anywhere ends it, as every further response could be wrong; any other exception fails
one request.

The path of a request:

    listeners            one socket each; connections are admitted within quotas (KIP-612)
    connection, inbox    bytes to frames, in place; back-pressure; order of responses
    security/sasl_gate   only on SASL listeners: nothing but authentication passes before it
    dispatch             version, decoding, the handler of the API
    client_quotas        a wrapper around the handler: measures, and mutes the connection
    security/rights      a guard around the handler, if the node has an authorizer
    a handler            in `broker_handlers` or `controller_handlers` of a concern
    purgatory, pump      where deferred responses wait, and effects of rules are executed
    connection           encodes, and writes all responses of a turn at once

A request with many entries takes another way: `slices` cuts it and lets large requests take turns,
whichever connection they came from; `large_requests` serves one slice a turn. A request that only
the controller can decide is wrapped in an Envelope, and its response is passed on unchanged;
`forwarding` does it, and lists these APIs.

`broker` and `controller` wire the concerns together, start them and stop them in order. A node
never compares releases: `parts` selects the class of each replaceable rule once, by the traits of
the release, and puts a historical bug in the same place. `config` is the properties, `shell` the
runtime that both kinds of node share (tasks, turns, failure), `lifecycle` a broker's
way into the cluster, `outbound` and `controller_channel` the client side of a node's own
requests.

What is hard. Everything is one event loop, so no handler may take long: scans of records run in a
thread beside it, large requests in slices of fixed size: fixed, so that a seed gives the same event
log. The hot path and the careful path must answer alike: `dispatch` serves ordinary frames in a
tight loop and leaves everything unusual to `serve`. A response may fail to encode, because a client
controls what it quotes (`frame_server`). A handler may complete another client's request, and its
failure must not become theirs (`Deferred.complete_with`).

Releases. `releases/` says which APIs and versions a release offers (`api_offer`), its defaults and
configurations, and its traits.

Read `call`, `connection`, `dispatch`, `purgatory`, then `shell`, `parts`, `broker`; `rules_quotas`,
`rules_authentication` and `rules_authorization` are the rules behind the guards.
"""
