// Client of Tidegate's HTTP API: fetch and Web Crypto, nothing else. Types and descriptions are in index.d.ts.

const ENDED = new Set(['completed', 'failed', 'cancelled', 'expired'])
const REPEATED = new Set([429, 502, 503, 504])
const AT_ONCE = 1000 // jobs of one request of enqueueMany
const LONGEST_WAIT = 30 // seconds of one request that waits
const TELLING = /limit|remaining|reset|retry|quota|usage|^date$|^age$/i // other headers may hold secrets

const part = encodeURIComponent
// A last line that is a problem says that the list broke off.
const jobOf = (line) => {
  const job = JSON.parse(line)
  if (!job.id && typeof job.status === 'number') throw new TidegateError(job.status, job)
  return job
}
const sleep = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds))
const env = (name) => globalThis.process?.env?.[name]

export class TidegateError extends Error {
  constructor(status, problem, retryAfter) {
    const details = (problem.errors ?? []).map((e) => `${e.location}: ${e.message}`).join('; ')
    super(`${status}: ${problem.detail ?? problem.title ?? 'no details'}${details && ` (${details})`}`)
    this.name = new.target.name
    Object.assign(this, { status, problem, retryAfter, errors: problem.errors ?? [] })
  }
}

export class PermitRefused extends TidegateError {
  get reason() {
    return this.problem.reason ?? ''
  }

  get until() {
    return this.problem.until
  }
}

export class Tidegate {
  #base
  #token
  #timeout
  #retries

  constructor({ baseURL, token, timeout = 30, retries = 5 } = {}) {
    this.#base = (baseURL ?? env('TIDEGATE_URL') ?? 'http://127.0.0.1:8080').replace(/\/+$/, '')
    this.#token = token ?? env('TIDEGATE_TOKEN')
    this.#timeout = timeout
    this.#retries = retries
  }

  enqueue(destination, payload, fields = {}) {
    return this.#json('POST', '/v1/jobs', { id: crypto.randomUUID(), ...fields, destination, payload })
  }

  async enqueueMany(jobs) {
    const counts = { accepted: 0, duplicates: 0, rejected: 0, items: [] }
    let sent = 0
    let several = []
    const send = async () => {
      const body = several.map((job) => JSON.stringify(job) + '\n').join('')
      const answer = await this.#json('POST', '/v1/jobs', body, { 'content-type': 'application/x-ndjson' }).catch((e) => {
        if (e instanceof TidegateError && e.status === 422 && e.problem.items) return e.problem
        throw e
      })
      for (const name of ['accepted', 'duplicates', 'rejected']) counts[name] += answer[name] ?? 0
      for (const item of answer.items ?? []) counts.items.push({ ...item, index: sent + item.index })
      sent += several.length
      several = []
    }
    for await (const job of jobs) {
      several.push({ id: crypto.randomUUID(), ...job })
      if (several.length === AT_ONCE) await send()
    }
    if (several.length) await send()
    return counts
  }

  get(id) {
    return this.#json('GET', `/v1/jobs/${part(id)}`)
  }

  wait(id, { timeout = 60 } = {}) {
    return this.#wait(`/v1/jobs/${part(id)}`, timeout, (job) => ENDED.has(job.status))
  }

  cancel(id, reason) {
    return this.#json('POST', `/v1/jobs/${part(id)}/cancel`, reason ? { reason } : undefined)
  }

  markExpired(id, reason) {
    return this.#json('POST', `/v1/jobs/${part(id)}/expire`, reason ? { reason } : undefined)
  }

  async now() {
    return new Date((await this.#json('GET', '/v1/time')).now)
  }

  async *listJobs({ labels = {}, ...filters } = {}) {
    const query = new URLSearchParams()
    for (const [name, value] of Object.entries(filters)) for (const one of [value].flat()) if (one !== undefined) query.append(name, one)
    for (const [key, value] of Object.entries(labels)) query.append('label', `${key}=${value}`)
    for (;;) {
      const page = await this.#json('GET', `/v1/jobs?${query}`)
      yield* page.items
      if (!page.next) return
      query.set('cursor', page.next)
    }
  }

  act(action, selection) {
    return this.#json('POST', `/v1/jobs/${part(action)}`, selection)
  }

  complete(id, output) {
    return this.#report(id, { status: 'completed', output })
  }

  fail(id, error) {
    return this.#report(id, { status: 'failed', error: error || undefined })
  }

  progress(id, progress, { extend } = {}) {
    return this.#report(id, { progress, extend: extend === undefined ? undefined : `${extend}s` })
  }

  #report(id, result) {
    return this.#json('PATCH', `/v1/jobs/${part(id)}`, result)
  }

  retry(id, { set, reason } = {}) {
    return this.#json('POST', `/v1/jobs/${part(id)}/retry`, set || reason ? { set, reason } : undefined)
  }

  batch(name) {
    return this.#json('GET', `/v1/batches/${part(name)}`)
  }

  waitBatch(name, { timeout = 60 } = {}) {
    return this.#wait(`/v1/batches/${part(name)}`, timeout, (batch) => batch.done)
  }

  async *batchJobs(name, { timeout = Infinity } = {}) {
    const deadline = Date.now() / 1000 + timeout
    const yielded = new Set()
    for (let pause = 1; ; pause = Math.min(2 * pause, 30)) {
      const last = Date.now() / 1000 >= deadline
      const began = Date.now() / 1000
      let unended = 0
      for await (const job of this.#jobsOf(name)) {
        if (yielded.has(job.id)) continue
        if (ENDED.has(job.status) || last) {
          yielded.add(job.id)
          yield job
        } else unended++
      }
      if (unended === 0) return
      const now = Date.now() / 1000
      // Each pass reads the whole batch: it takes at most half of the time.
      await this.waitBatch(name, { timeout: Math.max(0, Math.min(deadline - now, Math.max(pause, now - began))) })
    }
  }

  async *#jobsOf(name) {
    const response = await this.#open('GET', `/v1/batches/${part(name)}/jobs`, undefined, { accept: 'application/x-ndjson' }, { streams: true })
    let rest = ''
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + chunk).split('\n')
      rest = lines.pop()
      for (const line of lines) if (line.trim()) yield jobOf(line)
    }
    if (rest.trim()) yield jobOf(rest)
  }

  cancelBatch(name, reason) {
    return this.act('cancel', { batch: name, ...(reason && { reason }) })
  }

  async permit(destination, { key, cost = 1, wait = 0, lease, ...fields } = {}) {
    const body = { ...fields, destination, cost, ...(key && { key }), ...(lease && { lease: `${lease}s` }) }
    const deadline = Date.now() / 1000 + wait
    for (;;) {
      const left = deadline - Date.now() / 1000
      const seconds = left > 0 ? Math.max(1, Math.min(Math.round(left), LONGEST_WAIT)) : 0
      try {
        const headers = seconds ? { prefer: `wait=${seconds}` } : {}
        const granted = await this.#json('POST', '/v1/permits', body, headers, { patience: seconds, refusable: true })
        return new Permit(granted, (report) => this.#json('POST', `/v1/permits/${part(granted.id)}/report`, report))
      } catch (e) {
        if (e.status !== 429) throw e
        const rest = deadline - Date.now() / 1000
        if (rest <= 0) throw new PermitRefused(e.status, e.problem, e.retryAfter)
        await sleep(Math.min(rest, Math.max(0.05, Math.min(e.retryAfter ?? 1, 5))))
      }
    }
  }

  async #wait(path, timeout, ended) {
    const deadline = Date.now() / 1000 + timeout
    for (let pause = 0.1; ; ) {
      const began = Date.now() / 1000
      const left = Math.max(0, Math.min(deadline - began, LONGEST_WAIT))
      const answer = await this.#json('GET', `${path}?wait=${left.toFixed(3)}s`, undefined, {}, { patience: left })
      const now = Date.now() / 1000
      if (ended(answer) || now >= deadline) return answer
      if (now - began >= left / 2) continue
      await sleep(Math.min(pause, deadline - now)) // an early answer, such as of an instance that stops
      pause = Math.min(2 * pause, 5)
    }
  }

  async #json(method, path, body, headers, how) {
    const response = await this.#open(method, path, body, headers, how)
    const text = await response.text()
    return text ? JSON.parse(text) : undefined
  }

  async #open(method, path, body, headers = {}, { patience = 0, refusable = false, streams = false } = {}) {
    const data = body === undefined || typeof body === 'string' ? body : JSON.stringify(body)
    const all = { ...(data !== undefined && { 'content-type': 'application/json' }), ...headers }
    if (this.#token) all.authorization = `Bearer ${this.#token}`
    for (let tried = 0; ; tried++) {
      const last = tried >= this.#retries
      let pause = Math.min(10, 0.2 * 2 ** tried) * (0.5 + Math.random() / 2)
      let response
      try {
        // A stream may last; its first byte may not.
        const signal = streams ? undefined : AbortSignal.timeout(Math.ceil(1000 * (this.#timeout + patience)))
        response = await fetch(this.#base + path, { method, headers: all, body: data, signal, redirect: 'manual' })
      } catch (e) {
        if (last) throw e
      }
      if (response?.ok) return response
      if (response) {
        const moved = response.type === 'opaqueredirect' || (response.status >= 300 && response.status < 400)
        const problem = moved ? { detail: "redirects are not followed: give baseURL the API's own address" } : await response.json().catch(() => ({}))
        const retryAfter = Number(response.headers.get('retry-after') ?? NaN)
        const error = new TidegateError(response.status, problem ?? {}, retryAfter >= 0 ? retryAfter : undefined)
        if (last || !REPEATED.has(response.status) || (refusable && response.status === 429)) throw error
        pause = Math.max(pause, Math.min(error.retryAfter ?? 0, 30))
      }
      await sleep(pause)
    }
  }
}

export class Permit {
  #report
  #reported = false

  constructor(granted, report) {
    this.id = granted.id
    this.granted = granted
    this.#report = report
  }

  async report(outcome, fields = {}) {
    return this.#send({ outcome, ...fields })
  }

  async response(response, fields = {}) {
    const told = [...response.headers].filter(([name]) => TELLING.test(name))
    return this.#send({ status: response.status, headers: Object.fromEntries(told), ...fields })
  }

  async #send(report) {
    if (this.#reported) return false
    this.#reported = true
    try {
      await this.#report(report)
      return true
    } catch (e) {
      if (e.status !== 404) throw e
      return false
    }
  }

  // Without a report the call may have been made or not: that teaches nothing.
  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    await this.report('neutral')
  }
}

export async function verifyCallback(secret, headers, body) {
  const given = headers instanceof Headers ? headers : new Headers(Object.entries(headers).flatMap(([k, v]) => (typeof v === 'string' ? [[k, v]] : [])))
  const stamp = given.get('webhook-timestamp') ?? ''
  if (!/^\d+$/.test(stamp) || Math.abs(Date.now() / 1000 - Number(stamp)) > 300) {
    throw new Error('the timestamp is missing, too old or in the future')
  }
  const bytes = typeof body === 'string' ? new TextEncoder().encode(body) : body
  const head = new TextEncoder().encode(`${given.get('webhook-id')}.${stamp}.`)
  const signed = new Uint8Array(head.length + bytes.length)
  signed.set(head)
  signed.set(bytes, head.length)
  for (const one of secret.split(',')) {
    const raw = Uint8Array.from(atob(one.trim().replace(/^whsec_/, '')), (c) => c.charCodeAt(0))
    if (raw.length < 16) throw new Error('a secret is empty or too short')
    const key = await crypto.subtle.importKey('raw', raw, { name: 'HMAC', hash: 'SHA-256' }, false, ['verify'])
    for (const signature of (given.get('webhook-signature') ?? '').split(' ')) {
      if (!signature.startsWith('v1,')) continue
      let mac
      try {
        mac = Uint8Array.from(atob(signature.slice(3)), (c) => c.charCodeAt(0))
      } catch {
        continue
      }
      if (await crypto.subtle.verify('HMAC', key, mac, signed)) return JSON.parse(new TextDecoder().decode(bytes))
    }
  }
  throw new Error('no signature is by this secret')
}
