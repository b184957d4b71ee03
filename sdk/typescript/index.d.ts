/** A status of a job. */
export type Status = 'waiting' | 'pending' | 'running' | 'retry_pending' | 'paused' | 'completed' | 'failed' | 'cancelled' | 'expired'

/** Retry policy: calls after the first. */
export interface Retry {
  max_retries: number
  initial_delay_secs?: number
  max_delay_secs?: number
  backoff_multiplier?: number
  retry_on?: ('timeout' | 'failure' | 'explicit')[]
}

/** What an enqueue may say besides destination and payload; docs/api.md and the OpenAPI document describe all fields. */
export interface JobFields {
  /** With an id of your own the enqueue may be repeated; a UUID unless given. */
  id?: string
  key?: string
  batch?: string
  priority?: 'high' | 'default' | 'low'
  /** key: the jobs of the key are called one at a time, as they become due; none: at any time. Else as the destination says. */
  order?: 'key' | 'none'
  /** Such as "1h", or seconds. */
  ttl?: string | number
  expires_at?: string
  available_at?: string
  /** From the enqueue on: "5s", or seconds. */
  delay?: string | number
  /** The newest job of this key wins: one that has not started ends as cancelled. With a delay each new job begins the wait anew. */
  replace?: string
  /** The longest such wait, from the first job on. */
  replace_max?: string | number
  /** Up to 4 free labels to find the job by. */
  labels?: Record<string, string>
  retry?: Retry
  cost?: number
  max_reschedules?: number
  after?: string[]
  request?: { method?: string; path?: string; query?: string; headers?: Record<string, string>; encoding?: 'json' | 'form' | 'multipart' | 'raw'; timeout_secs?: number }
  [field: string]: unknown
}

/** Selects jobs. A job has all of the labels. */
export interface JobFilter {
  status?: Status | Status[]
  destination?: string
  key?: string
  batch?: string
  labels?: Record<string, string>
  since?: string
  until?: string
  error?: string
  cause?: string
}

export interface Job {
  id: string
  destination: string
  key: string
  status: Status
  attempt: number
  reschedule_count: number
  /** null also if the token has neither the scope payloads nor operate. */
  response: { status: number; body: string } | null
  last_error: string
  waiting: { reason: string; text: string; until?: string | null; [field: string]: unknown } | null
  duplicate: boolean
  labels?: Record<string, string>
  /** The id of the job that it replaced. */
  replaced?: string
  /** A failed job that keeps its place in the order of its key: the later ones wait until it is retried or cancelled. */
  blocks?: boolean
  [field: string]: unknown
}

/** What an action came to; asked: it counts when the call of the job has ended. */
export interface Acted {
  id: string
  done: boolean
  asked: boolean
  status: Status
}

export interface Batch {
  batch: string
  total: number
  counts: Partial<Record<Status, number>>
  progress: number
  done: boolean
  [field: string]: unknown
}

export interface Counts {
  accepted: number
  duplicates: number
  rejected: number
  /** The rejected jobs, by their place among those that were given. */
  items: { index: number; id?: string; duplicate: boolean; errors?: { location: string; message: string }[] }[]
}

/** What a call came to. unused: no call was made. */
export type Outcome = 'success' | 'limited' | 'failure' | 'unauthorized' | 'neutral' | 'unused'

/** A request was refused. */
export class TidegateError extends Error {
  readonly status: number
  /** The response's document (RFC 9457). */
  readonly problem: Record<string, unknown>
  /** Seconds. */
  readonly retryAfter?: number
  readonly errors: { location: string; message: string }[]
}

/** No call may be made now. */
export class PermitRefused extends TidegateError {
  readonly reason: string
  readonly until?: string
}

/**
 * A client of the HTTP API. A request that got no response, or 429 or 503, is repeated: jobs have an id, so that none
 * is enqueued twice. Times are seconds.
 */
export class Tidegate {
  /** baseURL and token default to TIDEGATE_URL and TIDEGATE_TOKEN. */
  constructor(options?: { baseURL?: string; token?: string; timeout?: number; retries?: number })
  enqueue(destination: string, payload: unknown, fields?: JobFields): Promise<Job>
  /** Enqueues any number of jobs, a thousand a request while the iterable yields them. */
  enqueueMany(jobs: Iterable<{ destination: string; payload: unknown } & JobFields> | AsyncIterable<{ destination: string; payload: unknown } & JobFields>): Promise<Counts>
  get(id: string): Promise<Job>
  /** Waits until the job has ended; returns it as it is if the timeout is over before. */
  wait(id: string, options?: { timeout?: number }): Promise<Job>
  cancel(id: string, reason?: string): Promise<Acted>
  /** Expires a job that waits, before its time: it never runs, and its children are cancelled. */
  markExpired(id: string, reason?: string): Promise<Acted>
  /** The time of Redis, by which jobs start, are retried and expire. */
  now(): Promise<Date>
  /** Yields the jobs of a filter, the newest first and without payloads. limit is the size of a request's page. */
  listJobs(filter?: JobFilter & { limit?: number }): AsyncGenerator<Job, void, void>
  /** Acts on all jobs of a filter. */
  act(action: 'cancel' | 'pause' | 'resume' | 'retry' | 'expire', selection: Omit<JobFilter, 'status'> & { status?: Status[]; reason?: string; dry_run?: boolean; set?: Record<string, unknown> }): Promise<{ matched?: number; done: number; asked: number; refused: number }>
  /** Completes a job that its API has accepted; its children start with the output. */
  complete(id: string, output?: unknown): Promise<Acted>
  /** Fails a job that its API has accepted. Its policy decides whether it runs again. */
  fail(id: string, error?: string): Promise<Acted>
  /** Says how far a job is that its API has accepted; extend moves the deadline of its result by so many seconds. */
  progress(id: string, progress?: unknown, options?: { extend?: number }): Promise<Acted>
  /** Runs a failed or cancelled job again. set changes it before: values by their paths, such as { 'payload.title': 'Sunset' }. */
  retry(id: string, options?: { set?: Record<string, unknown>; reason?: string }): Promise<Acted>
  batch(name: string): Promise<Batch>
  waitBatch(name: string, options?: { timeout?: number }): Promise<Batch>
  /**
   * Yields each job of a batch once it has ended, and returns when all have: jobs that wait, such as scheduled or paused
   * ones, are waited for. After the timeout (seconds; none unless given; 0: at once) it yields the others as they are.
   * A job's response is null if the token has neither the scope payloads nor operate.
   */
  batchJobs(name: string, options?: { timeout?: number }): AsyncGenerator<Job, void, void>
  cancelBatch(name: string, reason?: string): Promise<{ done: number; asked: number; refused: number }>
  /**
   * The permit of one call that is no job; rejects with PermitRefused. With wait it queues for it. A permit that is
   * not reported ends with its lease.
   *
   *     await using permit = await client.permit('shop', { key: 'alice', wait: 30 })
   *     await permit.response(await fetch(url))
   */
  permit(destination: string, options?: { key?: string; cost?: number; wait?: number; lease?: number; costs?: Record<string, number>; payload?: unknown }): Promise<Permit>
}

export class Permit {
  readonly id: string
  readonly granted: Record<string, unknown>
  /**
   * Only the first report counts. fields: retry_after ("30s"), cost and costs that it really had, error. False: the
   * permit had ended before, by its lease or an earlier report.
   */
  report(outcome: Outcome, fields?: { retry_after?: string; cost?: number; costs?: Record<string, number>; error?: string }): Promise<boolean>
  /** Reports the API's response: Tidegate reads its status, and limits from its headers. */
  response(response: Response, fields?: { cost?: number; costs?: Record<string, number> }): Promise<boolean>
  [Symbol.asyncDispose](): Promise<void>
}

/**
 * Returns the event of a callback that was signed with secret within the last five minutes; otherwise rejects. body is
 * what came, byte for byte.
 */
export function verifyCallback(secret: string, headers: Headers | Record<string, string | string[] | undefined>, body: string | Uint8Array): Promise<{ type: string; timestamp: string; data: Record<string, unknown> }>
