"""Security: which principal a connection has, and what it may do.

Authentication happens once per connection, before any request but ApiVersions: by TLS (KIP-651 for
PEM, the principal of a client certificate), by SASL PLAIN, SCRAM or OAUTHBEARER
(KIP-152, KIP-255, KIP-368 for re-authentication), or not at all (`User:ANONYMOUS`). Authorization
happens at every request, by the ACLs in the metadata log (KIP-11, KIP-290, KIP-801). In Kafka:
org.apache.kafka.common.network.ChannelBuilders, SaslServerAuthenticator, DefaultSslEngineFactory,
kafka.server.{KafkaApis, AuthHelper}, org.apache.kafka.metadata.authorizer.StandardAuthorizer. The
rules themselves, exchanges of tokens and evaluation of ACLs, are in
`kraftsim/server/rules_authentication.py`, `rules_bearer_tokens.py` and `rules_authorization.py`;
this folder applies them.

Invariants. Before a client is authenticated it reaches nothing but SaslHandshake, SaslAuthenticate
and ApiVersions, in frames of limited size. Every API that a node with an authorizer serves has a
guard, or is listed in `rights` with the reason why not; otherwise the node does not start. A guard
that splits a request gives the handler a request of its own, so that what the handler reads later
never contains more than was allowed. Each partition of a fetch session is authorized at each Fetch,
so a session does not outlive a right. The cost of a guard is linear in the request: all of them
split it in `rights.split`.

The path of a Produce on a SASL listener:

    node_security   makes a gate for each connection of the listener, from `listener_settings`
    sasl_gate       `SaslGate.serve_run` passes nothing on until its state is COMPLETE; `serve` is
                    the state machine: handshake, tokens, done or failed
    ../dispatch     calls what `rights.guarded` has made of the handler
    broker_guards   the table from API to guard: for Produce `topic_guards.authorize_produce`
    rights          `Asked.may` evaluates ACLs, `pass_on_rest` calls the handler with the rest and
                    adds the rows of refused topics to its response

A forwarded request is authorized on the controller, for the client that its Envelope names
(`controller_guards`); in ZooKeeper mode by the broker that is the controller (`broker_guards`).

What is hard. Failing slowly: after a failed login the response and the disconnect are delayed, to
slow down guessing, while the connection serves nothing. A re-authentication must keep the principal
and the mechanism. A session ends with the token of OAUTHBEARER, which is compared with the wall
clock, while the session itself is measured by the monotonic clock. TLS settings carry Java's names
of suites, and unknown ones are rejected rather than ignored (`tls`). What a client may learn from
an error is fixed by Kafka: an unauthorized topic of Metadata is not even returned when all are
requested.

Read `sasl_gate`, then `rights`, then `topic_guards` as an example of a guard; `node_security` and
`listener_settings` for the configuration, `login` for the node's own connections.
"""
