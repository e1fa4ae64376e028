# koff as a container image. The classic builder suffices: no BuildKit is needed.
#
#   docker build -t koff --target koff .          all commands but `koff pipeline`
#   docker build -t koff-spark --target spark .   all commands, with Spark, Delta and a Java runtime
#
# BASE may be any image of Debian 13: from a mirror, or with the certificates of your company.
ARG BASE=debian:trixie-slim

FROM ${BASE} AS python
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/*
# No write is needed to run koff: its modules are compiled when the image is built.
ENV PATH=/opt/koff/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

FROM python AS libraries
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv
WORKDIR /src
COPY requirements.lock requirements-build.lock ./
RUN python3 -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements-build.lock \
 && python3 -m venv --without-pip /opt/koff \
 && /opt/build/bin/pip --python /opt/koff install --no-cache-dir --require-hashes -r requirements.lock \
 && find /opt/koff/lib -type d -name tests -prune -exec rm -r {} + \
 # Of the services that Amazon's library knows, koff needs those that give credentials: the rest is 28 MB.
 && find /opt/koff/lib -path '*/botocore/data/*' -prune -type d ! -name sts ! -name 'sso*' ! -name signin \
      -exec rm -r {} +

FROM libraries AS build
COPY pyproject.toml README.md LICENSE ./
COPY koff koff
RUN /opt/build/bin/python -m build --no-isolation --wheel --outdir /wheels \
 && /opt/build/bin/pip --python /opt/koff install --no-cache-dir --no-deps /wheels/*.whl \
 && python3 -m compileall -q /opt/koff

FROM python AS runtime
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="koff" \
      org.opencontainers.image.description="How far behind every Kafka consumer group is, and why" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Hadoop, below Spark, wants a name for its user.
RUN useradd --uid 65532 --user-group --no-create-home --home-dir /nonexistent koff
STOPSIGNAL SIGTERM
ENTRYPOINT ["koff"]

FROM runtime AS koff
COPY --from=build /opt/koff /opt/koff
# A container listens on all addresses: what it publishes is decided outside of it. --listen, KOFF_MONITOR_LISTEN
# and `listen` in koff.yaml come before it.
ENV KOFF_DEFAULT_LISTEN=:9850
# A number, so that Kubernetes' runAsNonRoot can check it.
USER 65532:65532
EXPOSE 9850
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s CMD ["koff", "health", "--find"]
CMD ["monitor"]

FROM libraries AS build-spark
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-21-jre-headless
COPY requirements-spark.lock ./
RUN /opt/build/bin/pip --python /opt/koff install --no-cache-dir --require-hashes -r requirements-spark.lock \
 && python3 -m compileall -q /opt/koff
# Further jars for Spark by their Maven coordinates, such as org.apache.hadoop:hadoop-aws:3.4.1 for s3a.
ARG SPARK_PACKAGES=
COPY deploy/spark ./
RUN sh add-jars.sh "${SPARK_PACKAGES}"
COPY --from=build /wheels /wheels
RUN /opt/build/bin/pip --python /opt/koff install --no-cache-dir --no-deps /wheels/*.whl \
 && python3 -m compileall -q /opt/koff/lib/python3*/site-packages/koff

FROM runtime AS spark
RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-21-jre-headless \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/* \
 && install -d -o koff -g koff /tables
COPY --from=build-spark /opt/koff /opt/koff
# For Spark on Kubernetes: its pods start with `driver` or `executor`, and the driver runs pipeline.py.
COPY cmd/pipeline.py /opt/koff/pipeline.py
COPY deploy/spark/entrypoint.sh /opt/koff/entrypoint.sh
# Spark writes to /tmp, and unpacks libraries there: with --read-only, say --tmpfs /tmp:exec. koff writes to
# --tables; a new volume at /tables belongs to koff's user.
WORKDIR /tmp
USER 65532:65532
ENTRYPOINT ["sh", "/opt/koff/entrypoint.sh"]
CMD ["pipeline", "--help"]

# Without --target: the image without Spark.
FROM koff
