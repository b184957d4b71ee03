package store

import (
	"reflect"

	"github.com/redis/go-redis/v9"
)

// NilClient reports whether rdb is nil or holds a nil pointer.
func NilClient(rdb redis.UniversalClient) bool {
	v := reflect.ValueOf(rdb)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
