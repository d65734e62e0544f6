"""The scenarios with confluent-kafka (librdkafka)."""

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

import confluent_kafka_groups
import suite


class Client:
    def __init__(self, bootstrap):
        self.config = {"bootstrap.servers": bootstrap}
        self.admin = AdminClient(self.config)

    def create_topic(self, topic, partitions, configs):
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=configs)
        self.admin.create_topics([new])[topic].result(20)

    def partition_count(self, topic):
        described = self.admin.describe_topics(ck.TopicCollection([topic]))[topic].result(20)
        return len(described.partitions)

    touch_unknown = partition_count

    def produce(self, topic, codec, acks, records):
        config = self.config | {"compression.type": codec, "acks": acks, "linger.ms": 5, "message.timeout.ms": 20000}
        producer = ck.Producer(config | ({"enable.idempotence": True} if acks == "all" else {}))
        errors = []
        for r in records:

            def delivered(error, message, r=r):
                if error:
                    errors.append(ck.KafkaException(error))
                elif acks != "0":
                    r.offset = message.offset()

            producer.produce(topic, partition=r.partition, key=r.key, value=r.value, headers=r.headers, callback=delivered)
        suite.check(producer.flush(20) == 0, "records left in the queue")
        if errors:
            raise errors[0]

    def open(self, topic, partitions, start):
        consumer = ck.Consumer(self.config | {"group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error"})
        where = {suite.START: ck.OFFSET_BEGINNING, suite.END: ck.OFFSET_END}.get(start, start)
        consumer.assign([ck.TopicPartition(topic, p, where) for p in range(partitions)])
        return Reader(consumer)

    def join(self, group, topic):
        member = Member(
            ck.Consumer(
                self.config
                | {
                    "group.id": group,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "heartbeat.interval.ms": 200,
                }
            )
        )
        member.consumer.subscribe([topic])
        return member

    @staticmethod
    def code(e):
        return e.args[0].code() if isinstance(e, ck.KafkaException) else None

    def is_unknown_topic(self, e):
        return self.code(e) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART

    def is_too_large(self, e):
        return self.code(e) == ck.KafkaError.MSG_SIZE_TOO_LARGE

    def is_out_of_range(self, e):
        # With auto.offset.reset=error librdkafka reports its own code, and the broker's in the text.
        return self.code(e) == ck.KafkaError._AUTO_OFFSET_RESET and "Broker: Offset out of range" in str(e)


class Reader:
    def __init__(self, consumer):
        self.consumer = consumer

    def poll(self, seconds):
        got = []
        for m in self.consumer.consume(4, seconds):
            if m.error():
                raise ck.KafkaException(m.error())
            got.append(suite.Record(m.partition(), m.key(), m.value(), m.headers() or [], m.offset()))
        return got

    def close(self):
        self.consumer.close()


class Member(Reader):
    def assigned(self):
        return {p.partition for p in self.consumer.assignment()}

    def commit(self, r):
        where = ck.TopicPartition(self.consumer.assignment()[0].topic, r.partition, r.offset + 1)
        for result in self.consumer.commit(offsets=[where], asynchronous=False):
            if result.error:
                raise ck.KafkaException(result.error)


suite.run(Client, confluent_kafka_groups.Scenarios)
