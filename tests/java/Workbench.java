import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's own tools and consumers in one JVM that stays up: {@code Workbench BOOTSTRAP}, then a request a
 * line, its words between tabs:
 *
 *   run CLASS ARG...                      what the tool of that class prints
 *   join NAME KIND TOPIC [KEY=VALUE...]   a consumer, whose client.id is NAME, that reads all it gets and
 *                                         commits it at once; KIND is classic, consumer or share, and a
 *                                         TOPIC between slashes is a pattern
 *   leave NAME                            closes it
 *
 * The answer ends in a line of a zero character and the exit code.
 */
final class Workbench {
    private static final PrintStream ANSWER = System.out;
    private static final Map<String, Member> MEMBERS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((code, message) -> {
            throw new Exited(code);
        });
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            int code = answer(args[0], line.split("\t"), new PrintStream(printed, true, StandardCharsets.UTF_8));
            ANSWER.write(printed.toByteArray());
            ANSWER.println("\n\0" + code);
            ANSWER.flush();
        }
        System.exit(0);
    }

    private static int answer(String bootstrap, String[] words, PrintStream out) throws Exception {
        switch (words[0]) {
            case "run" -> {
                return run(words[1], Arrays.copyOfRange(words, 2, words.length), out);
            }
            case "join" -> {
                Properties own = properties(Arrays.asList(words).subList(4, words.length));
                own.put("bootstrap.servers", bootstrap);
                own.put("client.id", words[1]);
                Member member = words[2].equals("share")
                    ? sharing(own, words[3]) : consuming(own, words[2], words[3]);
                MEMBERS.put(words[1], member);
                member.start();
            }
            case "leave" -> MEMBERS.remove(words[1]).leave();
            default -> throw new IllegalArgumentException(words[0]);
        }
        return 0;
    }

    private static int run(String tool, String[] args, PrintStream out) throws Exception {
        PrintStream err = System.err;
        System.setOut(out);
        System.setErr(out);
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) args);
            return 0;
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Exited exited) return exited.code;
            thrown.getCause().printStackTrace(out);
            return 1;
        } finally {
            System.setOut(ANSWER);
            System.setErr(err);
        }
    }

    private static Properties properties(List<String> pairs) {
        Properties properties = new Properties();
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        for (String pair : pairs) {
            String[] sides = pair.split("=", 2);
            properties.put(sides[0], sides[1]);
        }
        return properties;
    }

    private static Member consuming(Properties own, String protocol, String topic) {
        own.put("group.protocol", protocol);
        own.put("enable.auto.commit", "false");
        own.put("auto.offset.reset", "earliest");
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(own);
        if (!topic.startsWith("/")) {
            consumer.subscribe(List.of(topic));
        } else if (protocol.equals("classic")) {
            consumer.subscribe(Pattern.compile(topic.substring(1, topic.length() - 1)));
        } else {
            consumer.subscribe(new SubscriptionPattern(topic.substring(1, topic.length() - 1)));
        }
        return new Member(
            () -> {
                if (!consumer.poll(Duration.ofMillis(100)).isEmpty()) consumer.commitSync(Duration.ofSeconds(5));
            },
            consumer::close);
    }

    private static Member sharing(Properties own, String topic) {
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(own);
        consumer.subscribe(List.of(topic));
        return new Member(
            () -> {
                if (!consumer.poll(Duration.ofMillis(100)).isEmpty()) consumer.commitSync(Duration.ofSeconds(5));
            },
            consumer::close);
    }

    private static final class Exited extends RuntimeException {
        private final int code;

        private Exited(int code) {
            this.code = code;
        }
    }

    /** A consumer's thread: nothing else touches the consumer. */
    private static final class Member extends Thread {
        private final AtomicBoolean leaving = new AtomicBoolean();
        private final Runnable read;
        private final Runnable close;

        private Member(Runnable read, Runnable close) {
            this.read = read;
            this.close = close;
        }

        @Override
        public void run() {
            while (!leaving.get()) {
                try {
                    read.run();
                } catch (KafkaException again) {
                    // a rebalance, or a broker that starts: the next turn tries again
                }
            }
            close.run();
        }

        private void leave() throws InterruptedException {
            leaving.set(true);
            join();
        }
    }
}
