import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.util.backoff.FixedBackOff;

import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;

/**
 * Copies records with Spring's listener container and its transactions until it is told to end: bootstrap, group, input,
 * output. The container sends the offsets to the transaction. Each record whose value ends in "3" fails the first time, after
 * it was sent: that transaction is rolled back.
 */
public final class SpringCopy {
    public static void main(String[] args) throws Exception {
        var producers = new DefaultKafkaProducerFactory<String, String>(Map.of("bootstrap.servers", args[0], "acks", "all"),
            new StringSerializer(), new StringSerializer());
        producers.setTransactionIdPrefix(args[1] + "-");
        var template = new KafkaTemplate<>(producers);
        Set<String> failed = ConcurrentHashMap.newKeySet();

        var properties = new ContainerProperties(args[2]);
        properties.setGroupId(args[1]);
        properties.setEosMode(ContainerProperties.EOSMode.V2);
        properties.setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
        properties.setAuthExceptionRetryInterval(Duration.ofSeconds(1));
        properties.setMessageListener((MessageListener<String, String>) (ConsumerRecord<String, String> record) -> {
            template.send(args[3], record.partition(), record.key(), record.value());
            if (record.value().endsWith("3") && failed.add(record.value())) {
                throw new IllegalStateException("fails once: " + record.value());
            }
        });
        var container = new ConcurrentMessageListenerContainer<>(new DefaultKafkaConsumerFactory<>(
            Map.of("bootstrap.servers", args[0], "auto.offset.reset", "earliest", "isolation.level", "read_committed",
                "heartbeat.interval.ms", "500", "session.timeout.ms", "10000", "max.poll.records", "20"),
            new StringDeserializer(), new StringDeserializer()), properties);
        container.setConcurrency(2);
        container.setAfterRollbackProcessor(new DefaultAfterRollbackProcessor<>(new FixedBackOff(0, FixedBackOff.UNLIMITED_ATTEMPTS)));
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            container.stop();
            producers.destroy();
            System.out.println("FAILED ONCE " + failed.size());
            ended.countDown();
        }));
        container.start();
        ended.await();
    }
}
