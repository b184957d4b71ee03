package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Secrets that are easy to find, wherever they are.
const (
	canary        = "CANARY"
	canaryToken   = "xoxb-" + canary + "0-" + canary + "1-token"
	canaryWebhook = canary + "2hook" + canary + "3hook"
	canaryKey     = canary + "4key0" + canary + "5key0" + canary + "6k"
)

// checkText looks for secrets in a text.
func (f *fleet) checkText(what, text string) {
	f.t.Helper()
	if i := strings.Index(text, canary); i >= 0 {
		f.t.Errorf("a secret stands in %s: …%q…", what, text[max(0, i-200):min(len(text), i+60)])
	}
}

// checkRedis looks for secrets in all that Redis holds, and returns how many keys that is.
func (f *fleet) checkRedis() int {
	f.t.Helper()
	ctx := context.Background()
	keys, err := f.rdb.Keys(ctx, "*").Result()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, key := range keys {
		var value any
		kind := f.rdb.Type(ctx, key).Val()
		switch kind {
		case "string":
			value, err = f.rdb.Get(ctx, key).Result()
		case "hash":
			value, err = f.rdb.HGetAll(ctx, key).Result()
		case "list":
			value, err = f.rdb.LRange(ctx, key, 0, -1).Result()
		case "set":
			value, err = f.rdb.SMembers(ctx, key).Result()
		case "zset":
			value, err = f.rdb.ZRange(ctx, key, 0, -1).Result()
		case "none":
			continue // it has expired meanwhile
		default:
			f.t.Errorf("%s is a %s", key, kind)
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			f.t.Fatal(err)
		}
		f.checkText("Redis at "+key, fmt.Sprint(key, value))
	}
	return len(keys)
}
