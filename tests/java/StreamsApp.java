import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts a topic's messages by value: {@code StreamsApp BOOTSTRAP GROUP TOPIC}.
 *
 * A member of a streams group (KIP-1071) with two subtopologies, a repartition topic between them and a
 * changelog topic. Prints "VALUE COUNT" for each message, so that whoever started it knows how far it is;
 * leaves its group when it is told to end.
 */
final class StreamsApp {
    public static void main(String[] args) throws InterruptedException {
        KafkaStreams streams = new KafkaStreams(counting(args[2]).build(), properties(args[0], args[1]));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(
            CloseOptions.timeout(Duration.ofSeconds(10))
                .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP))));
        streams.start();
        Thread.currentThread().join();
    }

    private static StreamsBuilder counting(String topic) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(topic)
            .selectKey((key, value) -> value)
            .repartition(Repartitioned.as("by-value"))
            .groupByKey()
            // In memory, as the jars of RocksDB are many times the size of all others here.
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .foreach((value, count) -> System.out.println(value + " " + count));
        return builder;
    }

    private static Properties properties(String bootstrap, String group) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, group);
        properties.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, System.getProperty("java.io.tmpdir"));
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put("auto.offset.reset", "earliest");
        return properties;
    }
}
