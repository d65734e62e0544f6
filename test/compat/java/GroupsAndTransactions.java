import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.UnreleasedInstanceIdException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.stream.IntStream;

/** Transactions, and groups of the consumer protocol (KIP-848), with Apache Kafka's Java client. */
final class GroupsAndTransactions {
    private static final Set<Integer> ALL = Set.of(0, 1, 2);

    void run(Scenarios scenarios) {
        scenarios.run("transactions", this::transactions);
        scenarios.run("consumer-protocol", this::consumerProtocol);
        scenarios.run("consumer-regex", this::consumerRegex);
        scenarios.run("consumer-static", this::consumerStatic);
    }

    private static void create(String... topics) throws Exception {
        try (Admin admin = admin()) {
            for (String topic : topics) {
                admin.createTopics(List.of(new NewTopic(Scenarios.topic(topic), 3, (short) 1))).all().get();
            }
        }
    }

    private static Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", Scenarios.BOOTSTRAP));
    }

    private static KafkaProducer<String, String> producer(String... config) {
        return new KafkaProducer<>(properties(Map.of("acks", "all"), config), new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(String... config) {
        return new KafkaConsumer<>(properties(Map.of("enable.auto.commit", "false", "auto.offset.reset", "earliest"), config),
            new StringDeserializer(), new StringDeserializer());
    }

    private static Map<String, Object> properties(Map<String, Object> defaults, String... config) {
        Map<String, Object> properties = new HashMap<>(defaults);
        properties.put("bootstrap.servers", Scenarios.BOOTSTRAP);
        for (int i = 0; i < config.length; i += 2) {
            properties.put(config[i], config[i + 1]);
        }
        return properties;
    }

    private static void send(String topic, int n) {
        try (var producer = producer()) {
            IntStream.range(0, n).forEach(i ->
                producer.send(new ProducerRecord<>(Scenarios.topic(topic), i % 3, "k" + i, "v" + i)));
        }
    }

    private static List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, int n) {
        List<ConsumerRecord<String, String>> got = new ArrayList<>();
        long end = System.nanoTime() + Duration.ofSeconds(20).toNanos();
        while (got.size() < n) {
            Scenarios.check(System.nanoTime() < end, "received %d of %d records", got.size(), n);
            consumer.poll(Duration.ofMillis(200)).forEach(got::add);
        }
        return got;
    }

    /** All values that a reader of this isolation level gets up to what is the end for it, sorted. */
    private static List<String> contents(String topic, String isolation) {
        try (var consumer = consumer("isolation.level", isolation)) {
            List<TopicPartition> partitions = IntStream.range(0, 3).mapToObj(i -> new TopicPartition(Scenarios.topic(topic), i)).toList();
            consumer.assign(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            List<String> got = new ArrayList<>();
            long limit = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            while (!partitions.stream().allMatch(p -> consumer.position(p) >= ends.get(p))) {
                Scenarios.check(System.nanoTime() < limit, "not at the ends %s after %d records", ends, got.size());
                consumer.poll(Duration.ofMillis(100)).forEach(record -> got.add(record.value()));
            }
            got.sort(null);
            return got;
        }
    }

    private static List<String> values(String prefix, int n) {
        return IntStream.range(0, n).mapToObj(i -> prefix + i).sorted().toList();
    }

    /** Copies with sendOffsetsToTransaction; the first try is aborted, and a second producer fences the first. */
    private void transactions() throws Exception {
        create("txn-in", "txn-out");
        int n = 60;
        send("txn-in", n);
        String group = Scenarios.topic("txn");
        String id = Scenarios.topic("txn-id");
        var aborting = producer("transactional.id", id);
        aborting.initTransactions();
        try (aborting) {
            copy(aborting, group, "classic", 1, "bad-", KafkaProducer::abortTransaction);
            Scenarios.check(committed(group).equals(Map.of()), "an abort committed offsets: %s", committed(group));
            try (var producer = producer("transactional.id", id)) {
                producer.initTransactions();
                aborting.beginTransaction();
                try {
                    aborting.send(new ProducerRecord<>(Scenarios.topic("txn-out"), "k", "fenced")).get();
                    aborting.commitTransaction();
                    throw new AssertionError("the older producer was not fenced");
                } catch (ProducerFencedException e) {
                    // as it must be
                } catch (java.util.concurrent.ExecutionException e) {
                    // Protocol 2 (KIP-890) tells it with the produce, and some errors are told as their parent class.
                    Scenarios.check(e.getCause() instanceof org.apache.kafka.common.errors.ApiException, "%s", e);
                }
                copy(producer, group, "consumer", n, "good-", KafkaProducer::commitTransaction);
                try (var late = producer("transactional.id", id + "-open")) {
                    late.initTransactions();
                    late.beginTransaction();
                    late.send(new ProducerRecord<>(Scenarios.topic("txn-out"), "k", "open")).get();
                    Scenarios.check(contents("txn-out", "read_committed").equals(values("good-v", n)), "read_committed: %s",
                        contents("txn-out", "read_committed"));
                    var all = contents("txn-out", "read_uncommitted");
                    Scenarios.check(all.contains("open") && all.stream().anyMatch(v -> v.startsWith("bad-")) && !all.contains("fenced"),
                        "read_uncommitted: %s", all);
                    late.abortTransaction();
                }
            }
        }
        long sum = committed(group).values().stream().mapToLong(OffsetAndMetadata::offset).sum();
        Scenarios.check(sum == n, "%s committed, want %d in all", committed(group), n);
    }

    private static Map<TopicPartition, OffsetAndMetadata> committed(String group) throws Exception {
        try (Admin admin = admin()) {
            return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        }
    }

    /** One transaction that copies at least n records of txn-in to txn-out and ends as told. */
    private static void copy(KafkaProducer<String, String> producer, String group, String protocol, int n, String prefix,
            Consumer<KafkaProducer<String, String>> end) {
        try (var consumer = consumer("group.protocol", protocol, "group.id", group, "isolation.level", "read_committed")) {
            consumer.subscribe(List.of(Scenarios.topic("txn-in")));
            var got = read(consumer, n);
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            producer.beginTransaction();
            for (var record : got) {
                producer.send(new ProducerRecord<>(Scenarios.topic("txn-out"), record.partition(), record.key(), prefix + record.value()));
                offsets.merge(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1),
                    (a, b) -> a.offset() > b.offset() ? a : b);
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            end.accept(producer);
        }
    }

    /** A member that polls on a thread of its own until it is closed. */
    private static final class Member implements AutoCloseable {
        private final KafkaConsumer<String, String> consumer;
        private final AtomicReference<Set<TopicPartition>> assigned = new AtomicReference<>(Set.of());
        private final AtomicReference<Exception> failure = new AtomicReference<>();
        private final Thread thread;

        Member(Consumer<KafkaConsumer<String, String>> subscribe, String... config) {
            consumer = consumer(config);
            subscribe.accept(consumer);
            thread = new Thread(this::poll, "member");
            thread.setDaemon(true);
            thread.start();
        }

        /** A member of the group of this name that subscribes to the topic of this name. */
        static Member of(String topic, String... more) {
            List<String> config = new ArrayList<>(List.of("group.protocol", "consumer", "group.id", Scenarios.topic(topic)));
            config.addAll(List.of(more));
            return new Member(c -> c.subscribe(List.of(Scenarios.topic(topic))), config.toArray(String[]::new));
        }

        private void poll() {
            try (consumer) {
                while (true) {
                    var records = consumer.poll(Duration.ofMillis(100));
                    if (!records.isEmpty()) {
                        consumer.commitSync();
                    }
                    assigned.set(consumer.assignment());
                }
            } catch (WakeupException e) {
                // close asked for it
            } catch (Exception e) {
                failure.set(e);
            }
        }

        Set<Integer> assigned() {
            Set<Integer> partitions = new TreeSet<>();
            assigned.get().forEach(partition -> partitions.add(partition.partition()));
            return partitions;
        }

        Set<String> topics() {
            Set<String> topics = new TreeSet<>();
            assigned.get().forEach(partition -> topics.add(partition.topic()));
            return topics;
        }

        @Override
        public void close() throws InterruptedException {
            consumer.wakeup();
            thread.join(10_000);
            Scenarios.check(!thread.isAlive(), "a member did not close within 10 s");
        }
    }

    private static boolean split(Member first, Member second) {
        Set<Integer> both = new TreeSet<>(first.assigned());
        both.addAll(second.assigned());
        return !first.assigned().isEmpty() && !second.assigned().isEmpty() && both.equals(ALL)
            && first.assigned().size() + second.assigned().size() == 3;
    }

    private void consumerProtocol() throws Exception {
        create("next");
        String group = Scenarios.topic("next");
        try (Member first = Member.of("next")) {
            Scenarios.until("the only member has all partitions", () -> first.assigned().equals(ALL));
            try (Member second = Member.of("next")) {
                Scenarios.until("two members share the partitions", () -> split(first, second));
                try (Admin admin = admin()) {
                    var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                    Scenarios.check(described.type() == GroupType.CONSUMER && described.groupState() == GroupState.STABLE
                        && described.members().size() == 2 && described.members().stream().allMatch(member -> member.upgraded().orElse(false))
                        && described.partitionAssignor().equals("uniform"), "described as %s", described);
                }
            }
            Scenarios.until("the member that stays has all partitions again", () -> first.assigned().equals(ALL));
            send("next", 30);
            Scenarios.until("30 records are committed", () -> {
                try {
                    return committed(group).values().stream().mapToLong(OffsetAndMetadata::offset).sum() == 30;
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            });
        }
        try (var resumed = consumer("group.protocol", "consumer", "group.id", group)) {
            resumed.subscribe(List.of(group));
            send("next", 6);
            var got = read(resumed, 6);
            Scenarios.check(got.stream().allMatch(record -> record.offset() >= 10), "read again: %s", got);
        }
    }

    private void consumerRegex() throws Exception {
        create("regex-a", "regex-b", "other");
        Set<String> two = new TreeSet<>(List.of(Scenarios.topic("regex-a"), Scenarios.topic("regex-b")));
        var pattern = new SubscriptionPattern(Scenarios.topic("regex-") + "[a-c]");
        try (Member member = new Member(c -> c.subscribe(pattern), "group.protocol", "consumer", "group.id", Scenarios.topic("regex"))) {
            Scenarios.until("both topics are assigned", () -> member.topics().equals(two));
            create("regex-c");
            two.add(Scenarios.topic("regex-c"));
            Scenarios.until("the new topic is assigned", () -> member.topics().equals(two) && member.assigned().equals(ALL));
        }
        var broken = new SubscriptionPattern("(");
        try (var consumer = consumer("group.protocol", "consumer", "group.id", Scenarios.topic("broken"))) {
            consumer.subscribe(broken);
            read(consumer, 1);
        } catch (org.apache.kafka.common.errors.InvalidRegularExpression e) {
            return;
        }
        throw new AssertionError("a broken expression was accepted");
    }

    /** A static member keeps its partitions over a restart, and nobody takes its name while it is there. */
    private void consumerStatic() throws Exception {
        create("static");
        String[] first = {"group.instance.id", "one"};
        String[] second = {"group.instance.id", "two"};
        Set<Integer> had;
        try (Member two = Member.of("static", second)) {
            try (Member one = Member.of("static", first)) {
                Scenarios.until("two members share the partitions", () -> split(one, two));
                had = one.assigned();
                try (Member thief = Member.of("static", first)) {
                    Scenarios.until("the thief is refused", () -> thief.failure.get() != null);
                    Scenarios.check(thief.failure.get() instanceof UnreleasedInstanceIdException, "refused with %s", thief.failure.get());
                }
            }
            Set<Integer> others = two.assigned();
            try (Member one = Member.of("static", first)) {
                Scenarios.until("it has its partitions again", () -> one.assigned().equals(had));
                Scenarios.check(two.assigned().equals(others), "the other has %s now, had %s", two.assigned(), others);
            }
        }
    }
}
