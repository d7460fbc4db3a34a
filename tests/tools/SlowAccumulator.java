// Widens a race of Kafka 4.1's producer so that a test meets it each time: the sender's thread looks whether batches
// are left, and only then which request is next. What the user's thread sends and commits in between ends before it is
// sent: EndTxn goes out, and the batch after it.

package org.apache.kafka.clients.producer.internals;

import java.lang.reflect.Field;
import org.apache.kafka.clients.producer.KafkaProducer;

public class SlowAccumulator extends IncompleteBatches {
    static final long LONGER_MS = 10;

    @Override
    public boolean isEmpty() {
        boolean empty = super.isEmpty();
        if (empty && Thread.currentThread().getName().startsWith("kafka-producer-network-thread")) {
            try {
                Thread.sleep(LONGER_MS);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }
        return empty;
    }

    public static void into(KafkaProducer<?, ?> producer) throws ReflectiveOperationException {
        Field accumulator = KafkaProducer.class.getDeclaredField("accumulator");
        accumulator.setAccessible(true);
        Field incomplete = RecordAccumulator.class.getDeclaredField("incomplete");
        incomplete.setAccessible(true);
        incomplete.set(accumulator.get(producer), new SlowAccumulator());
    }
}
