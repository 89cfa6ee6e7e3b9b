"""What a run's event log tells: one Parquet file per run, verdicts by Spark, and a report to look at.

Spark and its Java are started only to judge a run; reading, ingest and drawing the report of a judged run need neither.
"""
