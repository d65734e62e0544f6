// Transactions with kafkajs: sendOffsets, commit, abort and fencing.

import kafkajs from 'kafkajs'
import { Inbox, check } from './suite.js'

const N = 30

// transactions copies N records twice: the first transaction is aborted, the second one commits the offsets too.
export async function transactions (kafka, topic, createTopic) {
  const [input, output] = [topic('txn-in'), topic('txn-out')]
  for (const name of [input, output]) await createTopic(name, 1, {})
  const values = Array.from({ length: N }, (_, i) => `v${i}`)
  const plain = kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner })
  await plain.connect()
  await plain.send({ topic: input, messages: values.map(value => ({ value })) })
  await plain.disconnect()

  const open = async () => {
    const producer = kafka.producer({
      transactionalId: topic('txn-id'),
      idempotent: true,
      maxInFlightRequests: 1,
      createPartitioner: kafkajs.Partitioners.DefaultPartitioner
    })
    await producer.connect()
    return producer
  }
  const copy = async (producer, prefix, end) => {
    const transaction = await producer.transaction()
    await transaction.send({ topic: output, messages: values.map(value => ({ value: prefix + value })) })
    await transaction.sendOffsets({
      consumerGroupId: topic('txn'),
      topics: [{ topic: input, partitions: [{ partition: 0, offset: String(N) }] }]
    })
    await transaction[end]()
  }
  const first = await open()
  const second = await open()
  try {
    await copy(first, 'bad-', 'abort')
    check(await committed(kafka, topic('txn'), input) === '-1', 'an abort committed offsets')
    await copy(second, 'good-', 'commit')
    let fenced
    try {
      await copy(first, 'fenced-', 'commit')
    } catch (e) {
      fenced = e
    }
    check(/PRODUCER_FENCED|INVALID_PRODUCER_EPOCH/.test(fenced?.type ?? fenced?.cause?.type), 'not fenced:', fenced)
    const offset = await committed(kafka, topic('txn'), input)
    check(offset === String(N), 'committed', offset, 'want', N)
    const want = values.map(value => `good-${value}`)
    const got = await contents(kafka, output, topic('txn-reader'), false, want.length)
    check(got.join() === want.join(), 'read_committed:', got)
    const all = await contents(kafka, output, topic('txn-reader-all'), true, 2 * N)
    check(all.filter(value => value.startsWith('bad-')).length === N, 'read_uncommitted:', all)
  } finally {
    await Promise.all([first.disconnect(), second.disconnect()])
  }
}

async function committed (kafka, groupId, topic) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] })
    return partitions.find(p => p.partition === 0).offset
  } finally {
    await admin.disconnect()
  }
}

// The first n values of the topic for a reader of this isolation level.
async function contents (kafka, topic, groupId, readUncommitted, n) {
  const inbox = new Inbox()
  const member = kafka.consumer({ groupId, readUncommitted, maxWaitTimeInMs: 200 })
  member.on(member.events.CRASH, ({ payload }) => inbox.fail(payload.error))
  await member.connect()
  try {
    await member.subscribe({ topic, fromBeginning: true })
    await member.run({ autoCommit: false, eachMessage: async ({ message }) => inbox.push(message.value.toString()) })
    return await inbox.read(n)
  } finally {
    await member.disconnect()
  }
}
