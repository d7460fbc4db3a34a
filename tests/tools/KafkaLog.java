// Writes and reads a data directory with Kafka's own storage classes, for test_log_format.py.
//
//   java -cp ... KafkaLog.java write DIR          a directory as a Kafka broker leaves it
//   java -cp ... KafkaLog.java read DIR TOPIC     what Kafka finds in a directory, one `name=value` a line
//
// Run as a single source file, so that the tests need no build step.

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble;
import org.apache.kafka.metadata.properties.MetaPropertiesVersion;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class KafkaLog {
    static final LogDirFailureChannel FAILURES = new LogDirFailureChannel(10);
    static final long NOW = System.currentTimeMillis();

    public static void main(String[] args) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        try {
            if (args[0].equals("write")) {
                write(new File(args[1]), scheduler);
            } else {
                read(new File(args[1]), args[2], scheduler);
            }
        } finally {
            scheduler.shutdown();
        }
    }

    static UnifiedLog open(File dir, Map<String, String> config, long start, long recoveryPoint, boolean clean,
                           Optional<Uuid> topicId, KafkaScheduler scheduler) throws Exception {
        return UnifiedLog.create(dir, new LogConfig(config), start, recoveryPoint, scheduler, new BrokerTopicStats(),
            Time.SYSTEM, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000, FAILURES, clean, topicId);
    }

    static SimpleRecord record(int i) {
        Header[] headers = i % 5 == 0 ? new Header[] {new RecordHeader("n", new byte[] {(byte) i})} : new Header[0];
        byte[] key = i % 3 == 0 ? null : ("key-" + i % 7).getBytes(StandardCharsets.UTF_8);
        byte[] value = i % 11 == 10 ? null : ("value-" + i + "-" + "x".repeat(100)).getBytes(StandardCharsets.UTF_8);
        return new SimpleRecord(NOW + i, key, value, headers);
    }

    static void write(File root, KafkaScheduler scheduler) throws Exception {
        Map<String, String> config = new HashMap<>();
        config.put("internal.segment.bytes", String.valueOf(16 * 1024));
        config.put("index.interval.bytes", "1024");
        Uuid topicId = Uuid.randomUuid();
        UnifiedLog log = open(new File(root, "made-by-kafka-0"), config, 0, 0, true, Optional.of(topicId), scheduler);
        int n = 0;
        CompressionType[] codecs = CompressionType.values();
        for (int round = 0; round < 60; round++) {
            SimpleRecord[] records = new SimpleRecord[20];
            for (int i = 0; i < records.length; i++) {
                records[i] = record(n++);
            }
            Compression codec = Compression.of(codecs[round % codecs.length]).build();
            log.appendAsLeader(MemoryRecords.withRecords(codec, records), round < 30 ? 0 : 3);
        }
        for (int sequence = 0; sequence < 5; sequence++) {
            log.appendAsLeader(MemoryRecords.withIdempotentRecords(Compression.NONE, 4000L, (short) 1, sequence, record(n++)), 3);
        }
        transaction(log, 5000L, ControlRecordType.COMMIT, n++);
        transaction(log, 5001L, ControlRecordType.ABORT, n++);
        log.roll();
        transaction(log, 5002L, ControlRecordType.ABORT, n++);
        log.roll();
        log.updateHighWatermark(log.logEndOffset());
        log.maybeIncrementLogStartOffset(7, org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason.ClientRecordDeletion);
        long end = log.logEndOffset();
        log.flush(true);
        log.close();

        TopicPartition partition = new TopicPartition("made-by-kafka", 0);
        new OffsetCheckpointFile(new File(root, "recovery-point-offset-checkpoint"), FAILURES).write(Map.of(partition, end));
        new OffsetCheckpointFile(new File(root, "log-start-offset-checkpoint"), FAILURES).write(Map.of(partition, 7L));
        new OffsetCheckpointFile(new File(root, "replication-offset-checkpoint"), FAILURES).write(Map.of(partition, end));
        new CleanShutdownFileHandler(root.getPath()).write(1);
        MetaProperties meta = new MetaProperties.Builder().setVersion(MetaPropertiesVersion.V1).setNodeId(1)
            .setClusterId(Uuid.randomUuid().toString()).setDirectoryId(Uuid.randomUuid()).build();
        PropertiesUtils.writePropertiesFile(meta.toProperties(), new File(root, "meta.properties").getPath(), true);
        System.out.println("end=" + end);
        System.out.println("start=7");
        System.out.println("topicId=" + topicId);
    }

    static void transaction(UnifiedLog log, long producerId, ControlRecordType outcome, int n) throws Exception {
        log.appendAsLeader(MemoryRecords.withTransactionalRecords(Compression.NONE, producerId, (short) 0, 0, record(n), record(n + 1)), 3);
        log.appendAsLeader(MemoryRecords.withEndTransactionMarker(producerId, (short) 0, new EndTransactionMarker(outcome, 0)),
            3, AppendOrigin.COORDINATOR);
    }

    static void read(File root, String topic, KafkaScheduler scheduler) throws Exception {
        Properties meta = PropertiesUtils.readPropertiesFile(new File(root, "meta.properties").getPath());
        MetaProperties properties = new MetaProperties.Builder(meta).build();
        System.out.println("nodeId=" + properties.nodeId().orElse(-1));
        System.out.println("clusterId=" + properties.clusterId().orElse(""));
        System.out.println("ensembleErrors=" + new MetaPropertiesEnsemble.Loader().addLogDirs(java.util.List.of(root.getPath())).load().errorLogDirs());
        TopicPartition partition = new TopicPartition(topic, 0);
        long recoveryPoint = checkpoint(root, "recovery-point-offset-checkpoint").getOrDefault(partition, 0L);
        long start = checkpoint(root, "log-start-offset-checkpoint").getOrDefault(partition, 0L);
        boolean clean = new CleanShutdownFileHandler(root.getPath()).exists();
        System.out.println("clean=" + clean);
        System.out.println("recoveryPoint=" + recoveryPoint);
        File dir = new File(root, topic + "-0");
        System.out.println("topicId=" + new PartitionMetadataFile(PartitionMetadataFile.newFile(dir), FAILURES).read().topicId());
        UnifiedLog log = open(dir, new HashMap<>(), start, recoveryPoint, clean, Optional.empty(), scheduler);
        log.updateHighWatermark(log.logEndOffset());
        System.out.println("start=" + log.logStartOffset());
        System.out.println("end=" + log.logEndOffset());
        System.out.println("lastStable=" + log.lastStableOffset());
        System.out.println("segments=" + log.numberOfSegments());
        System.out.println("latestEpoch=" + log.latestEpoch().orElse(-1));
        System.out.println("epochs=" + log.leaderEpochCache().epochEntries().size());
        System.out.println("producers=" + new TreeMap<>(log.producerStateManager().activeProducers()).keySet());
        long records = 0;
        long valueBytes = 0;
        long next = log.logStartOffset();
        while (next < log.logEndOffset()) {
            for (RecordBatch batch : log.read(next, 1 << 20, FetchIsolation.LOG_END, true).records.batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    record.ensureValid();
                    if (!batch.isControlBatch()) {
                        records++;
                        valueBytes += Math.max(record.valueSize(), 0);
                    }
                }
                next = batch.nextOffset();
            }
        }
        System.out.println("records=" + records);
        System.out.println("valueBytes=" + valueBytes);
        log.close();
    }

    static Map<TopicPartition, Long> checkpoint(File root, String name) throws Exception {
        return new OffsetCheckpointFile(new File(root, name), FAILURES).read();
    }
}
