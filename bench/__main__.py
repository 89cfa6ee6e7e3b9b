"""`make bench`: every measurement, one after the other. `make bench ARGS=ids` runs one.

python -m bench [NAME ...]      names: codec import records frames copies start ids produce idle
"""

import subprocess
import sys

BENCHES = {
    "codec": "parse and build, against kio, kafka-python, interpreted construct and code written by hand",
    "import": "how long importing the wire takes, and the first use of an API",
    "records": "record batches: headers, and records one by one, against kafka-python",
    "frames": "InitProducerId frames per second of one core, with a constant answer",
    "copies": "copies of each record byte in a broker, counted, and what they cost",
    "start": "seconds until every broker answers, and resident memory of each node",
    "ids": "InitProducerId per second, beside Apache Kafka",
    "produce": "MB/s of 1 KiB records by librdkafka, beside Apache Kafka",
    "idle": "virtual seconds per CPU second of an idle cluster",
}


def main() -> int:
    """Run the chosen benches, each in a process of its own."""
    chosen = sys.argv[1:] or list(BENCHES)
    unknown = [name for name in chosen if name not in BENCHES]
    if unknown:
        print(f"no bench is called {unknown[0]} (there are: {', '.join(BENCHES)})", file=sys.stderr)
        return 3
    worst = 0
    for name in chosen:
        print(f"\n== {name}: {BENCHES[name]}", flush=True)
        worst = max(worst, subprocess.run([sys.executable, "-m", f"bench.bench_{name}"], check=False).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
