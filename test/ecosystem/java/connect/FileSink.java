import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.file.FileStreamSinkConnector;
import org.apache.kafka.connect.file.FileStreamSinkTask;

/** Kafka's file sink under another version: the connector of 4.3 asks a class for its version that 4.4 has moved. */
public final class FileSink extends FileStreamSinkConnector {
    @Override
    public String version() {
        return "4.3.1";
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Copy.class;
    }

    /** The task of the file sink. */
    public static final class Copy extends FileStreamSinkTask {
        @Override
        public String version() {
            return "4.3.1";
        }
    }
}
