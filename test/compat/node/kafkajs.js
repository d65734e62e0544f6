// The scenarios with kafkajs. It brings gzip; snappy, lz4 and zstd are plugged in the way its documentation says.

import zlib from 'node:zlib'
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import lz4 from 'lz4-napi'
import { END, Inbox, START, run } from './suite.js'
import { transactions } from './kafkajs-transactions.js'

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer)
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => zlib.zstdCompressSync(encoder.buffer),
  decompress: async buffer => zlib.zstdDecompressSync(buffer)
})
const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD
}

const kafka = new Kafka({ clientId: 'compat', brokers: [process.env.BOOTSTRAP], logLevel: logLevel.ERROR, retry: { retries: 3 } })

async function withAdmin (call) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await call(admin)
  } finally {
    await admin.disconnect()
  }
}

// kafkajs has no consumer outside a group, and no way to start at an offset but seek after run.
async function consumer (group, topic, fromBeginning, seek) {
  const inbox = new Inbox()
  let assigned = []
  const member = kafka.consumer({ groupId: group, heartbeatInterval: 200, maxWaitTimeInMs: 200, allowAutoTopicCreation: false })
  member.on(member.events.GROUP_JOIN, ({ payload }) => { assigned = payload.memberAssignment[topic] ?? [] })
  member.on(member.events.REBALANCING, () => { assigned = [] })
  member.on(member.events.CRASH, ({ payload }) => inbox.fail(payload.error))
  const joined = new Promise(resolve => member.on(member.events.GROUP_JOIN, resolve))
  await member.connect()
  await member.subscribe({ topic, fromBeginning })
  await member.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => inbox.push({
      partition,
      offset: Number(message.offset),
      key: message.key,
      value: message.value,
      headers: Object.entries(message.headers)
    })
  })
  if (seek !== undefined) member.seek({ topic, partition: 0, offset: String(seek) })
  await joined
  return {
    read: n => inbox.read(n),
    assigned: () => assigned,
    commit: r => member.commitOffsets([{ topic, partition: r.partition, offset: String(r.offset + 1) }]),
    close: () => member.disconnect()
  }
}

let groups = 0

run({
  createTopic: (topic, numPartitions, configs) => withAdmin(admin => admin.createTopics({
    topics: [{
      topic,
      numPartitions,
      replicationFactor: 1,
      configEntries: Object.entries(configs).map(([name, value]) => ({ name, value }))
    }]
  })),
  partitionCount: topic => withAdmin(async admin =>
    (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length),
  touchUnknown: topic => withAdmin(admin => admin.fetchTopicOffsets(topic)),

  async produce (topic, codec, acks, records) {
    const producer = kafka.producer({
      allowAutoTopicCreation: false,
      idempotent: acks === -1,
      createPartitioner: kafkajs.Partitioners.DefaultPartitioner
    })
    await producer.connect()
    try {
      const answers = await producer.send({
        topic,
        acks,
        compression: codecs[codec],
        messages: records.map(r => ({
          partition: r.partition,
          key: r.key,
          value: r.value,
          headers: Object.fromEntries(r.headers)
        }))
      })
      for (const { partition, baseOffset } of answers) {
        records.filter(r => r.partition === partition).forEach((r, i) => { r.offset = Number(baseOffset) + i })
      }
    } finally {
      await producer.disconnect()
    }
  },

  open: (topic, _partitions, start) => consumer(`${topic}-reader-${groups++}`, topic, start === START,
    start === START || start === END ? undefined : start),
  join: (group, topic) => consumer(group, topic, true),
  // A retriable error comes as the cause of the one that says that the retries are used up.
  isUnknownTopic: e => e.name === 'KafkaJSNumberOfRetriesExceeded' && e.cause.type === 'UNKNOWN_TOPIC_OR_PARTITION',
  isTooLarge: e => e.name === 'KafkaJSProtocolError' && e.type === 'MESSAGE_TOO_LARGE',

  // kafkajs hides this error from its user: it goes on at the start or the end, as fromBeginning says.
  async farAhead (topic) {
    const reader = await consumer(`${topic}-reader-${groups++}`, topic, true, 1_000_000)
    try {
      let first
      do {
        [first] = await reader.read(1)
      } while (first.partition !== 0)
      return first.offset === 0
    } finally {
      await reader.close()
    }
  },

  further: { transactions: (client, topic) => transactions(kafka, topic, client.createTopic) }
})
