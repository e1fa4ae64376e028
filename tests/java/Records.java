import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.StringJoiner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Utils;

/**
 * Kafka's own code for records. A line of input is answered by one line:
 *
 *   write MAGIC CODEC TIMES   the bytes of three records, in hex; TIMES is CREATE_TIME or LOG_APPEND_TIME
 *   read HEX                  the records, as their fields between blanks, and a semicolon after each
 *   murmur2 HEX               the hash of a key
 */
final class Records {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            System.out.println(switch (words[0]) {
                case "write" -> write(Byte.parseByte(words[1]), words[2], words[3]);
                case "read" -> read(HEX.parseHex(words[1]));
                case "murmur2" -> Integer.toString(Utils.murmur2(HEX.parseHex(words[1])));
                default -> throw new IllegalArgumentException(line);
            });
        }
    }

    private static String write(byte magic, String codec, String times) {
        TimestampType type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.valueOf(times);
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 16), magic,
            Compression.of(CompressionType.forName(codec)).build(), type, 100L,
            type == TimestampType.LOG_APPEND_TIME ? 5000L : -1L);
        for (int number = 0; number < 3; number++) {
            byte[] key = number == 0 ? null : ("key" + number).getBytes(StandardCharsets.UTF_8);
            byte[] value = number == 1 ? null : "value".repeat(40 * number + 1).getBytes(StandardCharsets.UTF_8);
            Header[] headers = magic < 2 || number != 2 ? new Header[0]
                : new Header[] {new RecordHeader("h", new byte[] {1}), new RecordHeader("\u00fc", null)};
            builder.append(magic == 0 ? -1L : 1000L + number, key, value, headers);
        }
        MemoryRecords records = builder.build();
        byte[] bytes = new byte[records.sizeInBytes()];
        records.buffer().duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }

    private static String read(byte[] data) {
        StringJoiner lines = new StringJoiner(";");
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                record.ensureValid();
                StringJoiner fields = new StringJoiner(" ");
                fields.add(batch.magic() + " " + batch.compressionType().name + " " + batch.timestampType());
                fields.add(batch.producerId() + " " + batch.producerEpoch() + " " + batch.baseSequence());
                fields.add(batch.isTransactional() + " " + batch.isControlBatch());
                fields.add(batch.partitionLeaderEpoch() + " " + record.offset() + " " + record.timestamp());
                fields.add(hex(record.key()) + " " + hex(record.value()));
                for (Header header : record.headers()) {
                    byte[] value = header.value();
                    fields.add(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8)) + "="
                        + (value == null ? "null" : HEX.formatHex(value)));
                }
                lines.add(fields.toString());
            }
        }
        return lines.toString();
    }

    private static String hex(ByteBuffer buffer) {
        if (buffer == null) {
            return "null";
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }
}
