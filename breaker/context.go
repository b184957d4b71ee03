package breaker

import "context"

// permitKey is the key of the permit that a context carries.
type permitKey struct{}

// permitted names the breaker of a permit.
type permitted struct {
	namespace        Namespace
	destination, key string
}

// Context returns a context for the call that p permits. [Breaker.Allow] asked with it
// for the same breaker, by name, returns the zero Permit: the call has its permit, and
// the holder of p reports how it ended. So a client with a breaker can be used where the
// breaker has been asked already.
func (p Permit) Context(ctx context.Context) context.Context {
	if p.c == nil {
		return ctx
	}
	return context.WithValue(ctx, permitKey{}, permitted{p.c.place.namespace, p.c.place.name, p.key})
}

// permitted says whether ctx carries a permit for the breaker of key, or for the
// destination's as a whole if key is "".
func (c *core) permitted(ctx context.Context, key string) bool {
	p, ok := ctx.Value(permitKey{}).(permitted)
	return ok && p.namespace == c.place.namespace && p.destination == c.place.name && (key == "" || key == p.key)
}
