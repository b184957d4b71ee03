// Command redis sends one command.
package main

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"
)

func main() {
	if err := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}).Ping(context.Background()).Err(); err != nil {
		log.Fatal(err)
	}
}
