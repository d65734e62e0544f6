import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The scenarios with Kafka's own command-line tools: what a person types, and what the tool prints. */
public final class KafkaTools {
    private static final String TOPICS = "TopicCommand";
    private static final String PRODUCER = "ConsoleProducer";
    private static final String CONSUMER = "consumer.ConsoleConsumer";
    private static final String GROUPS = "consumer.group.ConsumerGroupCommand";

    public static void main(String[] args) {
        Scenarios scenarios = new Scenarios();
        KafkaTools tools = new KafkaTools();
        scenarios.run("create", tools::create);
        for (String codec : Scenarios.CODECS) {
            scenarios.run("produce-" + codec, () -> tools.produce(codec));
        }
        scenarios.run("acks", tools::acks);
        scenarios.run("consume-start", tools::consumeStart);
        scenarios.run("consume-end", tools::consumeEnd);
        scenarios.run("rebalance", tools::rebalance);
        scenarios.run("resume", tools::resume);
        scenarios.run("error-unknown-topic", tools::unknownTopic);
        scenarios.run("error-too-large", tools::tooLarge);
        scenarios.run("error-out-of-range", tools::outOfRange);
        scenarios.run("topics", tools::topics);
        scenarios.run("configs", tools::configs);
        scenarios.run("consumer-groups", tools::consumerGroups);
        scenarios.run("consumer-protocol", tools::consumerProtocol);
        scenarios.run("get-offsets", tools::getOffsets);
        scenarios.run("delete-records", tools::deleteRecords);
        scenarios.run("log-dirs", tools::logDirs);
        scenarios.run("perf-test", tools::perfTest);
        scenarios.run("verifiable", tools::verifiable);
        scenarios.run("api-versions", tools::apiVersions);
        scenarios.run("cluster-id", tools::clusterId);
        System.exit(0);
    }

    private static String[] at(String... arguments) {
        List<String> all = new ArrayList<>(List.of("--bootstrap-server", Scenarios.BOOTSTRAP));
        all.addAll(Arrays.asList(arguments));
        return all.toArray(String[]::new);
    }

    private static void has(Tool tool, String wanted) {
        Scenarios.check(tool.stdout.contains(wanted), "want '%s': %s", wanted, tool);
    }

    private static void createTopic(String name, int partitions, String... more) throws Exception {
        List<String> arguments = new ArrayList<>(List.of("--create", "--topic", Scenarios.topic(name),
            "--partitions", "" + partitions, "--replication-factor", "1"));
        arguments.addAll(Arrays.asList(more));
        has(Tool.ok(TOPICS, at(arguments.toArray(String[]::new))), "Created topic " + Scenarios.topic(name) + ".");
    }

    private void create() throws Exception {
        for (String codec : Scenarios.CODECS) {
            createTopic(codec, 3);
        }
        createTopic("acks", 3);
        createTopic("group", 3);
        createTopic("resume", 1);
        createTopic("small", 1, "--config", "max.message.bytes=1024");
        has(Tool.ok(TOPICS, at("--describe", "--topic", Scenarios.topic("none"))), "PartitionCount: 3");
    }

    /** Records as lines of the console producer: headers, key, value. Every tenth value is null. */
    private static List<String> lines(String tag, int n) {
        List<String> lines = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            String value = i % 10 == 7 ? "NULL" : "v" + i + "-" + "abcdefgh".repeat(40);
            lines.add("tag:" + tag + ",n:" + i + "\t" + tag + "-" + i + "\t" + value);
        }
        return lines;
    }

    private static void produceLines(String topic, List<String> lines, String... more) throws Exception {
        List<String> arguments = new ArrayList<>(List.of("--topic", Scenarios.topic(topic),
            "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true",
            "--reader-property", "null.marker=NULL"));
        arguments.addAll(Arrays.asList(more));
        Tool tool = Tool.okWithInput(PRODUCER, String.join("\n", lines) + "\n", at(arguments.toArray(String[]::new)));
        Scenarios.check(!tool.stderr.contains("ERROR"), "console producer: %s", tool);
    }

    private final Map<String, List<String>> sent = new HashMap<>();

    private void produce(String codec) throws Exception {
        List<String> lines = lines(codec, 30);
        produceLines(codec, lines, "--compression-codec", codec);
        sent.put(codec, lines);
    }

    private void acks() throws Exception {
        List<String> all = new ArrayList<>();
        for (String acks : new String[] {"0", "1", "all"}) {
            List<String> lines = lines("acks" + acks, 10);
            produceLines("acks", lines, "--request-required-acks", acks);
            all.addAll(lines);
        }
        readBack("acks", all);
    }

    private static final String[] PRINT = {"--formatter-property", "print.partition=true",
        "--formatter-property", "print.offset=true", "--formatter-property", "print.headers=true",
        "--formatter-property", "print.key=true", "--formatter-property", "null.literal=NULL"};
    private static final Pattern PRINTED = Pattern.compile("Partition:(\\d+)\tOffset:(\\d+)\t(.*)");

    private static List<String> consume(String topic, int n, String... more) throws Exception {
        List<String> arguments = new ArrayList<>(List.of("--topic", Scenarios.topic(topic),
            "--max-messages", "" + n, "--timeout-ms", "15000"));
        arguments.addAll(Arrays.asList(PRINT));
        arguments.addAll(Arrays.asList(more));
        return Tool.ok(CONSUMER, at(arguments.toArray(String[]::new))).lines();
    }

    /** All records, whatever the partition, and in each partition the offsets 0, 1, 2, … */
    private static void readBack(String topic, List<String> want) throws Exception {
        Map<String, Integer> next = new HashMap<>();
        List<String> got = new ArrayList<>();
        for (String line : consume(topic, want.size(), "--from-beginning")) {
            Matcher match = PRINTED.matcher(line);
            Scenarios.check(match.matches(), "printed: %s", line);
            int offset = Integer.parseInt(match.group(2));
            int wanted = next.merge(match.group(1), 1, Integer::sum) - 1;
            Scenarios.check(offset == wanted, "partition %s: offset %d, want %d", match.group(1), offset, wanted);
            got.add(match.group(3));
        }
        Scenarios.check(new TreeSet<>(got).equals(new TreeSet<>(want)) && got.size() == want.size(),
            "%s: got %s, want %s", topic, got, want);
    }

    private void consumeStart() throws Exception {
        Scenarios.check(sent.size() == Scenarios.CODECS.length, "produced only %s", sent.keySet());
        for (Map.Entry<String, List<String>> entry : sent.entrySet()) {
            readBack(entry.getKey(), entry.getValue());
        }
    }

    private void consumeEnd() throws Exception {
        List<String> arguments = new ArrayList<>(List.of("--topic", Scenarios.topic("none"), "--max-messages", "1"));
        arguments.addAll(Arrays.asList(PRINT));
        try (Tool.Running consumer = Tool.start(CONSUMER, at(arguments.toArray(String[]::new)))) {
            int i = 0;
            while (consumer.process().isAlive()) {
                Scenarios.check(i < 200, "nothing received after %d records", i);
                produceLines("none", List.of("tag:late\tlate" + i++ + "\tvalue"));
                Thread.sleep(50);
            }
            String line = String.join("\n", consumer.lines());
            Matcher match = PRINTED.matcher(line);
            Scenarios.check(match.matches() && match.group(3).matches("tag:late\tlate\\d+\tvalue"), "printed: %s", line);
        }
    }

    private static final Pattern EVENT = Pattern.compile("\"name\":\"(partitions_assigned|partitions_revoked)\"");
    private static final Pattern PARTITION = Pattern.compile("\"partition\":(\\d+)");

    /** What a verifiable consumer has, by the events that it printed. */
    private static TreeSet<Integer> assigned(Tool.Running consumer) {
        TreeSet<Integer> has = new TreeSet<>();
        for (String line : consumer.lines()) {
            Matcher event = EVENT.matcher(line);
            if (!event.find()) {
                continue;
            }
            TreeSet<Integer> named = new TreeSet<>();
            for (Matcher match = PARTITION.matcher(line); match.find(); ) {
                named.add(Integer.parseInt(match.group(1)));
            }
            if (event.group(1).equals("partitions_assigned")) {
                has.addAll(named);
            } else {
                has.removeAll(named);
            }
        }
        return has;
    }

    private void rebalance() throws Exception {
        Path config = Files.createTempFile("member", ".properties");
        config.toFile().deleteOnExit();
        Files.writeString(config, "heartbeat.interval.ms=200\n");
        String[] member = at("--topic", Scenarios.topic("group"), "--group-id", Scenarios.topic("group"),
            "--command-config", config.toString());
        TreeSet<Integer> all = new TreeSet<>(List.of(0, 1, 2));
        try (Tool.Running first = Tool.start("VerifiableConsumer", member)) {
            Scenarios.until("the only member has all partitions", () -> assigned(first).equals(all));
            try (Tool.Running second = Tool.start("VerifiableConsumer", member)) {
                Scenarios.until("two members share the partitions", () -> {
                    TreeSet<Integer> a = assigned(first);
                    TreeSet<Integer> b = assigned(second);
                    TreeSet<Integer> both = new TreeSet<>(a);
                    both.addAll(b);
                    return !a.isEmpty() && !b.isEmpty() && a.size() + b.size() == 3 && both.equals(all);
                });
                Tool members = Tool.ok(GROUPS, at("--describe", "--group", Scenarios.topic("group"), "--members"));
                long rows = members.lines().stream().filter(line -> line.startsWith(Scenarios.topic("group"))).count();
                Scenarios.check(rows == 2, "want two members: %s", members);
            }
            Scenarios.until("the member that stays has all partitions again", () -> assigned(first).equals(all));
        }
    }

    private void resume() throws Exception {
        List<String> lines = lines("resume", 20);
        produceLines("resume", lines);
        String[] member = {"--group", Scenarios.topic("resume"), "--from-beginning"};
        List<String> got = new ArrayList<>(consume("resume", 8, member));
        got.addAll(consume("resume", 12, member));
        for (int i = 0; i < 20; i++) {
            String want = "Partition:0\tOffset:" + i + "\t" + lines.get(i);
            Scenarios.check(got.get(i).equals(want), "record %d: got %s, want %s", i, got.get(i), want);
        }
    }

    private void unknownTopic() throws Exception {
        Tool tool = Tool.run(TOPICS, "", at("--describe", "--topic", Scenarios.topic("nowhere")));
        Scenarios.check(tool.exitCode == 1 && tool.stdout.contains("does not exist as expected"), "describe: %s", tool);
        tool = Tool.run("GetOffsetShell", "", at("--topic", Scenarios.topic("nowhere")));
        Scenarios.check(tool.exitCode == 1, "get-offsets: %s", tool);
    }

    private void tooLarge() throws Exception {
        Tool tool = Tool.run("ProducerPerformance", "", at("--topic", Scenarios.topic("small"), "--num-records", "1",
            "--record-size", "4000", "--throughput", "-1"));
        Scenarios.check((tool.stdout + tool.stderr).contains("RecordTooLargeException"), "perf-test: %s", tool);
        Tool offsets = Tool.ok("GetOffsetShell", at("--topic", Scenarios.topic("small")));
        has(offsets, Scenarios.topic("small") + ":0:0");
    }

    private void outOfRange() throws Exception {
        Tool tool = Tool.run(CONSUMER, "", at("--topic", Scenarios.topic("none"), "--partition", "0",
            "--offset", "1000000", "--max-messages", "1", "--timeout-ms", "10000",
            "--command-property", "auto.offset.reset=none"));
        Scenarios.check((tool.stdout + tool.stderr).contains("OffsetOutOfRangeException"), "console consumer: %s", tool);
    }

    private void topics() throws Exception {
        String topic = Scenarios.topic("topics");
        createTopic("topics", 3, "--config", "retention.ms=3600000");
        has(Tool.ok(TOPICS, at("--list")), topic);
        has(Tool.ok(TOPICS, at("--describe", "--topic", topic)), "retention.ms=3600000");
        Tool again = Tool.run(TOPICS, "", at("--create", "--topic", topic));
        Scenarios.check(again.exitCode == 1 && again.stdout.contains("already exists"), "create again: %s", again);
        Tool.ok(TOPICS, at("--create", "--topic", topic, "--if-not-exists"));
        Tool.ok(TOPICS, at("--alter", "--topic", topic, "--partitions", "5"));
        has(Tool.ok(TOPICS, at("--describe", "--topic", topic)), "PartitionCount: 5");
        Tool fewer = Tool.run(TOPICS, "", at("--alter", "--topic", topic, "--partitions", "2"));
        Scenarios.check(fewer.exitCode == 1 && (fewer.stdout + fewer.stderr).contains("InvalidPartitionsException"),
            "alter to fewer partitions: %s", fewer);
        Tool.ok(TOPICS, at("--delete", "--topic", topic));
        Scenarios.until("the deleted topic is gone", () -> {
            try {
                return !Tool.ok(TOPICS, at("--list")).lines().contains(topic);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
    }

    private void configs() throws Exception {
        String[] topic = {"--entity-type", "topics", "--entity-name", Scenarios.topic("gzip")};
        Tool.ok("ConfigCommand", at(join(topic, "--alter", "--add-config", "retention.ms=123456,segment.bytes=1048576")));
        Tool described = Tool.ok("ConfigCommand", at(join(topic, "--describe")));
        has(described, "retention.ms=123456");
        has(described, "segment.bytes=1048576");
        Tool.ok("ConfigCommand", at(join(topic, "--alter", "--delete-config", "retention.ms")));
        described = Tool.ok("ConfigCommand", at(join(topic, "--describe")));
        Scenarios.check(!described.stdout.contains("retention.ms=123456"), "still set: %s", described);
        has(Tool.ok("ConfigCommand", at(join(topic, "--describe", "--all"))), "cleanup.policy=delete");
        Tool bad = Tool.run("ConfigCommand", "", at(join(topic, "--alter", "--add-config", "retention.ms=soon")));
        Scenarios.check(bad.exitCode == 1 && (bad.stdout + bad.stderr).contains("InvalidConfigurationException"),
            "bad value: %s", bad);
    }

    private static String[] join(String[] first, String... second) {
        List<String> all = new ArrayList<>(Arrays.asList(first));
        all.addAll(Arrays.asList(second));
        return all.toArray(String[]::new);
    }

    /** On the group and topic that the scenario resume left: 20 records, all committed. */
    private void consumerGroups() throws Exception {
        String group = Scenarios.topic("resume");
        has(Tool.ok(GROUPS, at("--list")), group);
        committed(group, 20);
        has(Tool.ok(GROUPS, at("--describe", "--group", group, "--state")), "Empty");
        String[] reset = {"--reset-offsets", "--group", group, "--topic", group};
        Tool.ok(GROUPS, at(join(reset, "--to-earliest", "--dry-run")));
        committed(group, 20);
        Tool.ok(GROUPS, at(join(reset, "--to-earliest", "--execute")));
        committed(group, 0);
        Tool.ok(GROUPS, at(join(reset, "--to-offset", "5", "--execute")));
        committed(group, 5);
        Tool.ok(GROUPS, at(join(reset, "--shift-by", "2", "--execute")));
        committed(group, 7);
        Tool.ok(GROUPS, at(join(reset, "--by-duration", "PT1H", "--execute")));
        committed(group, 0);
        Tool.ok(GROUPS, at(join(reset, "--to-latest", "--execute")));
        committed(group, 20);
        Tool.ok(GROUPS, at("--delete-offsets", "--group", group, "--topic", group));
        Tool after = Tool.ok(GROUPS, at("--list"));
        if (after.lines().contains(group)) { // a group without offsets and members may be gone by itself
            has(Tool.ok(GROUPS, at("--delete", "--group", group)), "successful");
        }
        Scenarios.check(!Tool.ok(GROUPS, at("--list")).lines().contains(group), "deleted group is still listed");
        Tool unknown = Tool.run(GROUPS, "", at("--describe", "--group", Scenarios.topic("no-such-group")));
        Scenarios.check(unknown.stdout.contains("GroupIdNotFoundException")
            || unknown.stdout.contains("does not exist"), "unknown group: %s", unknown);
    }

    /** A group of the consumer protocol (KIP-848), seen by the command that describes groups. */
    private void consumerProtocol() throws Exception {
        createTopic("next", 3);
        produceLines("next", lines("next", 30));
        String group = Scenarios.topic("next");
        try (Tool.Running member = Tool.start("VerifiableConsumer", at("--topic", group, "--group-id", group,
                "--group-protocol", "consumer"))) {
            TreeSet<Integer> all = new TreeSet<>(List.of(0, 1, 2));
            Scenarios.until("the member has all partitions", () -> assigned(member).equals(all));
            described(group + "\\s+Consumer", "its type", "--list", "--type", "consumer");
            described(group + "\\s.*uniform\\s+Stable\\s+1", "its state", "--describe", "--group", group, "--state");
            described(group + "\\s.*\\s3\\s+\\d+\\s+" + group + ":0,1,2\\s+\\d+\\s+" + group + ":0,1,2", "its member", "--describe", "--group", group, "--members", "--verbose");
            Scenarios.until("all is committed", () -> {
                try {
                    Tool offsets = Tool.ok(GROUPS, at("--describe", "--group", group, "--offsets"));
                    return offsets.lines().stream().filter(line -> line.matches(group + "\\s+" + group + "\\s+[012]\\s.*\\s0\\s.*")).count() == 3;
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            });
        }
        described(group + "\\s.*Empty\\s+0", "its state when empty", "--describe", "--group", group, "--state");
        has(Tool.ok(GROUPS, at("--delete", "--group", group)), "successful");
    }

    /** One of the lines that the command prints for these arguments must match. */
    private static void described(String line, String what, String... arguments) throws Exception {
        Tool tool = Tool.ok(GROUPS, at(arguments));
        Scenarios.check(Pattern.compile(line).matcher(tool.stdout).find(), "%s: %s", what, tool);
    }

    /** The row of the one partition: current offset, log end 20, and the lag between them. */
    private static void committed(String group, int offset) throws Exception {
        Tool tool = Tool.ok(GROUPS, at("--describe", "--group", group, "--offsets"));
        Pattern row = Pattern.compile(Pattern.quote(group) + "\\s+" + Pattern.quote(group)
            + "\\s+0\\s+(?:-\\s+)?" + offset + "\\s+20\\s+" + (20 - offset) + "\\s");
        Scenarios.check(row.matcher(tool.stdout).find(), "want offset %d of 20: %s", offset, tool);
    }

    private void getOffsets() throws Exception {
        String topic = Scenarios.topic("resume");
        has(Tool.ok("GetOffsetShell", at("--topic", topic)), topic + ":0:20");
        has(Tool.ok("GetOffsetShell", at("--topic", topic, "--time", "earliest")), topic + ":0:0");
        has(Tool.ok("GetOffsetShell", at("--topic", topic, "--time", "0")), topic + ":0:0");
        Tool max = Tool.ok("GetOffsetShell", at("--topic", topic, "--time", "max-timestamp"));
        Scenarios.check(max.stdout.matches("(?s)" + Pattern.quote(topic) + ":0:1?\\d\\s*"), "max-timestamp: %s", max);
        Tool three = Tool.ok("GetOffsetShell", at("--topic-partitions", Scenarios.topic("gzip") + ":0-3"));
        Scenarios.check(three.lines().size() == 3, "want three partitions: %s", three);
    }

    private void deleteRecords() throws Exception {
        String topic = Scenarios.topic("resume");
        Path json = Files.createTempFile("offsets", ".json");
        json.toFile().deleteOnExit();
        Files.writeString(json, "{\"partitions\":[{\"topic\":\"" + topic + "\",\"partition\":0,\"offset\":6}],\"version\":1}");
        Tool deleted = Tool.ok("DeleteRecordsCommand", at("--offset-json-file", json.toString()));
        Scenarios.check(deleted.stdout.matches("(?s).*" + Pattern.quote(topic) + "-0\\s+low_watermark: 6.*"), "%s", deleted);
        has(Tool.ok("GetOffsetShell", at("--topic", topic, "--time", "earliest")), topic + ":0:6");
        List<String> rest = consume("resume", 14, "--from-beginning");
        Scenarios.check(rest.size() == 14 && rest.get(0).startsWith("Partition:0\tOffset:6\t"), "left: %s", rest);
    }

    private void logDirs() throws Exception {
        Tool tool = Tool.ok("LogDirsCommand", at("--describe", "--topic-list", Scenarios.topic("gzip")));
        for (int partition = 0; partition < 3; partition++) {
            Pattern row = Pattern.compile("\"partition\":\"" + Pattern.quote(Scenarios.topic("gzip")) + "-" + partition
                + "\"[^}]*\"size\":[1-9]|\"size\":[1-9]\\d*[^}]*\"partition\":\"" + Pattern.quote(Scenarios.topic("gzip"))
                + "-" + partition + "\"");
            Scenarios.check(row.matcher(tool.stdout).find(), "partition %d with a size: %s", partition, tool);
        }
    }

    private void perfTest() throws Exception {
        createTopic("perf", 3);
        int n = 20_000;
        Tool producer = Tool.ok("ProducerPerformance", at("--topic", Scenarios.topic("perf"), "--num-records", "" + n,
            "--record-size", "200", "--throughput", "-1", "--command-property", "acks=all"));
        has(producer, n + " records sent");
        Scenarios.check(!producer.stderr.contains("Exception"), "producer-perf-test: %s", producer);
        Tool consumer = Tool.ok("ConsumerPerformance", at("--topic", Scenarios.topic("perf"), "--num-records", "" + n,
            "--timeout", "20000", "--hide-header", "--group", Scenarios.topic("perf")));
        String[] columns = consumer.stdout.strip().split(",\\s*");
        Scenarios.check(columns.length > 5 && columns[4].equals("" + n), "consumer-perf-test: %s", consumer);
    }

    private void verifiable() throws Exception {
        createTopic("verifiable", 3);
        int n = 500;
        List<String> produced = Tool.process("VerifiableProducer", at("--topic", Scenarios.topic("verifiable"),
            "--max-messages", "" + n, "--acks", "-1"));
        long acked = produced.stream().filter(line -> line.contains("\"producer_send_success\"")).count();
        Scenarios.check(acked == n, "%d acknowledged, want %d: last %s", acked, n, last(produced));
        Scenarios.check(last(produced).contains("\"sent\":500,\"acked\":500"), "last line %s", last(produced));
        List<String> events = Tool.process("VerifiableConsumer", at("--topic", Scenarios.topic("verifiable"),
            "--group-id", Scenarios.topic("verifiable"), "--max-messages", "" + n));
        long consumed = 0;
        boolean committed = false;
        for (String line : events) {
            Matcher count = CONSUMED.matcher(line);
            if (line.contains("\"name\":\"records_consumed\"") && count.find()) {
                consumed += Long.parseLong(count.group(1));
            }
            if (line.contains("\"name\":\"offsets_committed\"")) {
                Scenarios.check(line.contains("\"success\":true"), "commit: %s", line);
                committed = true;
            }
        }
        Scenarios.check(consumed == n && committed, "%d consumed, want %d; committed: %b", consumed, n, committed);
    }

    private static final Pattern CONSUMED = Pattern.compile("\"name\":\"records_consumed\",\"count\":(\\d+)");

    private static String last(List<String> lines) {
        return lines.isEmpty() ? "" : lines.get(lines.size() - 1);
    }

    private void apiVersions() throws Exception {
        Tool tool = Tool.ok("BrokerApiVersionsCommand", at());
        has(tool, "Produce(0): ");
        has(tool, "Fetch(1): ");
    }

    private void clusterId() throws Exception {
        has(Tool.ok("ClusterTool", join(new String[] {"cluster-id"}, at())), "Cluster ID: ");
    }
}
