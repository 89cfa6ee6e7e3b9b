# kraftsim in a container: the target `node` (the default) runs nodes; `analysis` also runs scenarios with real clients and checks them with Spark.
#
#   docker build --tag kraftsim:node .
#   docker build --target analysis --tag kraftsim:analysis .
FROM python:3.11-slim AS base
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN useradd --system --create-home --home-dir /var/lib/kraftsim kraftsim
WORKDIR /opt/kraftsim
COPY requirements-core.lock ./
RUN pip install --require-hashes -r requirements-core.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY protocol protocol/
COPY kraftsim kraftsim/
COPY scenarios scenarios/
COPY pyspark_kafka_log pyspark_kafka_log/
COPY tools/__init__.py tools/wheel.py tools/
RUN pip install --no-deps --no-build-isolation .
ENTRYPOINT ["kraftsim"]
CMD ["--help"]

FROM base AS analysis
COPY requirements-analysis.lock ./
RUN pip install --require-hashes -r requirements-analysis.lock
USER kraftsim
WORKDIR /var/lib/kraftsim
RUN mkdir runs
VOLUME /var/lib/kraftsim/runs

FROM base AS node
USER kraftsim
WORKDIR /var/lib/kraftsim
RUN mkdir node
VOLUME /var/lib/kraftsim/node
