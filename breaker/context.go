package breaker

import "context"

// permitKey is the key of the permit that a context carries.
type permitKey struct{}

// permitted names the breaker of a permit.
type permitted struct {
	namespace        Namespace
	destination, key string
}

// Context returns a context for the call that p permits. [Breaker.Allow] with it returns the
// zero Permit for the same breaker, by name: the call has its permit, and the holder of p
// reports the outcome. So a client with a breaker can be used after the breaker has been
// asked.
func (p Permit) Context(ctx context.Context) context.Context {
	if p.c == nil {
		return ctx
	}
	return context.WithValue(ctx, permitKey{}, permitted{p.c.place.namespace, p.c.place.name, p.key})
}

// permitted reports whether ctx carries a permit for the breaker of key, or for the
// destination's as a whole if key is "".
func (c *granter) permitted(ctx context.Context, key string) bool {
	p, ok := ctx.Value(permitKey{}).(permitted)
	return ok && p.namespace == c.place.namespace && p.destination == c.place.name && (key == "" || key == p.key)
}
