import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * Writes tests/golden/segments: a log segment for each codec, made by Kafka's own classes, and beside
 * it what those classes read in it, which is the same for all.
 *
 *   java -cp 'JARS/*' tests/golden/Segments.java tests/golden/segments
 */
final class Segments {
    private static final long NOW = 1_795_223_298_551L;

    public static void main(String[] args) throws Exception {
        for (CompressionType codec : CompressionType.values()) {
            ByteBuffer log = ByteBuffer.allocate(1 << 20);
            fill(log, Compression.of(codec).build());
            log.flip();
            Path folder = Path.of(args[0]);
            byte[] bytes = new byte[log.remaining()];
            log.duplicate().get(bytes);
            Files.write(folder.resolve(codec.name + ".log"), bytes);
            try (PrintStream out = new PrintStream(Files.newOutputStream(folder.resolve("records.jsonl")))) {
                for (RecordBatch batch : MemoryRecords.readableRecords(log).batches()) print(out, batch);
            }
        }
    }

    private static void fill(ByteBuffer log, Compression codec) {
        try (var few = builder(log, codec, TimestampType.CREATE_TIME, 100, -1, false)) {
            few.append(NOW, bytes("key"), bytes("value"), new Header[] {new RecordHeader("h", bytes("v"))});
            few.append(NOW - 200_000_000_000L, bytes("older"), new byte[0]);
            few.append(-1L, null, bytes("no key"));
            few.append(Long.MAX_VALUE, bytes("no value"), null);
        }
        try (var appended = builder(log, codec, TimestampType.LOG_APPEND_TIME, 200, -1, false)) {
            appended.append(NOW, bytes("k"), bytes("v"));
            appended.append(NOW + 1, bytes("k"), bytes("v"));
        }
        try (var many = builder(log, codec, TimestampType.CREATE_TIME, 300, -1, false)) {
            for (int n = 0; n < 300; n++) {
                many.append(NOW + n, bytes("key-" + n), bytes("v".repeat(n % 200)));
            }
        }
        transactional(log, codec, 1000, 7, "aborted");
        transactional(log, codec, 1002, 8, "committed");
        marker(log, 1004, 7, ControlRecordType.ABORT);
        try (var plain = builder(log, codec, TimestampType.CREATE_TIME, 1005, -1, false)) {
            plain.append(NOW, bytes("plain"), bytes("while a transaction is open"));
        }
        marker(log, 1006, 8, ControlRecordType.COMMIT);
        transactional(log, codec, 1007, 7, "committed");
        marker(log, 1009, 7, ControlRecordType.COMMIT);
        transactional(log, codec, 1010, 9, "undecided");
        for (int n = 0; n < 40; n++) {
            try (var one = builder(log, codec, TimestampType.CREATE_TIME, 2000 + 10 * n, -1, false)) {
                for (int m = 0; m <= n % 3; m++) one.append(NOW, bytes("k" + n), bytes("v" + m));
            }
        }
    }

    private static MemoryRecordsBuilder builder(
            ByteBuffer log, Compression codec, TimestampType type, long offset, long producer, boolean transactional) {
        var made = new MemoryRecordsBuilder(log, RecordBatch.MAGIC_VALUE_V2, codec, type, offset, NOW, producer,
            (short) (producer < 0 ? -1 : 3), producer < 0 ? -1 : 0, transactional, false, 5, log.remaining());
        return made;
    }

    private static void transactional(ByteBuffer log, Compression codec, long offset, long producer, String key) {
        try (var made = builder(log, codec, TimestampType.CREATE_TIME, offset, producer, true)) {
            made.append(NOW, bytes(key), bytes("1"));
            made.append(NOW, bytes(key), bytes("2"));
        }
    }

    private static void marker(ByteBuffer log, long offset, long producer, ControlRecordType type) {
        MemoryRecords.writeEndTransactionalMarker(
            log, offset, NOW, 5, producer, (short) 3, new EndTransactionMarker(type, 11));
    }

    private static void print(PrintStream out, RecordBatch batch) {
        for (Record record : batch) {
            ObjectNode row = JsonNodeFactory.instance.objectNode();
            row.put("offset", record.offset()).put("timestamp", record.timestamp());
            row.put("producer_id", batch.producerId()).put("transactional", batch.isTransactional());
            row.put("control", batch.isControlBatch());
            row.put("key", hex(record.key())).put("value", hex(record.value()));
            out.println(row);
        }
    }

    private static String hex(ByteBuffer data) {
        if (data == null) return null;
        byte[] bytes = new byte[data.remaining()];
        data.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
