"""Run a scenario and ask its event log a question in Spark SQL: one view for each kind of event.

Needs the extra `analysis` and a Java of 17 or newer (`kraftsim doctor`).
"""

import argparse
import tempfile
from pathlib import Path

from kraftsim.analysis.ingest import ingest_run
from kraftsim.analysis.session import spark_session
from kraftsim.analysis.views import make_views, one_run
from kraftsim.lab.explore.run import run_scenario

SCENARIO = "producer_ids_survive_failover"
QUESTION = """
    SELECT node, count(*) AS blocks, min(first_producer_id) AS first,
        max(next_producer_id) - 1 AS last
    FROM producer_id_block_allocated GROUP BY node ORDER BY node
"""


def main() -> None:
    """Print which controller allocated which producer ids."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        run_scenario(SCENARIO, mode="sim", seed=options.seed, out=run)
        parquet = ingest_run(run).parquet
        with spark_session() as spark:
            make_views(spark, one_run(parquet), ("ProducerIdBlockAllocated",))
            for row in spark.sql(QUESTION).collect():
                print(f"{row.node} allocated {row.blocks} blocks: ids {row.first} to {row.last}")


if __name__ == "__main__":
    main()
