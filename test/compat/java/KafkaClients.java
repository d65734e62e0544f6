import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicReference;

/** The scenarios with Apache Kafka's Java client. Its producer is idempotent unless acks say otherwise. */
public final class KafkaClients {
    public static void main(String[] args) {
        Scenarios scenarios = new Scenarios();
        KafkaClients clients = new KafkaClients();
        scenarios.run("create", clients::create);
        for (String codec : Scenarios.CODECS) {
            scenarios.run("produce-" + codec, () -> clients.sent.put(codec, produce(codec, codec, "all", 30, 3)));
        }
        scenarios.run("acks", clients::acks);
        scenarios.run("consume-start", clients::consumeStart);
        scenarios.run("consume-end", clients::consumeEnd);
        scenarios.run("rebalance", clients::rebalance);
        scenarios.run("resume", clients::resume);
        scenarios.run("error-unknown-topic", clients::unknownTopic);
        scenarios.run("error-too-large", clients::tooLarge);
        scenarios.run("error-out-of-range", clients::outOfRange);
        new GroupsAndTransactions().run(scenarios);
        System.exit(0);
    }

    private final Map<String, List<Sent>> sent = new HashMap<>();

    /** A record and the offset it was acknowledged with, -1 for acks=0. */
    private record Sent(ProducerRecord<byte[], byte[]> record, long offset) { }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", Scenarios.BOOTSTRAP));
    }

    private void create() throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (String codec : Scenarios.CODECS) {
            topics.add(new NewTopic(Scenarios.topic(codec), 3, (short) 1));
        }
        topics.add(new NewTopic(Scenarios.topic("acks"), 3, (short) 1));
        topics.add(new NewTopic(Scenarios.topic("group"), 3, (short) 1));
        topics.add(new NewTopic(Scenarios.topic("resume"), 1, (short) 1));
        topics.add(new NewTopic(Scenarios.topic("small"), 1, (short) 1).configs(Map.of("max.message.bytes", "1024")));
        try (Admin admin = admin()) {
            var result = admin.createTopics(topics);
            result.all().get();
            int told = result.numPartitions(Scenarios.topic("none")).get();
            Scenarios.check(told == 3, "CreateTopics answered %d partitions, want 3", told);
            // Kafka answers before its brokers know the topic, so the first question may come too early.
            Scenarios.until("the topic is known", () -> partitions(admin) >= 0);
            int partitions = partitions(admin);
            Scenarios.check(partitions == 3, "%d partitions, want 3", partitions);
        }
    }

    /** The number of partitions that DescribeTopics tells of the topic "none", -1 when it is unknown. */
    private static int partitions(Admin admin) {
        try {
            var described = admin.describeTopics(List.of(Scenarios.topic("none"))).allTopicNames().get();
            return described.get(Scenarios.topic("none")).partitions().size();
        } catch (ExecutionException e) {
            Scenarios.check(e.getCause() instanceof UnknownTopicOrPartitionException, "describe: %s", e.getCause());
            return -1;
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, String tag, int i, int partitions) {
        byte[] value = i % 10 == 7 ? null : bytes(tag + ":" + i + ":" + "abcdefgh".repeat(40));
        var record = new ProducerRecord<>(Scenarios.topic(topic), i % partitions, bytes(tag + "-" + i), value);
        record.headers().add("tag", bytes(tag)).add("bin", new byte[] {0, -1, -128, (byte) i})
            .add("twice", bytes("a")).add("twice", bytes("b")).add("null", null);
        return record;
    }

    private static KafkaProducer<byte[], byte[]> producer(String codec, String acks) {
        return new KafkaProducer<>(Map.of("bootstrap.servers", Scenarios.BOOTSTRAP, "compression.type", codec,
            "acks", acks, "linger.ms", "5", "delivery.timeout.ms", "20000", "request.timeout.ms", "10000"),
            new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Sends n records in turn to the partitions; each must be acknowledged in its partition. */
    private static List<Sent> produce(String topic, String tag, String acks, int n, int partitions) throws Exception {
        String codec = Arrays.asList(Scenarios.CODECS).contains(tag) ? tag : "none";
        List<Sent> sent = new ArrayList<>();
        try (var producer = producer(codec, acks)) {
            List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
            List<Future<RecordMetadata>> answers = new ArrayList<>();
            for (int i = 0; i < n; i++) {
                records.add(record(topic, tag, i, partitions));
                answers.add(producer.send(records.get(i)));
            }
            producer.flush();
            for (int i = 0; i < n; i++) {
                RecordMetadata answer = answers.get(i).get();
                Scenarios.check(answer.partition() == i % partitions, "record %d in partition %d", i, answer.partition());
                sent.add(new Sent(records.get(i), answer.hasOffset() ? answer.offset() : -1));
            }
        }
        return sent;
    }

    private void acks() throws Exception {
        List<Sent> all = new ArrayList<>(produce("acks", "one", "1", 9, 3));
        all.addAll(produce("acks", "all", "all", 9, 3));
        for (Sent s : produce("acks", "zero", "0", 9, 3)) {
            Scenarios.check(s.offset == -1, "acks=0 was answered with offset %d", s.offset);
            all.add(s);
        }
        readBack("acks", all);
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String... config) {
        Map<String, Object> properties = new HashMap<>(Map.of("bootstrap.servers", Scenarios.BOOTSTRAP,
            "enable.auto.commit", "false", "auto.offset.reset", "earliest", "heartbeat.interval.ms", "200",
            "allow.auto.create.topics", "false"));
        for (int i = 0; i < config.length; i += 2) {
            properties.put(config[i], config[i + 1]);
        }
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static List<TopicPartition> partitions(String topic, int n) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            partitions.add(new TopicPartition(Scenarios.topic(topic), i));
        }
        return partitions;
    }

    private static List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, int n) {
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        long end = System.nanoTime() + Duration.ofSeconds(20).toNanos();
        while (got.size() < n) {
            Scenarios.check(System.nanoTime() < end, "received %d of %d records", got.size(), n);
            consumer.poll(Duration.ofMillis(200)).forEach(got::add);
        }
        return got;
    }

    /** All the topic has, from its start: the sent records in each partition, in order, at offsets 0, 1, 2, … */
    private static void readBack(String topic, List<Sent> want) {
        try (var consumer = consumer()) {
            consumer.assign(partitions(topic, 3));
            consumer.seekToBeginning(consumer.assignment());
            var got = read(consumer, want.size());
            for (int partition = 0; partition < 3; partition++) {
                int p = partition;
                same(got.stream().filter(r -> r.partition() == p).toList(),
                    want.stream().filter(s -> s.record.partition() == p).toList(), 0);
            }
        }
    }

    private static void same(List<ConsumerRecord<byte[], byte[]>> got, List<Sent> want, long firstOffset) {
        Scenarios.check(got.size() == want.size(), "%d records, want %d", got.size(), want.size());
        for (int i = 0; i < want.size(); i++) {
            long offset = firstOffset + i;
            Sent sent = want.get(i);
            Scenarios.check(got.get(i).offset() == offset && (sent.offset == offset || sent.offset == -1),
                "record %d: offset %d, acknowledged %d, want %d", i, got.get(i).offset(), sent.offset, offset);
            same(got.get(i), sent.record);
        }
    }

    private static void same(ConsumerRecord<byte[], byte[]> got, ProducerRecord<byte[], byte[]> want) {
        Scenarios.check(Arrays.equals(got.key(), want.key()), "offset %d: key differs", got.offset());
        Scenarios.check(Arrays.equals(got.value(), want.value()), "offset %d: value differs", got.offset());
        Header[] headers = got.headers().toArray();
        Header[] wanted = want.headers().toArray();
        Scenarios.check(headers.length == wanted.length, "offset %d: %d headers", got.offset(), headers.length);
        for (int i = 0; i < wanted.length; i++) {
            Scenarios.check(headers[i].key().equals(wanted[i].key()) && Arrays.equals(headers[i].value(), wanted[i].value()),
                "offset %d: header %d is %s", got.offset(), i, headers[i]);
        }
    }

    private void consumeStart() {
        Scenarios.check(sent.size() == Scenarios.CODECS.length, "produced only %s", sent.keySet());
        sent.forEach(KafkaClients::readBack);
    }

    private void consumeEnd() throws Exception {
        try (var consumer = consumer("auto.offset.reset", "latest")) {
            consumer.assign(partitions("none", 3));
            for (TopicPartition partition : consumer.assignment()) {
                long position = consumer.position(partition);
                Scenarios.check(position == 10, "%s: the end is %d, want 10", partition, position);
            }
            List<Sent> late = produce("none", "late", "all", 3, 3);
            for (var got : read(consumer, 3)) {
                same(List.of(got), List.of(late.get(got.partition())), 10);
            }
        }
    }

    /** A member of a group that polls on a thread of its own until it is closed. */
    private static final class Member implements AutoCloseable {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final AtomicReference<Set<Integer>> assigned = new AtomicReference<>(Set.of());
        private final Thread thread;

        Member(String group, String topic) {
            consumer = consumer("group.id", Scenarios.topic(group));
            consumer.subscribe(List.of(Scenarios.topic(topic)), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> lost) {
                    Set<Integer> left = new TreeSet<>(assigned.get());
                    lost.forEach(partition -> left.remove(partition.partition()));
                    assigned.set(left);
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> added) {
                    Set<Integer> all = new TreeSet<>(assigned.get());
                    added.forEach(partition -> all.add(partition.partition()));
                    assigned.set(all);
                }
            });
            thread = new Thread(this::poll, "member");
            thread.setDaemon(true);
            thread.start();
        }

        private void poll() {
            try (consumer) {
                while (true) {
                    consumer.poll(Duration.ofMillis(100));
                }
            } catch (org.apache.kafka.common.errors.WakeupException e) {
                // close asked for it
            }
        }

        Set<Integer> assigned() {
            return assigned.get();
        }

        @Override
        public void close() throws InterruptedException {
            consumer.wakeup();
            thread.join(10_000);
            Scenarios.check(!thread.isAlive(), "a member did not close within 10 s");
        }
    }

    private void rebalance() throws Exception {
        Set<Integer> all = Set.of(0, 1, 2);
        try (Member first = new Member("group", "group")) {
            Scenarios.until("the only member has all partitions", () -> first.assigned().equals(all));
            try (Member second = new Member("group", "group")) {
                Scenarios.until("two members share the partitions", () -> {
                    Set<Integer> both = new TreeSet<>(first.assigned());
                    both.addAll(second.assigned());
                    return !first.assigned().isEmpty() && !second.assigned().isEmpty() && both.equals(all)
                        && first.assigned().size() + second.assigned().size() == 3;
                });
            }
            Scenarios.until("the member that stays has all partitions again", () -> first.assigned().equals(all));
        }
    }

    private void resume() throws Exception {
        List<Sent> want = produce("resume", "resume", "all", 20, 1);
        TopicPartition partition = partitions("resume", 1).get(0);
        String[] group = {"group.id", Scenarios.topic("resume"), "max.poll.records", "4"};
        try (var first = consumer(group)) {
            first.subscribe(List.of(partition.topic()));
            same(read(first, 8), want.subList(0, 8), 0);
            first.commitSync(Map.of(partition, new OffsetAndMetadata(8, "note")));
        }
        try (var second = consumer(group)) {
            second.subscribe(List.of(partition.topic()));
            same(read(second, 12), want.subList(8, 20), 8);
            OffsetAndMetadata committed = second.committed(Set.of(partition)).get(partition);
            Scenarios.check(committed.offset() == 8 && committed.metadata().equals("note"), "committed %s", committed);
        }
    }

    private interface Call {
        void run() throws Exception;
    }

    /** The call must throw this, as such or as the cause. */
    private static void fails(Class<? extends Exception> wanted, Call call) {
        try {
            call.run();
        } catch (Exception e) {
            Throwable got = e instanceof ExecutionException ? e.getCause() : e;
            Scenarios.check(wanted.isInstance(got), "want %s, got %s", wanted.getSimpleName(), got);
            return;
        }
        throw new AssertionError("no error, want " + wanted.getSimpleName());
    }

    private void unknownTopic() {
        try (Admin admin = admin()) {
            fails(UnknownTopicOrPartitionException.class,
                () -> admin.describeTopics(List.of(Scenarios.topic("nowhere"))).allTopicNames().get());
            fails(UnknownTopicOrPartitionException.class,
                () -> admin.deleteTopics(List.of(Scenarios.topic("nowhere"))).all().get());
        }
    }

    private void tooLarge() throws Exception {
        try (var producer = producer("none", "all")) {
            byte[] big = new byte[4000];
            new java.util.Random(1).nextBytes(big);
            fails(RecordTooLargeException.class,
                () -> producer.send(new ProducerRecord<>(Scenarios.topic("small"), big)).get());
            RecordMetadata fits = producer.send(new ProducerRecord<>(Scenarios.topic("small"), bytes("fits"))).get();
            Scenarios.check(fits.offset() == 0, "what fits is at offset %d, want 0", fits.offset());
        }
    }

    private void outOfRange() {
        try (var consumer = consumer("auto.offset.reset", "none")) {
            TopicPartition partition = partitions("none", 1).get(0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, 1_000_000);
            fails(OffsetOutOfRangeException.class, () -> read(consumer, 1));
        }
    }
}
