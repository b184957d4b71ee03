// Tests against the server of TIDEGATE_URL, whose destination "shop" publishes; internal/test/e2e/sdk_test.go starts it.

import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { createServer } from 'node:http'
import test from 'node:test'

import { PermitRefused, Tidegate, TidegateError, verifyCallback } from '../index.js'

const client = new Tidegate()

test('a job is enqueued once and waited for', async () => {
  const fields = { id: 'ts-1', key: 'alice', ttl: '1h' }
  assert.equal((await client.enqueue('shop', { title: 'Dawn' }, fields)).duplicate, false)
  assert.equal((await client.enqueue('shop', { title: 'Dawn' }, fields)).duplicate, true)
  const done = await client.wait('ts-1', { timeout: 60 })
  assert.equal(done.status, 'completed', JSON.stringify(done))
  assert.equal(done.response.status, 201)
})

test('a bad job is refused with its field', async () => {
  await assert.rejects(client.enqueue('shop', 1, { priority: 'urgent' }), (e) => {
    assert.ok(e instanceof TidegateError)
    assert.equal(e.status, 422)
    assert.match(e.errors[0].location, /priority/)
    return true
  })
})

test('many jobs of a batch', async () => {
  const jobs = (function* () {
    for (let n = 0; n < 1200; n++) yield { destination: 'shop', payload: n, batch: 'ts' }
  })()
  const counts = await client.enqueueMany(jobs)
  assert.deepEqual([counts.accepted, counts.rejected], [1200, 0])
  await client.enqueue('shop', 1, { id: 'ts-far', batch: 'ts-far', available_at: '2100-01-01T00:00:00Z' })
  const far = []
  for await (const job of client.batchJobs('ts-far', { timeout: 0 })) far.push(job.status)
  assert.deepEqual(far, ['pending'])
  const ids = new Set()
  for await (const job of client.batchJobs('ts')) {
    assert.deepEqual([job.status, job.response.status], ['completed', 201])
    ids.add(job.id)
  }
  assert.equal(ids.size, 1200)
})

test('rejected ones are named by their place', async () => {
  const good = { destination: 'shop', payload: 1 }
  const bad = { destination: 'no such' }
  const counts = await client.enqueueMany([...Array(1000).fill(good), bad, bad]) // the second request is refused as a whole
  assert.deepEqual([counts.accepted, counts.rejected], [1000, 2])
  assert.deepEqual(counts.items.filter((item) => item.errors).map((item) => item.index), [1000, 1001])
})

test('cancel', async () => {
  await client.enqueue('shop', 1, { id: 'ts-later', available_at: '2100-01-01T00:00:00Z' })
  assert.ok((await client.cancel('ts-later', 'wrong')).done)
  assert.equal((await client.wait('ts-later', { timeout: 5 })).status, 'cancelled')
})

test('expire, and the time of the server', async () => {
  await client.enqueue('shop', 1, { id: 'ts-stale', available_at: new Date((await client.now()).getTime() + 86400e3).toISOString() })
  assert.ok((await client.markExpired('ts-stale', 'no longer needed')).done)
  assert.equal((await client.wait('ts-stale', { timeout: 5 })).status, 'expired')
  assert.ok(Math.abs((await client.now()) - Date.now()) < 60e3)
})

test('labels', async () => {
  for (const [id, run] of [['ts-l1', '1'], ['ts-l2', '2']]) {
    await client.enqueue('shop', 1, { id, labels: { team: 'ts', run }, available_at: '2100-01-01T00:00:00Z' })
  }
  assert.deepEqual((await client.get('ts-l1')).labels, { team: 'ts', run: '1' })
  const ids = async (filter) => {
    const found = []
    for await (const job of client.listJobs(filter)) found.push(job.id)
    return found.sort()
  }
  assert.deepEqual(await ids({ labels: { team: 'ts' }, destination: 'shop', status: ['pending', 'paused'], limit: 1 }), ['ts-l1', 'ts-l2'])
  assert.equal((await client.act('cancel', { labels: { team: 'ts', run: '2' } })).done, 1)
  assert.deepEqual(await ids({ labels: { team: 'ts' }, status: 'pending' }), ['ts-l1'])
})

test('results from outside', async () => {
  const retry = { max_retries: 1, initial_delay_secs: 3600 }
  for (const id of ['ts-good', 'ts-bad']) {
    await client.enqueue('shop', 1, { id, request: { path: '/accept' }, retry })
    while ((await client.get(id)).waiting?.reason !== 'accepted') await new Promise((again) => setTimeout(again, 20))
  }
  await client.progress('ts-good', { percent: 40 }, { extend: 3600 })
  assert.deepEqual((await client.get('ts-good')).progress, { percent: 40 })
  await client.complete('ts-good', { n: 7 })
  assert.deepEqual((await client.wait('ts-good', { timeout: 60 })).output, { n: 7 })
  await client.fail('ts-bad', 'damaged')
  const failed = await client.get('ts-bad')
  assert.deepEqual([failed.status, failed.attempt, failed.last_error], ['retry_pending', 1, 'damaged'])
})

test('permits: a limited response stops the next caller', async () => {
  await (await client.permit('uploads', { key: 'ts' })).response(new Response(null, { status: 201 }))
  const permit = await client.permit('uploads', { key: 'ts' })
  await permit.response(new Response(null, { status: 429, headers: { 'retry-after': '60' } }))
  await assert.rejects(client.permit('uploads', { key: 'ts' }), (e) => {
    assert.ok(e instanceof PermitRefused)
    assert.ok(e.retryAfter > 30)
    assert.equal(e.reason, 'breaker_open')
    return true
  })
})

test('redirects are not followed, and early answers not repeated at once', async () => {
  const asked = []
  const server = createServer((request, response) => {
    asked.push(request.url.split('?')[0])
    if (request.url.includes('moved')) response.writeHead(307, { location: '/elsewhere' }).end()
    else if (request.method === 'POST' && request.url === '/v1/permits') response.end('{"id":"late"}')
    else if (request.method === 'POST') response.writeHead(404).end('{"detail":"there is no such permit"}')
    else response.end('{"status":"pending"}')
  })
  await new Promise((done) => server.listen(0, '127.0.0.1', done))
  try {
    const strange = new Tidegate({ baseURL: `http://127.0.0.1:${server.address().port}`, token: 'tg_secret' })
    await assert.rejects(strange.get('moved'), (e) => e.status === 307 && /baseURL/.test(e.message))
    assert.deepEqual(asked, ['/v1/jobs/moved'])
    assert.equal((await strange.wait('early', { timeout: 1 })).status, 'pending')
    assert.ok(asked.length < 8, asked)
    assert.equal(await (await strange.permit('uploads')).report('success'), false)
  } finally {
    server.close()
  }
})

test('signatures of callbacks', async () => {
  const key = Buffer.alloc(32, 'k')
  const body = '{"type":"job.completed"}'
  const stamp = String(Math.floor(Date.now() / 1000))
  const mac = createHmac('sha256', key).update(`id.${stamp}.${body}`).digest('base64')
  const headers = { 'webhook-id': 'id', 'webhook-timestamp': stamp, 'webhook-signature': `v1,bad v1,${mac}` }
  const secret = `whsec_${key.toString('base64')}`
  assert.equal((await verifyCallback(`whsec_${Buffer.alloc(32, 'o').toString('base64')},${secret}`, headers, body)).type, 'job.completed')
  await assert.rejects(verifyCallback(secret, headers, body + ' '))
  await assert.rejects(verifyCallback(secret, { ...headers, 'webhook-timestamp': '1' }, body))
})
