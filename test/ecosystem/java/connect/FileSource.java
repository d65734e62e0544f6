import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.file.FileStreamSourceConnector;
import org.apache.kafka.connect.file.FileStreamSourceTask;

/** Kafka's file source under another version: the connector of 4.3 asks a class for its version that 4.4 has moved. */
public final class FileSource extends FileStreamSourceConnector {
    @Override
    public String version() {
        return "4.3.1";
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Copy.class;
    }

    /** The task of the file source. */
    public static final class Copy extends FileStreamSourceTask {
        @Override
        public String version() {
            return "4.3.1";
        }
    }
}
