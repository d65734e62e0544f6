// The scenarios that every Node client runs. A client is adapted by an object of async functions:
//
//   createTopic(topic, partitions, configs), partitionCount(topic), touchUnknown(topic)   the last one must reject
//   produce(topic, codec, acks, records)      sets each record's offset unless acks is 0 (-1 is all)
//   open(topic, partitions, start)            a reader: START, END or an offset
//   join(group, topic)                        a reader with assigned() and commit(record)
//   isUnknownTopic(e), isTooLarge(e)          by the client's own error type
//   farAhead(topic)                           what the client does with an offset out of range; must return true
//   further                                   more scenarios of this client: name to async (client, topic) => …
//
// A reader has read(n), which resolves to n records, and close(). Each scenario prints one line,
// `CASE name PASS|FAIL seconds detail`.

import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

export const START = -2
export const END = -1
const PARTITIONS = 3
const CODECS = ['none', 'gzip', 'snappy', 'lz4', 'zstd']
const SCENARIO_MS = 30_000

// Records spread over the partitions in turn; every tenth value is null.
function records (tag, n, partitions = PARTITIONS) {
  return Array.from({ length: n }, (_, i) => ({
    partition: i % partitions,
    offset: -1,
    key: Buffer.from(`${tag}-${i}`),
    value: i % 10 === 7 ? null : Buffer.from(`${tag}:${i}:${'abcdefgh'.repeat(40)}`),
    headers: [['tag', Buffer.from(tag)], ['bin', Buffer.from([0, 255, 128, i])]]
  }))
}

export function check (holds, ...what) {
  if (!holds) throw new Error(what.join(' '))
}

const text = r => JSON.stringify([r.partition, r.offset, r.key?.toString('hex'), r.value?.toString('hex') ?? null,
  r.headers.map(([key, value]) => [key, Buffer.from(value).toString('hex')])])

function same (got, want) {
  const last = {}
  for (const r of got) {
    check(r.offset > (last[r.partition] ?? -1), 'partition', r.partition, 'offset', r.offset, 'out of order')
    last[r.partition] = r.offset
  }
  check(got.length === want.length, got.length, 'records, want', want.length)
  const order = (a, b) => a.partition - b.partition || a.offset - b.offset
  const sorted = [...want].sort(order)
  for (const [i, r] of [...got].sort(order).entries()) {
    check(text(r) === text(sorted[i]), 'got', text(r).slice(0, 300), 'want', text(sorted[i]).slice(0, 300))
  }
}

// In a topic nobody else writes to, the acknowledged offsets of a partition are start, start + 1, …
function consecutive (sent, start = 0) {
  const next = {}
  for (const r of sent) {
    const want = next[r.partition] ?? start
    check(r.offset === want, 'partition', r.partition, 'acknowledged at', r.offset, 'want', want)
    next[r.partition] = want + 1
  }
}

export async function until (what, holds) {
  const end = Date.now() + 20_000
  while (!holds()) {
    check(Date.now() < end, 'timed out:', what())
    await sleep(20)
  }
}

// A queue between a client that pushes records and a scenario that reads them.
export class Inbox {
  #records = []
  #error = null
  push (record) { this.#records.push(record) }
  fail (error) { this.#error ??= error }
  get size () { return this.#records.length }
  async read (n) {
    const got = []
    const end = Date.now() + 20_000
    while (got.length < n) {
      if (this.#error) throw this.#error
      check(Date.now() < end, 'received', got.length, 'of', n, 'records')
      got.push(...this.#records.splice(0, n - got.length))
      if (got.length < n) await sleep(5)
    }
    return got
  }
}

export async function run (client) {
  const prefix = process.env.PREFIX
  const topic = name => `${prefix}-${name}`
  const sent = {}

  async function scenario (name, body) {
    const start = Date.now()
    let error
    const limit = AbortSignal.timeout(SCENARIO_MS)
    const late = new Promise((_resolve, reject) => {
      limit.addEventListener('abort', () => reject(new Error(`not done after ${SCENARIO_MS} ms`)))
    })
    late.catch(() => {})
    try {
      await Promise.race([body(), late])
    } catch (e) {
      error = e
      console.error(name, e)
    }
    const detail = error ? String(error).replace(/\s+/g, ' ') : ''
    process.stdout.write(`CASE ${name} ${error ? 'FAIL' : 'PASS'} ${((Date.now() - start) / 1000).toFixed(1)} ${detail}\n`)
  }

  async function readBack (name, want) {
    const reader = await client.open(topic(name), PARTITIONS, START)
    try {
      same(await reader.read(want.length), want)
    } finally {
      await reader.close()
    }
  }

  async function rejects (what, is, call) {
    let error
    try {
      await call()
    } catch (e) {
      error = e
    }
    check(error, 'no error, want', what)
    check(is(error), 'want', what, 'got', error)
  }

  await scenario('create', async () => {
    for (const name of [...CODECS, 'acks', 'group']) await client.createTopic(topic(name), PARTITIONS, {})
    await client.createTopic(topic('resume'), 1, {})
    await client.createTopic(topic('small'), 1, { 'max.message.bytes': '1024' })
    const n = await client.partitionCount(topic('none'))
    check(n === PARTITIONS, n, 'partitions, want', PARTITIONS)
  })

  for (const codec of CODECS) {
    await scenario(`produce-${codec}`, async () => {
      const batch = records(codec, 30)
      await client.produce(topic(codec), codec, -1, batch)
      consecutive(batch)
      sent[codec] = batch
    })
  }

  await scenario('acks', async () => {
    const all = []
    for (const [i, acks] of [1, -1, 0].entries()) {
      const batch = records(`acks${acks}`, 9)
      await client.produce(topic('acks'), 'none', acks, batch)
      if (acks === 0) batch.forEach((r, j) => { r.offset = i * 3 + Math.floor(j / PARTITIONS) })
      consecutive(batch, i * 3)
      all.push(...batch)
    }
    await readBack('acks', all)
  })

  await scenario('consume-start', async () => {
    check(Object.keys(sent).length === CODECS.length, 'produced only', Object.keys(sent))
    for (const [name, want] of Object.entries(sent)) await readBack(name, want)
  })

  // Produces until something arrives: it must have been sent after the reader was opened at the end.
  await scenario('consume-end', async () => {
    const reader = await client.open(topic('none'), PARTITIONS, END)
    const late = new Set()
    try {
      let got
      const received = reader.read(1).then(r => { got = r[0] })
      for (let i = 0; !got; i++) {
        const batch = records(`late${i}`, PARTITIONS)
        await client.produce(topic('none'), 'none', -1, batch)
        batch.forEach(r => late.add(text(r)))
        await Promise.race([received, sleep(200)])
      }
      check(late.has(text(got)), 'received', text(got).slice(0, 300), 'which was not sent since')
    } finally {
      await reader.close()
    }
  })

  await scenario('rebalance', async () => {
    const has = member => [...member.assigned()].sort().join()
    const first = await client.join(topic('group'), topic('group'))
    try {
      await until(() => `the only member has ${has(first)}`, () => has(first) === '0,1,2')
      const second = await client.join(topic('group'), topic('group'))
      try {
        await until(() => `two members have ${has(first)} and ${has(second)}`, () => first.assigned().length > 0 &&
          second.assigned().length > 0 && [...first.assigned(), ...second.assigned()].sort().join() === '0,1,2')
      } finally {
        await second.close()
      }
      await until(() => `the member that stays has ${has(first)}`, () => has(first) === '0,1,2')
    } finally {
      await first.close()
    }
  })

  await scenario('resume', async () => {
    const name = topic('resume')
    const batch = records('resume', 20, 1)
    await client.produce(name, 'none', -1, batch)
    const first = await client.join(name, name)
    try {
      const got = await first.read(8)
      same(got, batch.slice(0, 8))
      await first.commit(got[7])
    } finally {
      await first.close()
    }
    const second = await client.join(name, name)
    try {
      same(await second.read(12), batch.slice(8))
    } finally {
      await second.close()
    }
  })

  await scenario('error-unknown-topic', () =>
    rejects('unknown topic', client.isUnknownTopic, () => client.touchUnknown(topic('nowhere'))))

  await scenario('error-too-large', async () => {
    const big = records('big', 1, 1)
    big[0].value = randomBytes(4000)
    await rejects('message too large', client.isTooLarge, () => client.produce(topic('small'), 'none', -1, big))
    const fits = records('fits', 1, 1)
    await client.produce(topic('small'), 'none', -1, fits)
    consecutive(fits)
  })

  await scenario('error-out-of-range', async () => {
    check(await client.farAhead(topic('none')), 'the offset out of range went unnoticed')
  })
  for (const [name, body] of Object.entries(client.further ?? {})) await scenario(name, () => body(client, topic))
  process.exit(0)
}
