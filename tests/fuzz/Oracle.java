import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.message.ConsumerProtocolAssignment;
import org.apache.kafka.common.message.ConsumerProtocolAssignmentJsonConverter;
import org.apache.kafka.common.message.ConsumerProtocolSubscription;
import org.apache.kafka.common.message.ConsumerProtocolSubscriptionJsonConverter;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde;

/**
 * What Kafka's own code makes of bytes: a line in, a line of JSON out.
 *
 *   offsets KEY VALUE    a record of __consumer_offsets
 *   share KEY VALUE      a record of __share_group_state
 *   subscription DATA    what a classic member asks for
 *   assignment DATA      what it was given
 *
 * Bytes are in hex, "-" is null and "e" is no bytes. The answer has what was decoded and how many
 * bytes were left over, or else "refused": the class of the error, and "where" it came up.
 */
final class Oracle {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;

    private interface Reading {
        void into(ObjectNode answer, String part) throws Exception;
    }

    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintWriter out = new PrintWriter(
            new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8)));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.trim().split(" ")));
        }
        out.flush();
    }

    private static ObjectNode answer(String[] words) {
        ObjectNode answer = JSON.objectNode();
        byte[] first = bytes(words[1]);
        switch (words[0]) {
            case "offsets" -> record(answer, new GroupCoordinatorRecordSerde(), false, first, bytes(words[2]));
            case "share" -> record(answer, new ShareCoordinatorRecordSerde(), true, first, bytes(words[2]));
            case "subscription" -> attempt(answer, "value", (to, part) -> subscription(to, first));
            case "assignment" -> attempt(answer, "value", (to, part) -> assignment(to, first));
            default -> throw new IllegalArgumentException(words[0]);
        }
        return answer;
    }

    private static byte[] bytes(String word) {
        return switch (word) {
            case "-" -> null;
            case "e" -> new byte[0];
            default -> HexFormat.of().parseHex(word);
        };
    }

    private static boolean attempt(ObjectNode answer, String part, Reading reading) {
        try {
            reading.into(answer, part);
            return true;
        } catch (Throwable refused) {
            answer.remove(part);
            answer.put("refused", refused.getClass().getSimpleName()).put("where", part);
            return false;
        }
    }

    private static void record(
            ObjectNode answer, CoordinatorRecordSerde serde, boolean share, byte[] key, byte[] value) {
        boolean keyed = attempt(answer, "key", (to, part) -> {
            ByteBuffer rest = ByteBuffer.wrap(key);
            CoordinatorRecord record = serde.deserialize(rest, null);
            to.putObject(part).put("type", record.key().apiKey()).set("data", share
                ? org.apache.kafka.coordinator.share.generated.CoordinatorRecordJsonConverters
                    .writeRecordKeyAsJson(record.key())
                : org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters
                    .writeRecordKeyAsJson(record.key()));
            to.put("key_rest", rest.remaining());
        });
        if (!keyed || value == null) {
            if (keyed) answer.putNull("value");
            return;
        }
        attempt(answer, "value", (to, part) -> {
            ByteBuffer rest = ByteBuffer.wrap(value);
            var decoded = serde.deserialize(ByteBuffer.wrap(key), rest).value();
            JsonNode data = share
                ? org.apache.kafka.coordinator.share.generated.CoordinatorRecordJsonConverters
                    .writeRecordValueAsJson(decoded.message(), decoded.version())
                : org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters
                    .writeRecordValueAsJson(decoded.message(), decoded.version());
            to.putObject(part).put("version", decoded.version()).set("data", data);
            to.put("value_rest", rest.remaining());
        });
    }

    private static void subscription(ObjectNode answer, byte[] data) {
        ByteBuffer rest = ByteBuffer.wrap(data);
        ConsumerProtocolSubscription read = ConsumerProtocol.deserializeConsumerProtocolSubscription(rest);
        short version = shortest(data, ConsumerProtocolSubscription.HIGHEST_SUPPORTED_VERSION);
        answer.putObject("value").put("version", version)
            .set("data", ConsumerProtocolSubscriptionJsonConverter.write(read, version));
        answer.put("value_rest", rest.remaining());
    }

    private static void assignment(ObjectNode answer, byte[] data) {
        ByteBuffer rest = ByteBuffer.wrap(data);
        ConsumerProtocolAssignment read = ConsumerProtocol.deserializeConsumerProtocolAssignment(rest);
        short version = shortest(data, ConsumerProtocolAssignment.HIGHEST_SUPPORTED_VERSION);
        answer.putObject("value").put("version", version)
            .set("data", ConsumerProtocolAssignmentJsonConverter.write(read, version));
        answer.put("value_rest", rest.remaining());
    }

    private static short shortest(byte[] data, short newest) {
        return (short) Math.min(ByteBuffer.wrap(data).getShort(), newest);
    }
}
