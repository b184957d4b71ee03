// BullMQ's part of BenchmarkDrain. The argument is a drainTask as JSON: enqueues jobs if it says
// how many, else runs a worker until stdin ends.
import { Queue, Worker } from 'bullmq';
import { Pool } from 'undici';

const task = JSON.parse(process.argv[2]);
const [host, port] = task.redis.split(':');
const connection = { host, port: Number(port), maxRetriesPerRequest: null };

if (task.enqueue > 0) {
  await enqueue();
} else {
  work();
}

async function enqueue() {
  const queue = new Queue(task.queue, { connection });
  const job = { name: 'publish', data: task.payload };
  for (let left = task.enqueue; left > 0; left -= 1000) {
    await queue.addBulk(Array(Math.min(left, 1000)).fill(job));
  }
  await queue.close();
}

function work() {
  const url = task.url ? new URL(task.url) : null;
  const api = url && new Pool(url.origin, { connections: task.concurrency });

  async function publish(job) {
    const { statusCode, body } = await api.request({
      method: 'POST',
      path: url.pathname,
      headers: { 'Content-Type': 'application/json', 'Idempotency-Key': job.id },
      body: JSON.stringify(job.data),
    });
    await body.dump();
    if (statusCode >= 300) {
      throw new Error(`status ${statusCode}`);
    }
  }

  const worker = new Worker(task.queue, api ? publish : async () => {}, {
    connection,
    concurrency: task.concurrency,
    removeOnComplete: { age: task.retention },
  });
  worker.on('error', (err) => console.error(err));
  worker.on('failed', (job, err) => console.error(err));
  process.stdin.on('end', async () => {
    await worker.close();
    await api?.close();
  }).resume();
}
