"""Transactions, and groups of the consumer protocol (KIP-848), with confluent-kafka (librdkafka)."""

import time

import confluent_kafka as ck

import suite

ALL = {0, 1, 2}


class Scenarios:
    """The client's further scenarios; `client` is the adapter, `topic` gives the names of this run."""

    def __init__(self, client, topic):
        self.client, self.topic = client, topic
        self.all = (
            ("transactions", self.transactions),
            ("consumer-protocol", self.protocol),
            ("consumer-regex", self.regex),
            ("consumer-static", self.static),
        )

    def create(self, *names):
        for name in names:
            self.client.create_topic(self.topic(name), 3, {})

    def producer(self, **config):
        return ck.Producer(self.client.config | {"linger.ms": 5, "message.timeout.ms": 20000} | config)

    def consumer(self, group, **config):
        defaults = {"group.id": self.topic(group), "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        return ck.Consumer(self.client.config | defaults | config)

    def send(self, name, n):
        producer = self.producer(acks="all")
        for i in range(n):
            producer.produce(self.topic(name), partition=i % 3, key=f"k{i}", value=f"v{i}")
        suite.check(producer.flush(20) == 0, "records left in the queue")

    def member(self, group, topics, **config):
        consumer = self.consumer(group, **{"group.protocol": "consumer"} | config)
        consumer.subscribe(topics)
        return Polling(consumer)

    def committed(self, group):
        consumer = self.consumer(group)
        try:
            parts = consumer.committed([ck.TopicPartition(self.topic("txn-in"), p) for p in range(3)], timeout=10)
            return sum(max(p.offset, 0) for p in parts)
        finally:
            consumer.close()

    def contents(self, name, isolation):
        """All values that a reader of this isolation level gets up to the ends of its partitions, sorted."""
        consumer = self.consumer("none", **{"isolation.level": isolation, "enable.partition.eof": True})
        consumer.assign([ck.TopicPartition(self.topic(name), p, ck.OFFSET_BEGINNING) for p in range(3)])
        got, ended, end = [], set(), time.monotonic() + 20
        try:
            while ended != ALL:
                suite.check(time.monotonic() < end, "not at the end after", len(got), "records")
                m = consumer.poll(0.2)
                if m is None:
                    continue
                if not m.error():
                    got.append(m.value().decode())
                elif m.error().code() == ck.KafkaError._PARTITION_EOF:
                    ended.add(m.partition())
                else:
                    raise ck.KafkaException(m.error())
        finally:
            consumer.close()
        return sorted(got)

    def copy(self, producer, protocol, n, prefix):
        """Begins a transaction and copies at least n records of txn-in; the caller ends it."""
        consumer = self.consumer("txn", **{"group.protocol": protocol, "isolation.level": "read_committed"})
        consumer.subscribe([self.topic("txn-in")])
        try:
            got, end = [], time.monotonic() + 20
            while len(got) < n:
                suite.check(time.monotonic() < end, "received", len(got), "of", n)
                m = consumer.poll(0.2)
                if m is not None:
                    suite.check(not m.error(), m.error())
                    got.append(m)
            producer.begin_transaction()
            for m in got:
                producer.produce(self.topic("txn-out"), partition=m.partition(), key=m.key(), value=prefix + m.value().decode())
            offsets = {p: max(m.offset() for m in got if m.partition() == p) + 1 for p in {m.partition() for m in got}}
            producer.send_offsets_to_transaction(
                [ck.TopicPartition(self.topic("txn-in"), p, o) for p, o in offsets.items()], consumer.consumer_group_metadata()
            )
            return producer.flush(20)
        finally:
            consumer.close()

    def transactions(self):
        """Copies with send_offsets_to_transaction; the first try is aborted, and a second producer fences the first."""
        self.create("txn-in", "txn-out")
        self.send("txn-in", 60)
        identity = {"transactional.id": self.topic("txn-id")}
        first = self.producer(**identity)
        first.init_transactions(20)
        self.copy(first, "classic", 1, "bad-")
        first.abort_transaction(20)
        suite.check(self.committed("txn") == 0, "an abort committed offsets")
        second = self.producer(**identity)
        second.init_transactions(20)
        try:
            first.begin_transaction()
            first.produce(self.topic("txn-out"), value="fenced")
            first.commit_transaction(20)
            suite.check(False, "the older producer was not fenced")
        except ck.KafkaException as e:
            suite.check(e.args[0].code() == ck.KafkaError._FENCED, "want _FENCED, got", repr(e))
        self.copy(second, "consumer", 60, "good-")
        second.commit_transaction(20)
        late = self.producer(**{"transactional.id": self.topic("txn-id-open")})
        late.init_transactions(20)
        late.begin_transaction()
        late.produce(self.topic("txn-out"), partition=0, value="open")
        suite.check(late.flush(20) == 0, "the open transaction's record is not acknowledged")
        got, want = self.contents("txn-out", "read_committed"), sorted(f"good-v{i}" for i in range(60))
        suite.check(got == want, "read_committed:", got)
        everything = self.contents("txn-out", "read_uncommitted")
        suite.check("open" in everything and any(v.startswith("bad-") for v in everything), "read_uncommitted:", everything)
        suite.check("fenced" not in everything, "the fenced producer wrote")
        late.abort_transaction(20)
        suite.check(self.committed("txn") == 60, self.committed("txn"), "committed, want 60")

    def shared(self, first, second):
        suite.until(
            lambda: f"two members have {first.partitions} and {second.partitions}",
            lambda: first.partitions and second.partitions and not first.partitions & second.partitions
            and first.partitions | second.partitions == ALL,
        )

    def protocol(self):
        self.create("next")
        with self.member("next", [self.topic("next")]) as first:
            suite.until(lambda: f"the only member has {first.partitions}", lambda: first.partitions == ALL)
            with self.member("next", [self.topic("next")]) as second:
                self.shared(first, second)
            suite.until(lambda: f"the member that stays has {first.partitions}", lambda: first.partitions == ALL)
            self.send("next", 30)
            suite.until(lambda: f"{first.count} of 30 records", lambda: first.count == 30)
        self.send("next", 6)
        with self.member("next", [self.topic("next")]) as resumed:
            suite.until(lambda: f"{resumed.count} of 6 records", lambda: resumed.count == 6)
            suite.check(resumed.lowest >= 10, "read again from", resumed.lowest)

    def regex(self):
        self.create("regex-a", "regex-b", "other")
        both = {self.topic("regex-a"), self.topic("regex-b")}
        with self.member("regex", ["^" + self.topic("regex-") + "[a-c]$"]) as member:
            suite.until(lambda: f"assigned {member.topics}", lambda: member.topics == both)
            self.create("regex-c")
            suite.until(lambda: f"assigned {member.topics}", lambda: member.topics == both | {self.topic("regex-c")})

    def static(self):
        """A static member keeps its partitions over a restart."""
        self.create("static")
        topics = [self.topic("static")]
        with self.member("static", topics, **{"group.instance.id": "two"}) as two:
            with self.member("static", topics, **{"group.instance.id": "one"}) as one:
                self.shared(one, two)
                had, others = one.partitions, two.partitions
            with self.member("static", topics, **{"group.instance.id": "one"}) as one:
                suite.until(lambda: f"it has {one.partitions}, had {had}", lambda: one.partitions == had)
                suite.check(two.partitions == others, "the other has", two.partitions, "now, had", others)


class Polling(suite.Polling):
    """A member on a thread of its own; commits what it reads."""

    def __init__(self, consumer):
        self.consumer, self.topics, self.count, self.lowest = consumer, set(), 0, 1 << 60
        super().__init__(self)

    def poll(self, seconds):
        m = self.consumer.poll(seconds)
        if m is not None:
            suite.check(not m.error(), m.error())
            self.count, self.lowest = self.count + 1, min(self.lowest, m.offset())
            self.consumer.commit(m, asynchronous=False)

    def assigned(self):  # pylint: disable=method-hidden
        assignment = self.consumer.assignment()
        self.topics = {p.topic for p in assignment}
        return {p.partition for p in assignment}

    def close(self):
        self.consumer.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leave()
