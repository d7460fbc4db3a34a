// Transactions with Apache Kafka's own producer and consumer: prints what happened as name=value lines.

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

public class KafkaTransactions {
    static Properties settings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return settings;
    }

    static KafkaProducer<String, String> producer(String bootstrap, String id) {
        Properties settings = settings(bootstrap);
        settings.put("transactional.id", id);
        settings.put("max.block.ms", "20000");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        producer.initTransactions();
        return producer;
    }

    static List<String> read(String bootstrap, String topic, String isolation) {
        Properties settings = settings(bootstrap);
        settings.put("isolation.level", isolation);
        settings.put("auto.offset.reset", "earliest");
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(500))) {
                    values.add(one.value());
                }
            }
        }
        return values;
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], source = arguments[1], target = arguments[2];
        try (KafkaProducer<String, String> producer = producer(bootstrap, "java")) {
            for (int number = 0; number < 20; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(source, 0, null, "v" + number)).get();
                if (number % 3 == 2) producer.abortTransaction(); else producer.commitTransaction();
            }
        }
        System.out.println("committed=" + String.join(",", read(bootstrap, source, "read_committed")));
        System.out.println("uncommitted=" + read(bootstrap, source, "read_uncommitted").size());

        Properties group = settings(bootstrap);
        group.put("group.id", "java-group");
        group.put("auto.offset.reset", "earliest");
        group.put("isolation.level", "read_committed");
        group.put("enable.auto.commit", "false");
        group.put("max.poll.records", "3");
        TopicPartition partition = new TopicPartition(source, 0);
        int done = 0, attempts = 0;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(group);
                KafkaProducer<String, String> producer = producer(bootstrap, "java-transform")) {
            consumer.subscribe(List.of(source));
            while (done < 14) {
                List<ConsumerRecord<String, String>> batch = new ArrayList<>();
                consumer.poll(Duration.ofMillis(500)).forEach(batch::add);
                if (batch.isEmpty()) continue;
                producer.beginTransaction();
                for (ConsumerRecord<String, String> one : batch) {
                    producer.send(new ProducerRecord<>(target, 0, null, one.value().toUpperCase()));
                }
                long next = batch.get(batch.size() - 1).offset() + 1;
                producer.sendOffsetsToTransaction(
                    Map.of(partition, new OffsetAndMetadata(next)), consumer.groupMetadata());
                if (++attempts % 2 == 0) {
                    producer.flush();
                    producer.abortTransaction();
                    consumer.seek(partition, batch.get(0).offset());
                } else {
                    producer.commitTransaction();
                    done += batch.size();
                }
            }
            System.out.println("offset=" + consumer.committed(java.util.Set.of(partition)).get(partition).offset());
        }
        System.out.println("transformed=" + String.join(",", read(bootstrap, target, "read_committed")));

        try (KafkaProducer<String, String> first = producer(bootstrap, "java-fenced")) {
            first.beginTransaction();
            first.send(new ProducerRecord<>(target, 0, null, "zombie")).get();
            try (KafkaProducer<String, String> second = producer(bootstrap, "java-fenced")) {
                try {
                    first.commitTransaction();
                    System.out.println("fenced=no");
                } catch (KafkaException fenced) {
                    System.out.println("fenced=" + fenced.getClass().getSimpleName());
                }
                second.beginTransaction();
                second.send(new ProducerRecord<>(target, 0, null, "newer"));
                second.commitTransaction();
            }
        }
        List<String> last = read(bootstrap, target, "read_committed");
        System.out.println("last=" + last.get(last.size() - 1));
    }
}
