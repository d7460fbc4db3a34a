import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.transforms.Transformation;

/** Reads a record from JSON, applies a transform of Kafka, and writes it as JSON; a line for each record. */
public class ConnectTransforms {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                apply(JSON.readTree(line), answer);
            } catch (Exception | StackOverflowError error) {
                answer.put("error", error.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    static Map<String, String> settings(JsonNode node) {
        Map<String, String> found = new HashMap<>();
        node.properties().forEach(each -> found.put(each.getKey(), each.getValue().asText()));
        return found;
    }

    static JsonConverter converter(JsonNode settings, boolean isKey) {
        JsonConverter made = new JsonConverter();
        made.configure(settings(settings), isKey);
        return made;
    }

    static SchemaAndValue read(JsonConverter converter, JsonNode text) {
        return converter.toConnectData("t", text.isNull() ? null : text.asText().getBytes(StandardCharsets.UTF_8));
    }

    static String written(JsonConverter converter, Schema schema, Object value) {
        byte[] data = converter.fromConnectData("t", schema, value);
        return data == null ? null : new String(data, StandardCharsets.UTF_8);
    }

    @SuppressWarnings("unchecked")
    static void apply(JsonNode asked, ObjectNode answer) throws Exception {
        JsonConverter from = converter(asked.get("from"), false), to = converter(asked.get("to"), false);
        SchemaAndValue key = read(from, asked.get("key")), value = read(from, asked.get("value"));
        SinkRecord record = new SinkRecord("t", 3, key.schema(), key.value(), value.schema(), value.value(), 7,
            asked.get("timestamp").asLong(), TimestampType.CREATE_TIME);
        String type = asked.get("type").asText();
        if (!type.isEmpty()) {
            var transform = (Transformation<SinkRecord>)
                Class.forName("org.apache.kafka.connect.transforms." + type).getDeclaredConstructor().newInstance();
            transform.configure(settings(asked.get("config")));
            record = transform.apply(record);
        }
        if (record == null) {
            return;
        }
        answer.put("topic", record.topic());
        answer.put("key", written(to, record.keySchema(), record.key()));
        answer.put("value", written(to, record.valueSchema(), record.value()));
        ArrayNode headers = answer.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(written(to, header.schema(), header.value()));
        }
    }
}
