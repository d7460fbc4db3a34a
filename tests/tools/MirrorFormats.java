import java.lang.reflect.Method;
import java.time.Duration;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.Checkpoint;
import org.apache.kafka.connect.mirror.Heartbeat;
import org.apache.kafka.connect.mirror.OffsetSync;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** The bytes of MirrorMaker 2's records, and the offsets that its client translates: a bootstrap, an alias, a group. */
public class MirrorFormats {
    public static void main(String[] arguments) throws Exception {
        show("heartbeat", new Heartbeat("east", "wést", 1234567890123L));
        show("checkpoint", new Checkpoint("a group", new TopicPartition("east.t-1", 7), 5000000000L, 42, "näh"));
        show("offsetsync", new OffsetSync(new TopicPartition("t-1", 7), 5000000000L, 42));
        Map<String, Object> client = Map.of("bootstrap.servers", arguments[0]);
        Map<TopicPartition, OffsetAndMetadata> found =
            RemoteClusterUtils.translateOffsets(client, arguments[1], arguments[2], Duration.ofSeconds(60));
        Map<String, Long> sorted = new TreeMap<>();
        found.forEach((place, offset) -> sorted.put(place.toString(), offset.offset()));
        System.out.println("translated=" + sorted);
        System.out.println("upstream=" + RemoteClusterUtils.upstreamClusters(client));
    }

    private static void show(String name, Object record) throws Exception {
        System.out.println(name + "=" + hex(record, "recordKey") + " " + hex(record, "recordValue"));
    }

    private static String hex(Object record, String method) throws Exception {
        Method found = record.getClass().getDeclaredMethod(method);
        found.setAccessible(true);
        return HexFormat.of().formatHex((byte[]) found.invoke(record));
    }
}
