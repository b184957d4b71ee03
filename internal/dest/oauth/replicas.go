package oauth

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// replicatedWithin is how long a rotated refresh token is awaited on a replica.
const replicatedWithin = time.Second

// settleOnReplica is settle for a rotated refresh token. If Redis has replicas it waits until one of
// them has the token too: a failover that lost it would lose the key. A token that is late is logged,
// and is no error. Where INFO is forbidden, it is not awaited.
func (s *Source) settleOnReplica(ctx context.Context, name, version string, fields ...any) (bool, error) {
	conn, err := s.connection(ctx, s.keys(name)[0])
	if err != nil {
		return false, fmt.Errorf("oauth: settle: %w", err)
	}
	if conn == nil {
		return s.settle(ctx, name, version, fields...)
	}
	defer func() { _ = conn.Close() }() // to the pool
	kept, err := s.settleOn(ctx, conn, name, version, fields...)
	if cluster, ok := s.o.Redis.(*redis.ClusterClient); ok && err != nil {
		cluster.ReloadState(ctx) // the slot may have moved
	}
	if err != nil || !kept {
		return kept, err
	}
	info, err := conn.Info(ctx, "replication").Result()
	if err != nil || !strings.Contains(info, "connected_slaves:") || strings.Contains(info, "connected_slaves:0\r") {
		return true, nil
	}
	// WAIT is about the writes of its own connection.
	if n, err := conn.Wait(ctx, 1, replicatedWithin).Result(); err != nil || n < 1 {
		s.o.Logger.Warn("a rotated refresh token is on no replica of Redis yet; a failover now would lose it, and the user would have to sign in again",
			"key", name, "waited", replicatedWithin, "error", err)
	}
	return true, nil
}

// connection returns a connection to the server that holds a key; nil if the client has none to give.
func (s *Source) connection(ctx context.Context, key string) (*redis.Conn, error) {
	if cluster, ok := s.o.Redis.(*redis.ClusterClient); ok {
		node, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return nil, err //nolint:wrapcheck // settleOnReplica does
		}
		return node.Conn(), nil
	}
	if client, ok := s.o.Redis.(interface{ Conn() *redis.Conn }); ok {
		return client.Conn(), nil
	}
	return nil, nil //nolint:nilnil // it is no error
}
