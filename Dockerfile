# kraftsim in a container: the target `node` (the default) runs a node or a small cluster as Apache Kafka's image does; `analysis` also runs
# scenarios with real clients and checks runs with Spark. docs/containers.md has more.
#
#   docker build --tag kraftsim:node . && docker run --publish 9092:9092 kraftsim:node
#   docker build --target analysis --tag kraftsim:analysis .
#
# The digest is that of the index of all platforms. To renew it, ask for the present one and put it into the next line:
#   docker buildx imagetools inspect python:3.11-slim-bookworm --format '{{.Manifest.Digest}}'
FROM python:3.11-slim-bookworm@sha256:b18992999dbe963a45a8a4da40ac2b1975be1a776d939d098c647482bcad5cba AS base
ENV PATH=/opt/kraftsim/python/bin:/opt/kraftsim/bin:$PATH

FROM base AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/kraftsim/python
WORKDIR /opt/kraftsim/source
COPY requirements-core.lock ./
RUN pip install --require-hashes -r requirements-core.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY protocol protocol/
COPY kraftsim kraftsim/
COPY scenarios scenarios/
COPY pyspark_kafka_log pyspark_kafka_log/
COPY tools/__init__.py tools/wheel.py tools/
RUN pip install --no-deps --no-build-isolation .

FROM build AS build-analysis
COPY requirements-analysis.lock ./
RUN pip install --require-hashes -r requirements-analysis.lock

# What is left of the node's Python when all is installed, and the codecs that a node generates at its first start.
FROM build AS packed
WORKDIR /opt/kraftsim
ENV KRAFTSIM_CODEC_CACHE=/opt/kraftsim/codecs
RUN kraftsim scenario combined_nodes_failover --out first && kraftsim scenario exactly_once_under_faults --out second && rm -r first second
RUN pip uninstall --yes setuptools pygments markdown-it-py mdurl pip

FROM base AS analysis
RUN useradd --system --create-home --home-dir /var/lib/kraftsim kraftsim
COPY --from=build-analysis /opt/kraftsim/python /opt/kraftsim/python
COPY docker/kafka /etc/kafka/docker/
USER kraftsim
WORKDIR /var/lib/kraftsim
RUN mkdir run runs
VOLUME /var/lib/kraftsim/run
VOLUME /var/lib/kraftsim/runs
ENTRYPOINT ["/etc/kafka/docker/entrypoint"]
CMD ["kraftsim", "--help"]

FROM base AS node
ENV KRAFTSIM_CODEC_CACHE=/opt/kraftsim/codecs
RUN useradd --system --create-home --home-dir /var/lib/kraftsim kraftsim
COPY --from=packed /opt/kraftsim/python /opt/kraftsim/python
COPY --from=packed --chown=kraftsim /opt/kraftsim/codecs /opt/kraftsim/codecs
COPY docker/bin /opt/kraftsim/bin/
COPY docker/kafka /etc/kafka/docker/
COPY --chown=kraftsim docker/confluent /etc/confluent/docker/
USER kraftsim
WORKDIR /var/lib/kraftsim
RUN mkdir node run
VOLUME /var/lib/kraftsim/node
VOLUME /var/lib/kraftsim/run
EXPOSE 9092
HEALTHCHECK --interval=5s --timeout=5s --start-period=20s CMD ["kraftsim", "container", "--check"]
ENTRYPOINT ["/etc/kafka/docker/entrypoint"]
CMD ["/etc/kafka/docker/run"]
