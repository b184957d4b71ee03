package store

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

var auditScript = redis.NewScript(source("audit"))

// RecordAct adds an act to the audit. The audit keeps the last most acts; among them it keeps the last ofTenant acts
// of a tenant, unless that is "", and half of most for all tenants together. So a tenant's acts displace its own first.
func (n Namespace) RecordAct(ctx context.Context, rdb redis.UniversalClient, most int, tenant string, ofTenant int, fields ...any) error {
	keys := []string{n.AuditKey()}
	if tenant != "" {
		keys = append(keys, n.SlotKey("audit", "tenant:"+tenant), n.SlotKey("audit", "tenants"))
	}
	args := append([]any{most, ofTenant, most / 2}, fields...)
	if err := auditScript.Run(ctx, rdb, keys, args...).Err(); err != nil {
		return fmt.Errorf("record an act: %w", err)
	}
	return nil
}
