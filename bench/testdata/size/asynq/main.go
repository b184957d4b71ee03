// Command asynq enqueues a task with asynq's client.
package main

import (
	"log"

	"github.com/hibiken/asynq"
)

func main() {
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: "127.0.0.1:6379"})
	if _, err := client.Enqueue(asynq.NewTask("publish", []byte(`{"title":"Sunset"}`))); err != nil {
		log.Fatal(err)
	}
}
