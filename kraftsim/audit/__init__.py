"""Judges the log directories of Kafka brokers and controllers: what is wrong, where, since when.

`tables` declares what is read from disks, `scan` reads it, `checks` are the rules in SQL, and
`judging` asks them. Works on the disks of Apache Kafka and of kraftsim alike, and writes nothing to
them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Let a session read `format("kafka-log")`, with filters that select files.

    Without this call Spark finds the data source by itself, but hands it no filters.
    """
    from kraftsim.audit.data_source import PushingKafkaLog

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(PushingKafkaLog)
