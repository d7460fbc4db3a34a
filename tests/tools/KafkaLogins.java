// Logins of Apache Kafka's own clients, all in one process. Reads lines from stdin:
//
//   open NAME FILE    a producer with the settings of FILE; sends one record to the topic `t`
//   send NAME         sends one more
//   list FILE         Kafka's AdminClient lists topics, as kafka-topics does
//
// and answers each with one line: `ok`, or the name of the exception that the client raised.

import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

public class KafkaLogins {
    static final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();

    static Properties settings(String file) throws Exception {
        Properties settings = new Properties();
        try (FileReader reader = new FileReader(file)) { settings.load(reader); }
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("max.block.ms", "60000");
        settings.put("delivery.timeout.ms", "15000");
        settings.put("request.timeout.ms", "14000");
        settings.put("retry.backoff.ms", "50");
        return settings;
    }

    static void send(String name) throws Exception {
        producers.get(name).send(new ProducerRecord<>("t", "x")).get(90, TimeUnit.SECONDS);
    }

    static void run(String[] words) throws Exception {
        switch (words[0]) {
            case "open":
                producers.put(words[1], new KafkaProducer<>(settings(words[2])));
                send(words[1]);
                break;
            case "send":
                send(words[1]);
                break;
            case "list":
                Properties settings = settings(words[1]);
                settings.put("default.api.timeout.ms", "60000");
                try (Admin admin = Admin.create(settings)) {
                    admin.listTopics().names().get(90, TimeUnit.SECONDS);
                }
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer = "ok";
            try {
                run(line.split(" "));
            } catch (Throwable error) {
                while (error.getCause() != null
                        && !error.getClass().getName().startsWith("org.apache.kafka.common.errors")) {
                    error = error.getCause();
                }
                answer = error.getClass().getSimpleName() + " " + error.getMessage();
            }
            System.out.println(answer.replace('\n', ' '));
            System.out.flush();
        }
        for (KafkaProducer<String, String> each : producers.values()) each.close(java.time.Duration.ZERO);
    }
}
