import json, os, time

import psycopg
from tidegate import Tidegate


def move(db, client):
    """Enqueues the jobs of up to 500 rows, then deletes the rows. Returns their number."""
    with db.transaction():
        rows = db.execute("""SELECT id, destination, key, payload FROM outbox
            WHERE error IS NULL ORDER BY position LIMIT 500 FOR UPDATE SKIP LOCKED""").fetchall()
        fields = ("id", "destination", "key", "payload")
        answer = client.enqueue_many(dict(zip(fields, row)) for row in rows)
        refused = {rows[item["index"]][0]: item["errors"] for item in answer["items"] if item.get("errors")}
        for id, errors in refused.items():
            db.execute("UPDATE outbox SET error = %s WHERE id = %s", (json.dumps(errors), id))
        enqueued = [row[0] for row in rows if row[0] not in refused]
        db.execute("DELETE FROM outbox WHERE id = ANY(%s)", (enqueued,))
        return len(rows)


with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as db:
    client = Tidegate()  # TIDEGATE_URL, TIDEGATE_TOKEN
    while True:
        if move(db, client) == 0:
            time.sleep(1)
