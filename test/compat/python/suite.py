"""The scenarios that every Python client runs; a client is adapted by a small class.

A program prints one line a scenario, `CASE name PASS|FAIL seconds detail`. Adapters are blocking:

    create_topic(topic, partitions, configs)
    partition_count(topic)
    touch_unknown(topic)                       asks about a topic without creating it; raises
    produce(topic, codec, acks, records)       sets each record's offset unless acks is "0"
    open(topic, partitions, start)             a reader of all partitions: START, END or an offset
    join(group, topic)                         a member; nothing is committed by itself
    is_unknown_topic(e), is_too_large(e), is_out_of_range(e)

A reader has poll(seconds) -> records, and close(); a member also assigned() -> set and commit(record). One thread at a
time calls them.
"""

import os
import random
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field

START, END = -2, -1
PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SCENARIO_SECONDS = 30


@dataclass
class Record:
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    offset: int = -1


def records(tag, n, partitions=PARTITIONS):
    """n records spread over the partitions in turn; every tenth value is null."""
    return [
        Record(
            partition=i % partitions,
            key=f"{tag}-{i}".encode(),
            value=None if i % 10 == 7 else f"{tag}:{i}:{'abcdefgh' * 40}".encode(),
            headers=[("tag", tag.encode()), ("bin", bytes([0, 255, 128, i])), ("tag", b"again")],
        )
        for i in range(n)
    ]


def check(holds, *what):
    if not holds:
        raise AssertionError(" ".join(str(w) for w in what))


def same(got, want):
    last = {}
    for r in got:
        check(r.offset > last.get(r.partition, -1), "partition", r.partition, "offset", r.offset, "out of order")
        last[r.partition] = r.offset
    check(len(got) == len(want), len(got), "records, want", len(want))

    def position(r):
        return r.partition, r.offset

    for g, w in zip(sorted(got, key=position), sorted(want, key=position)):
        check(g == w, "got", str(g)[:200], "want", str(w)[:200])


def consecutive(sent, start=0):
    """In a topic nobody else writes to, the acknowledged offsets of a partition are start, start + 1, …"""
    following = {}
    for r in sent:
        want = following.get(r.partition, start)
        check(r.offset == want, "partition", r.partition, "acknowledged at", r.offset, "want", want)
        following[r.partition] = want + 1


def read(reader, n, seconds=20):
    got, end = [], time.monotonic() + seconds
    while len(got) < n:
        check(time.monotonic() < end, "received", len(got), "of", n, "records")
        got += reader.poll(0.2)
    return got


class Polling:
    """A member that polls on a thread of its own until it is left."""

    def __init__(self, member):
        self.member, self.partitions, self.error = member, set(), None
        self.leaving = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            while not self.leaving.is_set():
                self.member.poll(0.1)
                self.partitions = self.member.assigned()
            self.member.close()
        except Exception as e:  # pylint: disable=broad-except
            self.error = e

    def assigned(self):
        if self.error:
            raise self.error
        return self.partitions

    def leave(self):
        self.leaving.set()
        self.thread.join(15)
        check(not self.thread.is_alive(), "a member did not close within 15 s")
        if self.error:
            raise self.error


def until(what, holds, seconds=20):
    end = time.monotonic() + seconds
    while not holds():
        check(time.monotonic() < end, "timed out:", what())
        time.sleep(0.02)


class Suite:
    def __init__(self, client, prefix):
        self.client, self.prefix, self.sent = client, prefix, {}

    def topic(self, name):
        return f"{self.prefix}-{name}"

    def create(self):
        for name in (*CODECS, "acks", "group"):
            self.client.create_topic(self.topic(name), PARTITIONS, {})
        self.client.create_topic(self.topic("resume"), 1, {})
        self.client.create_topic(self.topic("small"), 1, {"max.message.bytes": "1024"})
        n = self.client.partition_count(self.topic("none"))
        check(n == PARTITIONS, n, "partitions, want", PARTITIONS)

    def produce(self, codec):
        batch = records(codec, 30)
        self.client.produce(self.topic(codec), codec, "all", batch)
        consecutive(batch)
        self.sent[codec] = batch

    def acks(self):
        everything = []
        for i, acks in enumerate(("1", "all", "0")):
            batch = records("acks" + acks, 9)
            self.client.produce(self.topic("acks"), "none", acks, batch)
            if acks == "0":
                for j, r in enumerate(batch):
                    r.offset = i * 3 + j // PARTITIONS
            consecutive(batch, i * 3)
            everything += batch
        self.read_back("acks", everything)

    def read_back(self, name, want):
        reader = self.client.open(self.topic(name), PARTITIONS, START)
        try:
            same(read(reader, len(want)), want)
        finally:
            reader.close()

    def consume_start(self):
        check(len(self.sent) == len(CODECS), "produced only", *self.sent)
        for name, want in self.sent.items():
            self.read_back(name, want)

    def consume_end(self):
        """Produces until something arrives: it must have been sent after the reader was opened at the end."""
        reader = self.client.open(self.topic("none"), PARTITIONS, END)
        late = {}
        try:
            for i in range(100):
                batch = records(f"late{i}", PARTITIONS)
                self.client.produce(self.topic("none"), "none", "all", batch)
                late.update({(r.partition, r.offset): r for r in batch})
                got = reader.poll(0.3)
                if got:
                    for r in got:
                        check(late.get((r.partition, r.offset)) == r, "received", r, "which was not sent since")
                    return
        finally:
            reader.close()
        check(False, "nothing received")

    def rebalance(self):
        everything = {0, 1, 2}
        first = Polling(self.client.join(self.topic("group"), self.topic("group")))
        try:
            until(lambda: f"the only member has {first.assigned()}", lambda: first.assigned() == everything)
            second = Polling(self.client.join(self.topic("group"), self.topic("group")))

            def split():
                a, b = first.assigned(), second.assigned()
                return a and b and not a & b and a | b == everything

            try:
                until(lambda: f"two members have {first.assigned()} and {second.assigned()}", split)
            finally:
                second.leave()
            until(lambda: f"the member that stays has {first.assigned()}", lambda: first.assigned() == everything)
        finally:
            first.leave()

    def resume(self):
        name = self.topic("resume")
        sent = records("resume", 20, 1)
        self.client.produce(name, "none", "all", sent)
        first = self.client.join(name, name)
        try:
            got = read(first, 8)
            first.commit(got[7])
        finally:
            first.close()
        same(got[:8], sent[:8])
        second = self.client.join(name, name)
        try:
            same(read(second, 12), sent[8:])
        finally:
            second.close()

    def raises(self, what, call):
        try:
            call()
        except Exception as e:  # pylint: disable=broad-except
            check(getattr(self.client, "is_" + what)(e), "want", what, "got", repr(e))
            return
        check(False, "no error, want", what)

    def unknown_topic(self):
        self.raises("unknown_topic", lambda: self.client.touch_unknown(self.topic("nowhere")))

    def too_large(self):
        big = records("big", 1, 1)
        big[0].value = random.Random(1).randbytes(4000)
        self.raises("too_large", lambda: self.client.produce(self.topic("small"), "none", "all", big))
        fits = records("fits", 1, 1)
        self.client.produce(self.topic("small"), "none", "all", fits)
        consecutive(fits)

    def out_of_range(self):
        def far_ahead():
            reader = self.client.open(self.topic("none"), 1, 1_000_000)
            try:
                read(reader, 1)
            finally:
                reader.close()

        self.raises("out_of_range", far_ahead)

    def scenario(self, name, body):
        start, outcome = time.monotonic(), []

        def run():
            try:
                body()
                outcome.append(None)
            except BaseException as e:  # pylint: disable=broad-except
                traceback.print_exc()
                outcome.append(e)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(SCENARIO_SECONDS)
        error = outcome[0] if outcome else AssertionError(f"not done after {SCENARIO_SECONDS} s")
        detail = "" if error is None else " ".join(f"{type(error).__name__}: {error}".split())
        verdict = "PASS" if error is None else "FAIL"
        print(f"CASE {name} {verdict} {time.monotonic() - start:.1f} {detail}", flush=True)


def run(client_class, further=None):
    """further(client, topic).all: more scenarios of this client, (name, body)."""
    suite = Suite(client_class(os.environ["BOOTSTRAP"]), os.environ["PREFIX"])
    suite.scenario("create", suite.create)
    for codec in CODECS:
        suite.scenario("produce-" + codec, lambda codec=codec: suite.produce(codec))
    for name in ("acks", "consume-start", "consume-end", "rebalance", "resume"):
        suite.scenario(name, getattr(suite, name.replace("-", "_")))
    for name in ("unknown-topic", "too-large", "out-of-range"):
        suite.scenario("error-" + name, getattr(suite, name.replace("-", "_")))
    for name, body in further(suite.client, suite.topic).all if further else ():
        suite.scenario(name, body)
    sys.stdout.flush()
    os._exit(0)  # a client's threads must not keep the program alive
