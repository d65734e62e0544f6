// Transactions, and the consumer protocol (KIP-848), with @platformatic/kafka.

import { setTimeout as sleep } from 'node:timers/promises'
import { Consumer, Producer } from '@platformatic/kafka'
import { Inbox, check, until } from './suite.js'

const N = 30
const ALL = '0,1,2'

// member joins a group and hands out what it reads.
async function member (base, groupId, topic, group, options) {
  const inbox = new Inbox()
  const consumer = new Consumer({ ...base, groupId, maxWaitTime: 200, ...group })
  let stream
  try {
    stream = await consumer.consume({ topics: [topic], autocommit: false, mode: 'committed', fallbackMode: 'earliest', ...options })
  } catch (e) {
    await consumer.close(true)
    throw e
  }
  stream.on('error', e => inbox.fail(e))
  stream.on('data', message => inbox.push(message))
  return {
    consumer,
    read: n => inbox.read(n),
    has: () => [...(consumer.assignments?.find(a => a.topic === topic)?.partitions ?? [])].sort().join(),
    close: () => consumer.close(true)
  }
}

async function committed (consumer, topic) {
  const offsets = await consumer.listCommittedOffsets({ topics: [{ topic, partitions: [0] }] })
  return offsets.get(topic)[0]
}

// transactions copies N records twice: the first transaction is aborted, the second one commits the offsets too. Fencing is not
// shown: a second producer of this client asks for the id with producer id 0 and epoch 0, which Kafka refuses as fenced itself.
export async function transactions (base, client, topic) {
  const [input, output] = [topic('txn-in'), topic('txn-out')]
  for (const name of [input, output]) await client.createTopic(name, 1, {})
  const values = Array.from({ length: N }, (_, i) => `v${i}`)
  const messages = (name, prefix) => values.map(v => ({ topic: name, partition: 0, value: Buffer.from(prefix + v) }))
  const plain = new Producer(base)
  await plain.send({ messages: messages(input, '') })
  await plain.close()

  const source = await member(base, topic('txn'), input, { heartbeatInterval: 200 })
  const producer = new Producer({ ...base, idempotent: true, transactionalId: topic('txn-id') })
  try {
    const read = await source.read(N)
    const copy = async (prefix, end) => {
      const transaction = await producer.beginTransaction()
      await transaction.send({ messages: messages(output, prefix) })
      await transaction.addConsumer(source.consumer)
      await transaction.addOffset(read[N - 1])
      await transaction[end]()
    }
    await copy('bad-', 'abort')
    check(await committed(source.consumer, input) === -1n, 'an abort committed offsets')
    await copy('good-', 'commit')
    let offset // a broker may answer the end of a transaction before its offsets are visible
    for (let i = 0; i < 100 && offset !== BigInt(N); i++) {
      await sleep(i && 50)
      offset = await committed(source.consumer, input)
    }
    check(offset === BigInt(N), 'committed', offset, 'want', N)
    const contents = async (isolationLevel, n) => {
      const reader = await member(base, topic(`txn-reader-${isolationLevel}`), output, { heartbeatInterval: 200 }, { isolationLevel })
      try {
        return (await reader.read(n)).map(m => m.value.toString())
      } finally {
        await reader.close()
      }
    }
    const good = values.map(v => `good-${v}`)
    const got = await contents(1, N)
    check(got.join() === good.join(), 'read_committed:', got)
    const all = await contents(0, 2 * N)
    check(all.join() === [...values.map(v => `bad-${v}`), ...good].join(), 'read_uncommitted:', all)
  } finally {
    await Promise.all([producer.close(), source.close()])
  }
}

// consumerProtocol: join, share, leave, commit and resume in a group that the broker assigns.
export async function consumerProtocol (base, client, topic) {
  const name = topic('next')
  await client.createTopic(name, 3, {})
  const join = () => member(base, name, name, { groupProtocol: 'consumer' })
  const first = await join()
  try {
    await until(() => `the only member has ${first.has()}`, () => first.has() === ALL)
    const second = await join()
    try {
      await until(() => `two members have ${first.has()} and ${second.has()}`, () => first.has() && second.has() &&
        [...first.has().split(','), ...second.has().split(',')].sort().join() === ALL)
    } finally {
      await second.close()
    }
    await until(() => `the member that stays has ${first.has()}`, () => first.has() === ALL)
    await send(base, name, 30)
    const offsets = new Map()
    for (const m of await first.read(30)) offsets.set(m.partition, m.offset + 1n)
    await first.consumer.commit({ offsets: [...offsets].map(([partition, offset]) => ({ topic: name, partition, offset, leaderEpoch: -1 })) })
  } finally {
    await first.close()
  }
  await send(base, name, 6)
  const third = await join()
  try {
    for (const m of await third.read(6)) check(m.offset >= 10n, 'offset', m.offset, 'is read again')
  } finally {
    await third.close()
  }
}

async function send (base, topic, n) {
  const producer = new Producer(base)
  try {
    await producer.send({ messages: Array.from({ length: n }, (_, i) => ({ topic, partition: i % 3, value: Buffer.from(`v${i}`) })) })
  } finally {
    await producer.close()
  }
}
