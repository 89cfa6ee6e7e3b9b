"""Where Spark looks for the data source `kafka-log`: in packages whose name begins with `pyspark_`.

Source: SPARK-45597; pyspark.sql.worker.lookup_data_sources.
"""

from kraftsim.audit.data_source import KafkaLog as DefaultSource

__all__ = ["DefaultSource"]
