// Copies a topic with Apache Kafka's own clients, each batch in one transaction with its offsets, for ever.
//
// TransactionCopier BOOTSTRAP TRANSACTIONAL_ID SOURCE TARGET GROUP BATCH DEAL: as tests/cluster/copier.py does with
// librdkafka, but with transactions of version 2. An error ends the producer and the consumer, and new ones go on.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

public class TransactionCopier {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        for (String side : List.of("key", "value")) {
            settings.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            settings.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        settings.put("transactional.id", words[1]);
        settings.put("group.id", words[4]);
        settings.put("max.poll.records", words[5]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("transaction.timeout.ms", "20000");
        settings.put("max.block.ms", "20000");
        settings.put("delivery.timeout.ms", "20000");
        settings.put("request.timeout.ms", "10000");
        settings.put("default.api.timeout.ms", "20000");
        settings.put("linger.ms", "0");
        settings.put("batch.size", "100");
        while (true) {
            KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
            KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
            try {
                copy(consumer, producer, words[2], words[3], Integer.parseInt(words[6]));
            } catch (KafkaException error) {
                System.err.println(System.currentTimeMillis() + " " + words[1] + " " + error + " " + error.getCause());
            } finally {
                producer.close(Duration.ZERO);
                consumer.close(CloseOptions.timeout(Duration.ofSeconds(2)));
            }
        }
    }

    static void copy(
            KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer, String source, String target, int deal) {
        producer.initTransactions();
        consumer.subscribe(List.of(source));
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
            if (records.isEmpty()) continue;
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            int last = 0;
            for (ConsumerRecord<String, String> one : records) {
                last = Integer.parseInt(one.value().substring(one.value().lastIndexOf(':') + 1)) % deal;
                producer.send(new ProducerRecord<>(target, last, null, one.value()));
                ends.put(new TopicPartition(source, one.partition()), new OffsetAndMetadata(one.offset() + 1));
            }
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            producer.commitTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(target, last, null, "aborted"));
            if (records.count() % 2 == 1) producer.flush();
            producer.abortTransaction();
        }
    }
}
