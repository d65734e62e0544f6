// The scenarios with @platformatic/kafka.

import { Admin, Consumer, Producer, UserError, findErrorBy } from '@platformatic/kafka'
import { consumerProtocol, transactions } from './platformatic-further.js'
import { END, Inbox, START, run } from './suite.js'

const base = { clientId: 'compat', bootstrapBrokers: [process.env.BOOTSTRAP], retries: 3, retryDelay: 100 }

async function withAdmin (call) {
  const admin = new Admin(base)
  try {
    return await call(admin)
  } finally {
    await admin.close()
  }
}

async function consumer (group, topic, options) {
  const inbox = new Inbox()
  const member = new Consumer({ ...base, groupId: group, heartbeatInterval: 200, maxWaitTime: 200 })
  let stream
  try {
    stream = await member.consume({ topics: [topic], autocommit: false, ...options })
  } catch (e) {
    await member.close(true)
    throw e
  }
  stream.on('error', e => inbox.fail(e))
  stream.on('data', m => inbox.push({
    partition: m.partition,
    offset: Number(m.offset),
    key: m.key,
    value: m.value ?? null,
    headers: [...m.headers].map(([key, value]) => [key.toString(), value])
  }))
  return {
    read: n => inbox.read(n),
    assigned: () => member.assignments?.find(a => a.topic === topic)?.partitions ?? [],
    commit: r => member.commit({ offsets: [{ topic, partition: r.partition, offset: BigInt(r.offset + 1), leaderEpoch: -1 }] }),
    close: () => member.close(true)
  }
}

let groups = 0

function open (topic, partitions, start) {
  const group = `${topic}-reader-${groups++}`
  if (start === START) return consumer(group, topic, { mode: 'earliest' })
  if (start === END) return consumer(group, topic, { mode: 'latest' })
  const offsets = Array.from({ length: partitions }, (_, partition) => ({ topic, partition, offset: BigInt(start) }))
  return consumer(group, topic, { mode: 'manual', fallbackMode: 'fail', offsets })
}

run({
  createTopic: (topic, partitions, configs) => withAdmin(admin => admin.createTopics({
    topics: [topic],
    partitions,
    replicas: 1,
    configs: Object.entries(configs).map(([name, value]) => ({ name, value }))
  })),
  partitionCount: topic => withAdmin(async admin =>
    (await admin.metadata({ topics: [topic] })).topics.get(topic).partitionsCount),
  touchUnknown: topic => withAdmin(admin => admin.metadata({ topics: [topic], autocreateTopics: false })),

  async produce (topic, codec, acks, records) {
    const producer = new Producer({ ...base, autocreateTopics: false, idempotent: acks === -1 })
    try {
      const { offsets } = await producer.send({
        acks,
        compression: codec,
        messages: records.map(r => ({
          topic,
          partition: r.partition,
          key: r.key,
          value: r.value ?? undefined,
          headers: new Map(r.headers.map(([key, value]) => [Buffer.from(key), value]))
        }))
      })
      for (const { partition, offset } of offsets ?? []) {
        records.filter(r => r.partition === partition).forEach((r, i) => { r.offset = Number(offset) + i })
      }
    } finally {
      await producer.close()
    }
  },

  open,
  join: (group, topic) => consumer(group, topic, { mode: 'committed', fallbackMode: 'earliest' }),
  // What its metadata call makes of UNKNOWN_TOPIC_OR_PARTITION, and of nothing else.
  isUnknownTopic: e => e instanceof UserError && e.message.startsWith('Unknown topic '),
  isTooLarge: e => findErrorBy(e, 'apiId', 'MESSAGE_TOO_LARGE') !== null,

  async farAhead (topic) {
    const reader = await open(topic, 3, 1_000_000)
    try {
      await reader.read(1)
    } catch (e) {
      return findErrorBy(e, 'apiId', 'OFFSET_OUT_OF_RANGE') !== null
    } finally {
      await reader.close()
    }
  },

  further: {
    transactions: (client, topic) => transactions(base, client, topic),
    'consumer-protocol': (client, topic) => consumerProtocol(base, client, topic)
  }
})
