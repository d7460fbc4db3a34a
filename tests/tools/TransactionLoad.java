// Many transactions with Apache Kafka's own producer in one JVM, and what a reader sees of them afterwards.
//
// TransactionLoad BOOTSTRAP TOPIC PARTITIONS SCENARIO PRODUCERS TRANSACTIONS [RUN [WARM_UP]]
//
// SCENARIO is one of
//   back-to-back        each producer commits one transaction after the other, one record in each
//   abort-after-commit  each round commits, then aborts the next transaction about 2 ms later
//   first-batches       a new transactional id for each: one record, 1 ms, four records, commit
//   early-end           back-to-back, with a race of this client widened (SlowAccumulator): EndTxn before its batch
//
// Of back-to-back, the first WARM_UP transactions of each producer are not timed.
//
// Prints name=value lines: failures (with their texts), the warnings of the client by error code, times, and how what
// a read_committed consumer sees differs from what was committed.

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.internals.SlowAccumulator;
import org.apache.kafka.common.TopicPartition;

public class TransactionLoad {
    static final Pattern CODE = Pattern.compile("(?:Error: |error=)([A-Z][A-Z_]+[A-Z])|(\\w+Exception)");
    static final long READ_SECONDS = 60;
    static final int TEXTS = 8;

    final String bootstrap, topic, run;
    final int partitions, warmUp;
    // Of each partition, the values that a reader of committed records must see; a producer's own in order.
    final Map<Integer, List<String>> committed = new ConcurrentHashMap<>();
    final Map<String, Integer> doubtful = new ConcurrentHashMap<>();
    final ConcurrentLinkedQueue<String> failures = new ConcurrentLinkedQueue<>();
    // How long each transaction took, by the thread of its producer.
    final ConcurrentLinkedQueue<List<Long>> nanos = new ConcurrentLinkedQueue<>();
    final ThreadLocal<List<Long>> mine = ThreadLocal.withInitial(() -> {
        List<Long> times = new ArrayList<>();
        nanos.add(times);
        return times;
    });

    TransactionLoad(String bootstrap, String topic, int partitions, String run, int warmUp) {
        this.warmUp = warmUp;
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.partitions = partitions;
        this.run = run;
        for (int index = 0; index < partitions; index++) committed.put(index, Collections.synchronizedList(new ArrayList<>()));
    }

    Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (String side : List.of("key", "value")) {
            settings.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            settings.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        return settings;
    }

    KafkaProducer<String, String> producer(String id) {
        Properties settings = settings();
        settings.put("transactional.id", id);
        settings.put("client.id", id);
        settings.put("linger.ms", "0");
        settings.put("max.block.ms", "60000");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        producer.initTransactions();
        return producer;
    }

    /** One transaction of these values in one partition; whether the producer can go on. */
    boolean transaction(KafkaProducer<String, String> producer, String id, int partition, List<String> values, Runnable between, boolean commit) {
        long began = System.nanoTime();
        String step = "begin";
        try {
            producer.beginTransaction();
            step = "send";
            boolean first = true;
            for (String value : values) {
                producer.send(new ProducerRecord<>(topic, partition, null, value));
                if (first) between.run();
                first = false;
            }
            step = commit ? "commit" : "abort";
            if (commit) {
                for (String value : values) doubtful.put(value, partition);
                producer.commitTransaction();
                for (String value : values) {
                    doubtful.remove(value);
                    committed.get(partition).add(value);
                }
            } else {
                producer.abortTransaction();
            }
            mine.get().add(System.nanoTime() - began);
            return true;
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            failures.add(id + " " + step + ": " + error.getClass().getSimpleName() + " " + cause.getClass().getSimpleName() + ": " + cause.getMessage());
            return false;
        }
    }

    void backToBack(int number, int transactions, CountDownLatch warm) throws Exception {
        backToBack(number, transactions, warm, false);
    }

    void earlyEnd(int number, int transactions, CountDownLatch warm) throws Exception {
        backToBack(number, transactions, warm, true);
    }

    void backToBack(int number, int transactions, CountDownLatch warm, boolean slow) throws Exception {
        String id = run + "-" + number;
        try (KafkaProducer<String, String> producer = producer(id)) {
            producer.partitionsFor(topic);
            if (slow) SlowAccumulator.into(producer);
            for (int count = 0; count < warmUp + transactions; count++) {
                if (count == warmUp) {
                    warm.countDown();
                    warm.await();
                }
                int partition = (number + count) % partitions;
                if (!transaction(producer, id, partition, List.of(id + ":" + count), () -> { }, true)) return;
                if (count < warmUp) mine.get().clear();
            }
        }
    }

    void abortAfterCommit(int number, int transactions, CountDownLatch warm) throws Exception {
        String id = run + "-" + number;
        KafkaProducer<String, String> producer = producer(id);
        producer.partitionsFor(topic);
        warm.countDown();
        warm.await();
        for (int count = 0; count < transactions; count++) {
            int partition = (number + count) % partitions;
            boolean alive = transaction(producer, id, partition, List.of(id + ":" + count), () -> { }, true);
            if (alive) {
                LockSupport.parkNanos(2_000_000);
                // The batch is not sent yet when the abort comes: EndTxn is the next request of the new epoch.
                alive = transaction(producer, id, partition, List.of(id + ":aborted-" + count), () -> { }, false);
            }
            if (!alive) {  // dead for good: one failure for each, and a new one goes on
                producer.close(Duration.ZERO);
                producer = producer(id);
            }
        }
        producer.close();
    }

    void firstBatches(int number, int transactions, CountDownLatch warm) throws Exception {
        warm.countDown();
        for (int count = 0; count < transactions; count++) {
            String id = run + "-" + number + "-" + count;
            KafkaProducer<String, String> producer = producer(id);
            producer.partitionsFor(topic);
            List<String> values = new ArrayList<>();
            for (int record = 0; record < 5; record++) values.add(id + ":" + record);
            boolean alive = transaction(producer, id, (number + count) % partitions, values, () -> LockSupport.parkNanos(1_000_000), true);
            producer.close(alive ? Duration.ofSeconds(30) : Duration.ZERO);
        }
    }

    interface Part { void run(int number, int transactions, CountDownLatch warm) throws Exception; }

    double run(Part part, int producers, int transactions) throws Exception {
        CountDownLatch warm = new CountDownLatch(producers);
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < producers; number++) {
            int index = number;
            Thread thread = new Thread(() -> {
                try {
                    part.run(index, transactions, warm);
                } catch (Exception error) {
                    failures.add(run + "-" + index + " start: " + error);
                } finally {
                    warm.countDown();
                }
            });
            threads.add(thread);
            thread.start();
        }
        warm.await();
        long began = System.nanoTime();
        for (Thread thread : threads) thread.join();
        return (System.nanoTime() - began) / 1e9;
    }

    Map<TopicPartition, Long> ends(List<TopicPartition> where, String isolation) {
        Properties settings = settings();
        settings.put("isolation.level", isolation);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            return consumer.endOffsets(where);
        }
    }

    /** What a reader of committed records sees against what was committed, once no transaction is open. */
    void check() throws Exception {
        List<TopicPartition> where = new ArrayList<>();
        for (int index = 0; index < partitions; index++) where.add(new TopicPartition(topic, index));
        long deadline = System.nanoTime() + READ_SECONDS * 1_000_000_000L;
        Map<TopicPartition, Long> stable = ends(where, "read_committed"), ends = ends(where, "read_uncommitted");
        while (!stable.equals(ends) && System.nanoTime() < deadline) {
            Thread.sleep(100);
            stable = ends(where, "read_committed");
            ends = ends(where, "read_uncommitted");
        }
        int hanging = 0;
        for (TopicPartition one : where) if (!stable.get(one).equals(ends.get(one))) hanging++;
        Properties settings = settings();
        settings.put("isolation.level", "read_committed");
        Map<Integer, List<String>> seen = new HashMap<>();
        for (int index = 0; index < partitions; index++) seen.put(index, new ArrayList<>());
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(where);
            consumer.seekToBeginning(where);
            boolean left = true;
            while (left && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(200))) {
                    if (one.value().startsWith(run + "-")) seen.get(one.partition()).add(one.value());
                }
                left = false;
                for (TopicPartition one : where) if (consumer.position(one) < stable.get(one)) left = true;
            }
        }
        List<String> missing = new ArrayList<>(), unexpected = new ArrayList<>(), reordered = new ArrayList<>();
        for (int index = 0; index < partitions; index++) {
            List<String> wanted = committed.get(index);
            Map<String, Integer> counts = new HashMap<>();
            for (String value : seen.get(index)) counts.merge(value, 1, Integer::sum);
            for (String value : wanted) if (counts.merge(value, -1, Integer::sum) < 0) missing.add(value);
            for (Map.Entry<String, Integer> one : counts.entrySet()) {
                boolean may = Integer.valueOf(index).equals(doubtful.get(one.getKey())) && one.getValue() == 1;
                if (one.getValue() > 0 && !may) unexpected.add(one.getKey());
            }
            Map<String, Integer> last = new HashMap<>();
            for (String value : seen.get(index)) {
                int colon = value.lastIndexOf(':');
                if (value.startsWith("aborted-", colon + 1)) continue;
                int number = Integer.parseInt(value.substring(colon + 1));
                Integer before = last.put(value.substring(0, colon), number);
                if (before != null && before >= number) reordered.add(value);
            }
        }
        report("missing", missing);
        report("unexpected", unexpected);
        report("reordered", reordered);
        System.out.println("hanging=" + hanging);
    }

    static void report(String name, List<String> found) {
        System.out.println(name + "=" + found.size());
        if (!found.isEmpty()) System.out.println(name + "_first=" + String.join(" | ", found.subList(0, Math.min(TEXTS, found.size()))));
    }

    /** What the client logs, line by line, counted by error code; all of it goes on to standard error. */
    static Map<String, Integer> countWarnings() {
        Map<String, Integer> counts = Collections.synchronizedMap(new TreeMap<>());
        PrintStream real = System.err;
        ByteArrayOutputStream line = new ByteArrayOutputStream() {
            @Override
            public synchronized void write(byte[] bytes, int start, int length) {
                for (int at = start; at < start + length; at++) write(bytes[at]);
            }

            @Override
            public synchronized void write(int one) {
                if (one != '\n') {
                    super.write(one);
                    return;
                }
                String text = toString();
                reset();
                real.println(text);
                Matcher found = CODE.matcher(text);
                if (text.contains("WARN") || text.contains("ERROR")) {
                    String code = found.find() ? (found.group(1) != null ? found.group(1) : found.group(2)) : "other";
                    counts.merge(code, 1, Integer::sum);
                }
            }
        };
        System.setErr(new PrintStream(line, true));
        return counts;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Integer> warnings = countWarnings();
        String run = arguments.length > 6 ? arguments[6] : "run" + System.nanoTime();
        int warmUp = arguments.length > 7 ? Integer.parseInt(arguments[7]) : 0;
        int producers = Integer.parseInt(arguments[4]), transactions = Integer.parseInt(arguments[5]);
        TransactionLoad load = new TransactionLoad(arguments[0], arguments[1], Integer.parseInt(arguments[2]), run, warmUp);
        Map<String, Part> parts = Map.of(
            "back-to-back", load::backToBack, "early-end", load::earlyEnd,
            "abort-after-commit", load::abortAfterCommit, "first-batches", load::firstBatches);
        double seconds = load.run(parts.get(arguments[3]), producers, transactions);
        long[] nanos = load.nanos.stream().flatMap(List::stream).mapToLong(Long::longValue).sorted().toArray();
        System.out.println("done=" + nanos.length);
        System.out.println("seconds=" + seconds);
        System.out.println("per_second=" + nanos.length / seconds);
        for (int percent : new int[] {50, 99, 100}) {
            if (nanos.length > 0) System.out.println("p" + percent + "_ms=" + nanos[Math.min(nanos.length - 1, nanos.length * percent / 100)] / 1e6);
        }
        report("failures", new ArrayList<>(load.failures));
        warnings.forEach((code, count) -> System.out.println("warned_" + code + "=" + count));
        load.check();
    }
}
