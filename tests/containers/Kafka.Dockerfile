# A stand-in for apache/kafka where that image cannot be pulled: the same variables, and jars from Maven.
ARG BASE
FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-21-jre-headless && rm -rf /var/lib/apt/lists/*
COPY jars /opt/kafka
COPY kafka.sh /kafka.sh
USER 1000:1000
CMD ["sh", "/kafka.sh"]
