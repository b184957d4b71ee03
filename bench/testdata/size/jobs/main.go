// Command jobs enqueues a job: its size is what a program that only enqueues pays.
package main

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

func main() {
	client, err := jobs.NewClient(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Enqueue(context.Background(), jobs.New("shop", map[string]any{"title": "Sunset"})); err != nil {
		log.Fatal(err)
	}
}
