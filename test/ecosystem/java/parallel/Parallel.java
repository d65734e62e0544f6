import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

/**
 * Confluent's Parallel Consumer in every ordering and commit mode, what it keeps in the metadata of its commits, and how much
 * faster than a plain consumer it is on one partition. SIZE records a case, SPEED records for the plain consumer.
 */
public final class Parallel {
    private static final int SIZE = Integer.parseInt(System.getenv().getOrDefault("SIZE", "400"));
    private static final int SPEED = Integer.parseInt(System.getenv().getOrDefault("SPEED", "1500"));
    private static final int PARTITIONS = 4;
    private static final int KEYS = 20;
    private static final int THREADS = 10;

    /** Runs the cases that are named, or all. */
    public static void main(String[] args) {
        Scenarios scenarios = new Scenarios();
        Set<String> wanted = Set.of(args);
        for (ProcessingOrder order : ProcessingOrder.values()) {
            for (CommitMode mode : CommitMode.values()) {
                String name = (order + "-" + mode).toLowerCase().replace('_', '-');
                if (wanted.isEmpty() || wanted.contains(name)) {
                    scenarios.run(name, () -> new Parallel().all(Scenarios.topic(name), order, mode));
                }
            }
        }
        if (wanted.isEmpty() || wanted.contains("metadata")) {
            scenarios.run("metadata", () -> new Parallel().metadata(Scenarios.topic("metadata")));
        }
        if (wanted.isEmpty() || wanted.contains("speed")) {
            scenarios.run("speed", () -> new Parallel().speed(Scenarios.topic("speed")));
        }
        System.exit(0);
    }

    private static Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", Scenarios.BOOTSTRAP));
    }

    private static void create(String topic, int partitions) throws Exception {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
    }

    private static KafkaProducer<String, String> producer(String... transactionalId) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", Scenarios.BOOTSTRAP, "acks", "all"));
        if (transactionalId.length > 0) {
            config.put("transactional.id", transactionalId[0]);
        }
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private static void send(String topic, int first, int n) {
        try (var producer = producer()) {
            IntStream.range(first, first + n).forEach(i -> producer.send(new ProducerRecord<>(topic, "k" + i % KEYS, "v" + i)));
        }
    }

    private static KafkaConsumer<String, String> consumer(String group, String isolation) {
        return new KafkaConsumer<>(Map.of("bootstrap.servers", Scenarios.BOOTSTRAP, "group.id", group, "enable.auto.commit", "false",
            "auto.offset.reset", "earliest", "isolation.level", isolation, "heartbeat.interval.ms", "500"),
            new StringDeserializer(), new StringDeserializer());
    }

    private static ParallelStreamProcessor<String, String> parallel(String topic, ProcessingOrder order, CommitMode mode) {
        var options = ParallelConsumerOptions.<String, String>builder().ordering(order).commitMode(mode).maxConcurrency(THREADS)
            .commitInterval(Duration.ofMillis(200)).consumer(consumer(topic, "read_committed"));
        if (mode == CommitMode.PERIODIC_TRANSACTIONAL_PRODUCER) {
            options.producer(producer(topic + "-id"));
        }
        var parallel = ParallelStreamProcessor.createEosStreamProcessor(options.build());
        parallel.subscribe(List.of(topic));
        return parallel;
    }

    private final Map<String, Integer> seen = new ConcurrentHashMap<>();
    private final Map<String, Long> last = new ConcurrentHashMap<>();
    private final Set<String> disorder = ConcurrentHashMap.newKeySet();
    private final AtomicInteger running = new AtomicInteger();
    private final AtomicInteger most = new AtomicInteger();

    /** One record's work: what this ordering promises is checked while it runs. */
    private void work(ConsumerRecord<String, String> record, ProcessingOrder order) {
        most.accumulateAndGet(running.incrementAndGet(), Math::max);
        String line = switch (order) {
            case UNORDERED -> null;
            case PARTITION -> "" + record.partition();
            case KEY -> record.key();
        };
        if (line != null) {
            Long before = last.put(line, record.offset());
            if (before != null && before >= record.offset()) {
                disorder.add(line + " " + before + " before " + record.offset());
            }
        }
        sleep(2);
        if (line != null && last.get(line) != record.offset()) {
            disorder.add(line + " overlaps at " + record.offset());
        }
        seen.merge(record.value(), 1, Integer::sum);
        running.decrementAndGet();
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Each record once, in the order promised, all committed; a second instance gets only what came since. */
    private void all(String topic, ProcessingOrder order, CommitMode mode) throws Exception {
        create(topic, PARTITIONS);
        String output = topic + "-out";
        create(output, PARTITIONS);
        int n = 0;
        for (int part : new int[] {SIZE, SIZE / 10}) {
            send(topic, n, part);
            n += part;
            int wanted = n;
            var parallel = parallel(topic, order, mode);
            if (mode == CommitMode.PERIODIC_TRANSACTIONAL_PRODUCER) {
                parallel.pollAndProduce(context -> {
                    work(context.getSingleConsumerRecord(), order);
                    return new ProducerRecord<>(output, context.key(), context.value());
                });
            } else {
                parallel.poll(context -> work(context.getSingleConsumerRecord(), order));
            }
            try {
                Scenarios.until(n + " records are worked on", () -> seen.size() >= wanted);
            } finally {
                parallel.closeDrainFirst();
            }
            Scenarios.check(seen.size() == n && seen.values().stream().allMatch(times -> times == 1), "%d of %d, more than once: %s",
                seen.size(), n, seen.entrySet().stream().filter(e -> e.getValue() > 1).toList());
            Scenarios.check(disorder.isEmpty(), "out of order: %s", disorder);
            Scenarios.check(committed(topic) == n && ends(topic) == n, "%d committed, want %d", committed(topic), n);
            if (mode == CommitMode.PERIODIC_TRANSACTIONAL_PRODUCER) {
                checkOutput(output, n);
            }
        }
        int least = order == ProcessingOrder.PARTITION ? 2 : 5;
        Scenarios.check(most.get() >= least && most.get() <= THREADS, "%d at once, want %d to %d", most.get(), least, THREADS);
    }

    private static long committed(String group) throws Exception {
        try (Admin admin = admin()) {
            return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().values().stream()
                .mapToLong(OffsetAndMetadata::offset).sum();
        }
    }

    private static long ends(String topic) throws Exception {
        try (Admin admin = admin()) {
            Map<TopicPartition, OffsetSpec> latest = new HashMap<>();
            IntStream.range(0, PARTITIONS).forEach(p -> latest.put(new TopicPartition(topic, p), OffsetSpec.latest()));
            return admin.listOffsets(latest).all().get().values().stream().mapToLong(info -> info.offset()).sum();
        }
    }

    private static void checkOutput(String topic, int n) {
        try (var consumer = consumer(topic, "read_committed")) {
            var partitions = IntStream.range(0, PARTITIONS).mapToObj(p -> new TopicPartition(topic, p)).toList();
            consumer.assign(partitions);
            var ends = consumer.endOffsets(partitions);
            List<String> got = new ArrayList<>();
            long limit = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            while (!partitions.stream().allMatch(p -> consumer.position(p) >= ends.get(p))) {
                Scenarios.check(System.nanoTime() < limit, "the end of the output is not reached");
                consumer.poll(Duration.ofMillis(100)).forEach(record -> got.add(record.value()));
            }
            Scenarios.check(got.size() == n && new HashSet<>(got).size() == n, "the output has %d records, %d different, want %d",
                got.size(), new HashSet<>(got).size(), n);
        }
    }

    /** What is done behind a record that is not done is kept in the metadata of the commit, and not done again. */
    private void metadata(String topic) throws Exception {
        create(topic, 1);
        send(topic, 0, SIZE);
        CountDownLatch never = new CountDownLatch(1);
        var first = parallel(topic, ProcessingOrder.UNORDERED, CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS);
        first.poll(context -> {
            if (context.offset() == 5) {
                try {
                    never.await();
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }
            work(context.getSingleConsumerRecord(), ProcessingOrder.UNORDERED);
        });
        Scenarios.until("all but one are done", () -> seen.size() == SIZE - 1);
        OffsetAndMetadata[] at = {null};
        String[] before = {""};
        Scenarios.until("the commit tells what is done behind the gap", () -> {
            try (Admin admin = admin()) {
                at[0] = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().get(new TopicPartition(topic, 0));
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
            boolean settled = at[0] != null && at[0].offset() == 5 && !at[0].metadata().isEmpty() && at[0].metadata().equals(before[0]);
            before[0] = at[0] == null ? "" : at[0].metadata();
            sleep(settled ? 0 : 300);
            return settled;
        });
        first.close(Duration.ofSeconds(1), io.confluent.parallelconsumer.internal.DrainingCloseable.DrainingMode.DONT_DRAIN);
        Set<Long> again = ConcurrentHashMap.newKeySet();
        var second = parallel(topic, ProcessingOrder.UNORDERED, CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS);
        second.poll(context -> again.add(context.offset()));
        send(topic, SIZE, 1);
        Scenarios.until("the new record is done", () -> again.contains((long) SIZE) && again.contains(5L));
        second.closeDrainFirst();
        Scenarios.check(again.equals(Set.of(5L, (long) SIZE)), "done again: %s", again);
        Scenarios.check(committed(topic) == SIZE + 1, "%d committed", committed(topic));
    }

    /** One partition, 10 threads, 3 ms of work a record: at least 8 times a plain consumer. A busy machine gets three tries. */
    private void speed(String topic) throws Exception {
        create(topic, 1);
        double best = 0;
        send(topic, 0, 4 * SPEED);
        for (int attempt = 0; attempt < 3 && best < 8; attempt++) {
            double plain = plain(topic, topic + "-plain-" + attempt);
            double parallel = rate(topic, topic + "-parallel-" + attempt);
            System.out.printf("SPEED plain %.0f/s, parallel %.0f/s, %.1f times%n", plain, parallel, parallel / plain);
            best = Math.max(best, parallel / plain);
        }
        Scenarios.check(best >= 8, "%.1f times as fast as a plain consumer, want 8", best);
    }

    private static double plain(String topic, String group) {
        try (var consumer = consumer(group, "read_uncommitted")) {
            consumer.subscribe(List.of(topic));
            int n = 0;
            long began = 0;
            while (n < SPEED) {
                for (var ignored : consumer.poll(Duration.ofMillis(500))) {
                    if (n == 0) {
                        began = System.nanoTime(); // joining the group is not the work
                    }
                    sleep(3);
                    n++;
                }
                consumer.commitAsync();
            }
            return n / ((System.nanoTime() - began) / 1e9);
        }
    }

    private static double rate(String topic, String group) throws Exception {
        int n = 4 * SPEED;
        CountDownLatch left = new CountDownLatch(n);
        long[] began = {0};
        var options = ParallelConsumerOptions.<String, String>builder().ordering(ProcessingOrder.UNORDERED).maxConcurrency(THREADS)
            .commitMode(CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS).consumer(consumer(group, "read_uncommitted")).build();
        var parallel = ParallelStreamProcessor.createEosStreamProcessor(options);
        parallel.subscribe(List.of(topic));
        parallel.poll(context -> {
            synchronized (began) {
                if (began[0] == 0) {
                    began[0] = System.nanoTime();
                }
            }
            sleep(3);
            left.countDown();
        });
        try {
            Scenarios.check(left.await(30, java.util.concurrent.TimeUnit.SECONDS), "%d of %d are not done", left.getCount(), n);
            return n / ((System.nanoTime() - began[0]) / 1e9);
        } finally {
            parallel.closeDrainFirst();
        }
    }
}
