# Makes the properties of a broker out of KAFKA_... variables, as Kafka's own image does, and runs it.
set -eu
env | sed -n 's/^KAFKA_//p' | while IFS='=' read -r name value; do
  printf '%s=%s\n' "$(printf %s "$name" | tr 'A-Z_' 'a-z.')" "$value"
done > /tmp/kafka.properties
echo log.dirs=/tmp/kafka >> /tmp/kafka.properties
java -cp '/opt/kafka/*' kafka.tools.StorageTool format --cluster-id koff-containers-test-ID --config /tmp/kafka.properties
exec java -Xmx400m -cp '/opt/kafka/*' kafka.Kafka /tmp/kafka.properties
