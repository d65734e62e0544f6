"""Transactions: a copy with the group's offsets in it, aborted and committed, and the fencing of an older producer.

A client that has them adapts, besides what suite.py asks for:

    transactional(id)                 a producer whose transactions are initialised, with begin(), send(topic, value) to
                                      partition 0, offset(group, topic, n) of partition 0, commit(), abort() and close()
    is_fenced(e)
    committed(group, topic)           the offset of partition 0, None without one
    values(topic, isolation, n)       the first n values of partition 0 for a reader of this isolation level, or fewer if no
                                      more come within half a second
"""

import suite

N = 30


class Scenarios:
    def __init__(self, client, topic):
        self.client, self.topic = client, topic
        self.all = (("transactions", self.transactions),)

    def copy(self, producer, prefix, end):
        producer.begin()
        for i in range(N):
            producer.send(self.topic("txn-out"), f"{prefix}{i}".encode())
        producer.offset(self.topic("txn"), self.topic("txn-in"), N)
        end()

    def transactions(self):
        client, producers = self.client, []

        def open_producer(name):
            producers.append(client.transactional(self.topic(name)))
            return producers[-1]

        for name in ("txn-in", "txn-out"):
            client.create_topic(self.topic(name), 1, {})
        client.produce(self.topic("txn-in"), "none", "all", suite.records("txn", N, 1))
        where = self.topic("txn"), self.topic("txn-in")
        try:
            first = open_producer("txn-id")
            self.copy(first, "bad-", first.abort)
            suite.check(client.committed(*where) is None, "an abort committed", client.committed(*where))
            second = open_producer("txn-id")
            try:
                self.copy(first, "fenced-", first.commit)
                suite.check(False, "the older producer was not fenced")
            except AssertionError:
                raise
            except Exception as e:  # pylint: disable=broad-except
                suite.check(client.is_fenced(e), "want fenced, got", repr(e))
            self.copy(second, "good-", second.commit)
            suite.check(client.committed(*where) == N, client.committed(*where), "committed, want", N)
            late = open_producer("txn-id-open")
            late.begin()
            late.send(self.topic("txn-out"), b"open")
            good = [f"good-{i}".encode() for i in range(N)]
            got = client.values(self.topic("txn-out"), "read_committed", N + 1)
            suite.check(got == good, "read_committed:", got)
            everything = client.values(self.topic("txn-out"), "read_uncommitted", 2 * N + 1)
            want = [f"bad-{i}".encode() for i in range(N)] + good + [b"open"]
            suite.check([v for v in everything if not v.startswith(b"fenced-")] == want, "read_uncommitted:", everything)
            late.abort()
        finally:
            for producer in producers:
                producer.close()
