package redispipe

import (
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"
)

// CheckClient returns an error that wraps bad if scripts cannot run through rdb or may read what is
// behind: it is nil or holds a nil pointer, is a redis.Ring, or reads from replicas, or it is a wrapper
// that embeds such a client.
func CheckClient(rdb redis.UniversalClient, bad error) error {
	for range 8 { // a wrapper may embed a wrapper
		v := reflect.ValueOf(rdb)
		if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return fmt.Errorf("%w: it is nil", bad)
		}
		switch c := rdb.(type) {
		case *redis.Ring:
			return fmt.Errorf("%w: a redis.Ring spreads the keys of one script over servers that do not share them; use a redis.Client or a redis.ClusterClient", bad)
		case *redis.Client:
			if v.Elem().IsZero() {
				return fmt.Errorf("%w: the redis.Client was not made by redis.NewClient", bad)
			}
			return nil
		case *redis.ClusterClient:
			if o := c.Options(); o == nil {
				return fmt.Errorf("%w: the redis.ClusterClient was not made by redis.NewClusterClient", bad)
			} else if o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
				return fmt.Errorf("%w: it reads from replicas, which are behind; leave out ReadOnly, RouteByLatency and RouteRandomly", bad)
			}
			return nil
		}
		var wraps bool
		if rdb, wraps = embedded(v); !wraps {
			return nil
		}
	}
	return nil
}

// IsCluster reports whether rdb is a redis.ClusterClient, or a wrapper that embeds one.
func IsCluster(rdb redis.UniversalClient) bool {
	for wraps := true; wraps; rdb, wraps = embedded(reflect.ValueOf(rdb)) {
		if _, is := rdb.(*redis.ClusterClient); is {
			return true
		}
	}
	return false
}

// embedded returns the client that a wrapper embeds, and whether it embeds one.
func embedded(v reflect.Value) (redis.UniversalClient, bool) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return nil, false
	}
	for f, value := range v.Fields() {
		if f.Anonymous && f.IsExported() && f.Type.Implements(clientType) {
			client, _ := reflect.TypeAssert[redis.UniversalClient](value) // nil if the interface is
			return client, true
		}
	}
	return nil, false
}

var clientType = reflect.TypeFor[redis.UniversalClient]()
