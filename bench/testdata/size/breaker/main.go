// Command breaker makes a call under a breaker.
package main

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
)

func main() {
	ctx := context.Background()
	b, err := breaker.New(ctx, redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}), breaker.Options{Destination: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	if err := b.Do(ctx, func(context.Context) error { return nil }); err != nil {
		log.Fatal(err)
	}
}
