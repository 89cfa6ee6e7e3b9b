"""Where Spark looks for the data source `kafka-log`: in packages whose name begins with `pyspark_`.

Spark imports such packages when any Python data source is used, so this one imports little: what
reads is in `kraftsim.audit.data_source`.
Source: SPARK-45597; pyspark.sql.worker.lookup_data_sources.
"""

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The data source, until it is used."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafka-log"

    def schema(self) -> StructType:
        """Return the columns of the table."""
        from kraftsim.audit.data_source import KafkaLog

        return KafkaLog(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a table."""
        from kraftsim.audit.data_source import KafkaLog

        return KafkaLog(self.options).reader(schema)
