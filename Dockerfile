# Two images: `node` runs controllers and brokers and needs little; `analysis` adds Spark with a Java of its own.
#
#   docker build --target node --tag kraftsim:node .
#   docker build --target analysis --tag kraftsim:analysis .

FROM python:3.11-slim AS node
ENV PIP_NO_CACHE_DIR=1
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
ENV PYTHONUNBUFFERED=1
WORKDIR /opt/kraftsim
COPY requirements-core.lock ./
RUN pip install --require-hashes -r requirements-core.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY protocol ./protocol
COPY kraftsim ./kraftsim
COPY scenarios ./scenarios
RUN pip install --no-deps --no-build-isolation .
RUN useradd --system --create-home --home-dir /var/lib/kraftsim kraftsim
USER kraftsim
WORKDIR /var/lib/kraftsim
RUN mkdir -p run
VOLUME /var/lib/kraftsim/run
CMD ["kraftsim", "--help"]

FROM node AS analysis
USER root
WORKDIR /opt/kraftsim
COPY requirements.lock requirements-java.lock ./
RUN pip install --require-hashes -r requirements.lock -r requirements-java.lock
USER kraftsim
WORKDIR /var/lib/kraftsim
