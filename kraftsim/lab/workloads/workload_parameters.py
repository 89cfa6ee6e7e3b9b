"""Descriptions of the workload parameters of scenarios: `kraftsim scenario NAME --help` and the
catalogue show them.

A name means the same in each scenario that declares it. Numbers are counts unless the name ends
with a unit.
"""

from collections.abc import Mapping
from typing import Final

MEANINGS: Final[Mapping[str, str]] = {
    "aborting": "applications that abort in the last epoch of their producer id: 0 or 1",
    "administrators": "admin clients that change metadata at the same time",
    "appenders": "transactional producers that append values to lists",
    "attempts": "attempts of the second machine to register with the broker id of the first",
    "away_ms": "how long an instance that crashed or pauses is away, at most",
    "bounces": "rolling restarts of the application, each with the next kind of producer: 1 or 2",
    "brokers_of_kraft": "brokers that run in KRaft mode when the migration is rolled back",
    "bursts_per_writer": "bursts of records that each producer writes",
    "changes": "changes of the voter set",
    "changes_each": "changes of metadata by each admin client",
    "changes_per_topic": "configuration changes for each topic",
    "committing": "applications that commit across the last epoch of their producer id: 0 or 1",
    "copiers": "consume-transform-produce applications in one consumer group",
    "crashes": "crashes of consume-transform-produce applications",
    "crashes_per_mille": "crashes of instances, per thousand steps",
    "departures": "members that leave their group and come back, per thousand points passed",
    "fences": "whether the database refuses the commit of an earlier instance: 0 or 1",
    "groups": "groups without members whose offsets are committed",
    "hops": "upgrades, each to a later release, at most",
    "ids": "producer ids requested while faults are injected",
    "ids_after": "producer ids requested after the faults are healed",
    "ids_per_requester": "producer ids requested by each client",
    "ids_per_topic": "producer ids requested after each topic that is created",
    "keeps": "whether the next instance keeps the open transaction: 0 or 1",
    "late_words": "requests with the broker epoch of a former incarnation",
    "lines": "lines of text written to the input topic",
    "moves": "whether an administrator reassigns partitions and moves replicas: 0 or 1",
    "order_apps": "transactional producers that write at the same time",
    "participants": "transactional ids that take part in a two-phase commit",
    "participates": "whether transactions have no time-out: 0 or 1",
    "partitions": "partitions of the input topic",
    "pause_ms": "pause between two steps of one client",
    "pauses": (
        "pauses of consume-transform-produce applications, long enough to lose their partitions"
    ),
    "pauses_per_mille": "pauses of instances, per thousand steps",
    "producers": "producer ids that the steps choose from",
    "readers": "consumers that read all partitions again and again",
    "reads_every_ms": "interval between two reads",
    "records": "records of each producer or transaction",
    "records_per_burst": "records in one burst",
    "records_per_writer": "records that each producer writes",
    "records_without_follower": "records written at most while one replica is down",
    "replicas": "replicas of each partition",
    "replicas_max": "partitions times replicas of the largest topic",
    "requesters": "clients that request producer ids before the faults",
    "resizes": "changes of the size of producer id blocks",
    "restarting": "applications that restart in the last epoch of their producer id: 0 or 1",
    "rounds": "rounds of metadata changes",
    "steps": "Produce requests of each sequence of random steps",
    "too_large_per_mille": "records in 1,000 that exceed max.message.bytes",
    "topics": "topics that are created while faults are injected",
    "topics_each": "topics that each admin client creates",
    "transactional_ids": "transactional ids that are new to a partition",
    "transactions": "transactions of each transactional producer",
    "trims": "whether an administrator deletes the records at the head of logs: 0 or 1",
    "value_bytes": "size of each record value",
    "walks": "topics that get a sequence of random Produce requests each",
    "without_rights_ms": "time for which the broker lacks the ClusterAction permission",
    "work_ms": "time for which faults are injected",
    "workers": "members of a share group that work on records",
    "writers": "idempotent producers that write at the same time",
}
