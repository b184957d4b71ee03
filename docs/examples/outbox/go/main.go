// Command relay moves jobs from a table in Postgres to Tidegate.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"log"
	"os"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

// move enqueues the jobs of up to 500 rows, then deletes the rows. It returns their number.
func move(ctx context.Context, db *sql.DB, client *jobs.Client) (int, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	rows, err := tx.QueryContext(ctx, `SELECT id, destination, key, payload FROM outbox
		WHERE error IS NULL ORDER BY position LIMIT 500 FOR UPDATE SKIP LOCKED`)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	var specs []*jobs.Spec
	for rows.Next() {
		var id, destination, key string
		var payload json.RawMessage
		if err := rows.Scan(&id, &destination, &key, &payload); err != nil {
			return 0, err
		}
		specs = append(specs, jobs.New(destination, payload, jobs.ID(id), jobs.Key(key)))
	}
	if err := rows.Err(); err != nil || len(specs) == 0 {
		return 0, err
	}
	results, err := client.EnqueueMany(ctx, specs)
	if err != nil {
		return 0, err
	}
	var enqueued []string
	for i, result := range results {
		if result.Err == nil {
			enqueued = append(enqueued, specs[i].ID)
		} else if !jobs.Refused(result.Err) {
			return 0, result.Err
		} else if _, err := tx.ExecContext(ctx, `UPDATE outbox SET error = $2 WHERE id = $1`, specs[i].ID, result.Err.Error()); err != nil {
			return 0, err
		}
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM outbox WHERE id = ANY($1)`, enqueued); err != nil {
		return 0, err
	}
	return len(specs), tx.Commit()
}

func main() {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	client, err := jobs.NewClient(redis.NewClient(options))
	if err != nil {
		log.Fatal(err)
	}
	for {
		moved, err := move(context.Background(), db, client)
		if err != nil {
			log.Fatal(err) // the supervisor starts it again
		}
		if moved == 0 {
			time.Sleep(time.Second)
		}
	}
}
