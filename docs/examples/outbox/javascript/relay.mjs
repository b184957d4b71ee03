import { setTimeout } from 'node:timers/promises'
import pg from 'pg'
import { Tidegate } from 'tidegate'

const db = new pg.Client({ connectionString: process.env.DATABASE_URL })
const client = new Tidegate() // TIDEGATE_URL, TIDEGATE_TOKEN

// Enqueues the jobs of up to 500 rows, then deletes the rows. Returns their number.
async function move() {
  await db.query('BEGIN')
  const { rows } = await db.query(`SELECT id, destination, key, payload FROM outbox
    WHERE error IS NULL ORDER BY position LIMIT 500 FOR UPDATE SKIP LOCKED`)
  const { items } = await client.enqueueMany(rows)
  const refused = new Map(items.filter((item) => item.errors).map((item) => [rows[item.index].id, item.errors]))
  for (const [id, errors] of refused) {
    await db.query('UPDATE outbox SET error = $2 WHERE id = $1', [id, JSON.stringify(errors)])
  }
  const enqueued = rows.map((row) => row.id).filter((id) => !refused.has(id))
  await db.query('DELETE FROM outbox WHERE id = ANY($1)', [enqueued])
  await db.query('COMMIT')
  return rows.length
}

await db.connect()
for (;;) {
  if ((await move()) === 0) await setTimeout(1000) // an error ends the process, which rolls back
}
