// Receives Tidegate's callbacks and verifies them. Needs only Node.js 18 or later.
//
//   WEBHOOK_SECRET=whsec_… PORT=8000 node receive.mjs

import { createHmac, timingSafeEqual } from 'node:crypto'
import { createServer } from 'node:http'

// verify throws unless the callback was signed with the secret, within the last five
// minutes. body is a Buffer.
export function verify(secret, headers, body) {
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64')
  const stamp = headers['webhook-timestamp'] ?? ''
  if (!/^\d+$/.test(stamp) || Math.abs(Date.now() / 1000 - Number(stamp)) > 300) {
    throw new Error('the timestamp is missing, too old or in the future')
  }
  const mac = createHmac('sha256', key).update(`${headers['webhook-id']}.${stamp}.`).update(body)
  const want = Buffer.from('v1,' + mac.digest('base64'))
  for (const signature of (headers['webhook-signature'] ?? '').split(' ')) {
    const given = Buffer.from(signature)
    // In constant time; only the lengths may leak.
    if (given.length === want.length && timingSafeEqual(given, want)) return
  }
  throw new Error('no signature is by this secret')
}

// Callbacks are far shorter; the sender is not verified yet.
const MOST = 1 << 20

// read returns the body as a Buffer, or null if it is longer than MOST.
async function read(request) {
  const chunks = []
  let length = 0
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    length += chunk.length
    if (length > MOST) return null
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

const server = createServer(async (request, response) => {
  let body
  try {
    // The raw bytes: the signature does not match JSON that was parsed and encoded again.
    body = await read(request)
  } catch {
    return // the sender has left
  }
  if (body === null) {
    response.writeHead(413, { connection: 'close' }).end('too long')
    return
  }
  try {
    verify(process.env.WEBHOOK_SECRET, request.headers, body)
  } catch (problem) {
    response.writeHead(401).end(problem.message)
    return
  }
  const event = JSON.parse(body)
  // Here: ignore a webhook-id that was handled before. Otherwise handle the event, or
  // enqueue it, and store the id.
  console.log(request.headers['webhook-id'], event.type, event.data.id)
  response.writeHead(204).end()
})

server.requestTimeout = 10_000 // ms for all of a request
server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', () => {
  const { address, port } = server.address()
  console.log(`listening on ${address}:${port}`)
})
