#!/bin/sh
# Puts the jars of Delta, and of the Maven coordinates in $1 (separated by commas), among Spark's own.
# For the Dockerfile: koff pipeline then downloads nothing when it starts.
set -eu
spark=$(echo /opt/koff/lib/python3*/site-packages/pyspark)
delta=$(/opt/koff/bin/python -c 'from importlib.metadata import version; print(version("delta-spark"))')
echo >nothing.py
PATH=/opt/koff/bin:$PATH spark-submit --conf spark.jars.ivy=/tmp/ivy \
  --packages "io.delta:delta-spark_2.13:$delta${1:+,$1}" nothing.py
for jar in /tmp/ivy/jars/*.jar; do
  name=${jar##*/}
  name=${name#*_} # Ivy puts the organization first
  [ -e "$spark/jars/$name" ] || cp "$jar" "$spark/jars/$name"
done
cd "$spark/jars"
sha256sum -c <<END
$(grep "$delta" /src/delta.sha256)
END
