"""The scenarios with aiokafka, whose event loop runs on a thread of its own."""

import asyncio
import threading

import aiokafka
from aiokafka import errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

import copying
import suite

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()


def wait(coroutine, seconds=25):
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(seconds)


class Client:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def admin(self, call):
        async def run():
            client = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await client.start()
            try:
                return await call(client)
            finally:
                await client.close()

        return wait(run())

    def create_topic(self, topic, partitions, configs):
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, topic_configs=configs)
        answer = self.admin(lambda client: client.create_topics([new]))
        for _, code, message in answer.topic_errors:
            if code:
                raise errors.for_code(code)(message)

    def partition_count(self, topic):
        (described,) = self.admin(lambda client: client.describe_topics([topic]))
        return len(described["partitions"])

    def touch_unknown(self, topic):
        # Its describe_topics always lets the broker create the topic; this is a call that does not.
        self.admin(lambda client: client.create_partitions({topic: NewPartitions(total_count=5)}))

    def produce(self, topic, codec, acks, records):
        async def run():
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                acks=acks if acks == "all" else int(acks),
                enable_idempotence=acks == "all",
                compression_type=None if codec == "none" else codec,
                linger_ms=5,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(topic, partition=r.partition, key=r.key, value=r.value, headers=r.headers)
                    for r in records
                ]
                for r, future in zip(records, futures):
                    answer = await future
                    if acks != "0":
                        r.offset = answer.offset
            finally:
                await producer.stop()

        wait(run())

    def open(self, topic, partitions, start):
        async def run():
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap, enable_auto_commit=False, auto_offset_reset="none"
            )
            await consumer.start()
            where = [aiokafka.TopicPartition(topic, p) for p in range(partitions)]
            consumer.assign(where)
            if start == suite.START:
                await consumer.seek_to_beginning(*where)
            elif start == suite.END:
                await consumer.seek_to_end(*where)
            else:
                for partition in where:
                    consumer.seek(partition, start)
            return Reader(consumer)

        return wait(run())

    def join(self, group, topic):
        async def run():
            consumer = aiokafka.AIOKafkaConsumer(
                topic,
                bootstrap_servers=self.bootstrap,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                heartbeat_interval_ms=200,
            )
            await consumer.start()
            return Member(consumer)

        return wait(run())

    def transactional(self, name):
        return Transactional(self.bootstrap, name)

    def is_fenced(self, e):
        return isinstance(e, (errors.ProducerFenced, errors.InvalidProducerEpoch))

    def committed(self, group, topic):
        async def run():
            consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False)
            await consumer.start()
            try:
                return await consumer.committed(aiokafka.TopicPartition(topic, 0))
            finally:
                await consumer.stop()

        return wait(run())

    def values(self, topic, isolation, n):
        async def run():
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level=isolation,
            )
            await consumer.start()
            try:
                where, got = aiokafka.TopicPartition(topic, 0), []
                consumer.assign([where])
                await consumer.seek_to_beginning(where)
                while len(got) < n:
                    batch = await consumer.getmany(timeout_ms=500 if got else 10000, max_records=n - len(got))
                    if not batch:
                        break
                    got.extend(m.value for messages in batch.values() for m in messages)
                return got
            finally:
                await consumer.stop()

        return wait(run())

    def is_unknown_topic(self, e):
        return isinstance(e, errors.UnknownTopicOrPartitionError)

    def is_too_large(self, e):
        return isinstance(e, errors.MessageSizeTooLargeError)

    def is_out_of_range(self, e):
        return isinstance(e, errors.OffsetOutOfRangeError)


class Transactional:
    def __init__(self, bootstrap, name):
        async def run():
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
            await producer.start()
            return producer

        self.producer = wait(run())

    def begin(self):
        wait(self.producer.begin_transaction())

    def send(self, topic, value):
        wait(self.producer.send_and_wait(topic, value, partition=0))

    def offset(self, group, topic, n):
        wait(self.producer.send_offsets_to_transaction({aiokafka.TopicPartition(topic, 0): n}, group))

    def commit(self):
        wait(self.producer.commit_transaction())

    def abort(self):
        wait(self.producer.abort_transaction())

    def close(self):
        wait(self.producer.stop())


class Reader:
    def __init__(self, consumer):
        self.consumer = consumer

    def poll(self, seconds):
        batches = wait(self.consumer.getmany(timeout_ms=int(seconds * 1000), max_records=4))
        return [
            suite.Record(m.partition, m.key, m.value, list(m.headers), m.offset)
            for messages in batches.values()
            for m in messages
        ]

    def close(self):
        wait(self.consumer.stop())


class Member(Reader):
    def assigned(self):
        return {p.partition for p in self.consumer.assignment()}

    def commit(self, r):
        (where,) = [p for p in self.consumer.assignment() if p.partition == r.partition]
        wait(self.consumer.commit({where: r.offset + 1}))


suite.run(Client, copying.Scenarios)
