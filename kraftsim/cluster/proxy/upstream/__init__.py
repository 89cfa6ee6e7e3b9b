"""A proxy in front of a cluster that is not kraftsim's own: Apache Kafka, Redpanda, a cloud's.

A client finds the brokers of a cluster in the answers of one of them, so a proxy that only passes
bytes loses its clients after the first answer. This one listens on a port for each broker, as soon
as an answer names it, and puts its own addresses in the place of those of the brokers
(`rules_addresses`: which responses have addresses). Everything else passes as it arrives, byte for
byte: of most frames only the first bytes are read (`client_frames`).

With frames in reach it does what the proxy of kraftsim's own clusters does: faults of requests
(`kraftsim.cluster.proxy.request_gate`) and conditions of links
(`kraftsim.cluster.proxy.conditions`).

Read `upstream_proxy` first, then `client_frames`, then `rules_addresses`.
"""
