"""The scenarios with kafka-python."""

import kafka
from kafka import errors
from kafka.admin import KafkaAdminClient

import copying
import suite


class Client:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def create_topic(self, topic, partitions, configs):
        self.admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": configs}})

    def partition_count(self, topic):
        (described,) = self.admin.describe_topics([topic])
        if described["error_code"]:
            raise errors.for_code(described["error_code"])()
        return len(described["partitions"])

    touch_unknown = partition_count

    def produce(self, topic, codec, acks, records):
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=acks == "all",
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
        )
        try:
            futures = [
                producer.send(topic, partition=r.partition, key=r.key, value=r.value, headers=r.headers) for r in records
            ]
            producer.flush(timeout=20)
            for r, future in zip(records, futures):
                answer = future.get(timeout=20)
                if acks != "0":
                    r.offset = answer.offset
        finally:
            producer.close()

    def open(self, topic, partitions, start):
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap, enable_auto_commit=False, auto_offset_reset="none", group_id=None
        )
        where = [kafka.TopicPartition(topic, p) for p in range(partitions)]
        consumer.assign(where)
        if start == suite.START:
            consumer.seek_to_beginning(*where)
        elif start == suite.END:
            consumer.seek_to_end(*where)
        else:
            for partition in where:
                consumer.seek(partition, start)
        return Reader(consumer)

    def join(self, group, topic):
        return Member(
            kafka.KafkaConsumer(
                topic,
                bootstrap_servers=self.bootstrap,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                heartbeat_interval_ms=200,
            )
        )

    def transactional(self, name):
        return Transactional(self.bootstrap, name)

    def is_fenced(self, e):
        return isinstance(e, (errors.ProducerFencedError, errors.InvalidProducerEpochError))

    def committed(self, group, topic):
        consumer = kafka.KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False)
        try:
            return consumer.committed(kafka.TopicPartition(topic, 0))
        finally:
            consumer.close(autocommit=False)

    def values(self, topic, isolation, n):
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap, enable_auto_commit=False, group_id=None, isolation_level=isolation
        )
        try:
            where, got = kafka.TopicPartition(topic, 0), []
            consumer.assign([where])
            consumer.seek_to_beginning(where)
            while len(got) < n:
                batch = consumer.poll(timeout_ms=500 if got else 10000, max_records=n - len(got))
                if not batch:
                    break
                got.extend(m.value for messages in batch.values() for m in messages)
            return got
        finally:
            consumer.close(autocommit=False)

    def is_unknown_topic(self, e):
        return isinstance(e, errors.UnknownTopicOrPartitionError)

    def is_too_large(self, e):
        return isinstance(e, errors.MessageSizeTooLargeError)

    def is_out_of_range(self, e):
        return isinstance(e, errors.OffsetOutOfRangeError)


class Transactional:
    def __init__(self, bootstrap, name):
        self.producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        self.producer.init_transactions()

    def begin(self):
        self.producer.begin_transaction()

    def send(self, topic, value):
        self.producer.send(topic, value, partition=0).get(timeout=20)

    def offset(self, group, topic, n):
        self.producer.send_offsets_to_transaction({kafka.TopicPartition(topic, 0): kafka.OffsetAndMetadata(n, "", -1)}, group)

    def commit(self):
        self.producer.commit_transaction()

    def abort(self):
        self.producer.abort_transaction()

    def close(self):
        self.producer.close()


class Reader:
    def __init__(self, consumer):
        self.consumer = consumer

    def poll(self, seconds):
        return [
            suite.Record(m.partition, m.key, m.value, list(m.headers), m.offset)
            for messages in self.consumer.poll(timeout_ms=int(seconds * 1000), max_records=4).values()
            for m in messages
        ]

    def close(self):
        self.consumer.close(autocommit=False)


class Member(Reader):
    def assigned(self):
        return {p.partition for p in self.consumer.assignment()}

    def commit(self, r):
        (where,) = [p for p in self.consumer.assignment() if p.partition == r.partition]
        self.consumer.commit({where: kafka.OffsetAndMetadata(r.offset + 1, "", -1)})


suite.run(Client, copying.Scenarios)
