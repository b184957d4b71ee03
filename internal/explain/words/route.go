package words

import "fmt"

// LimitedRoute advises on an API that seems to limit one kind of calls by itself: so many of its jobs were
// refused while so many calls of others were accepted.
func LimitedRoute(route, keyBy string, refused, accepted int) string {
	return fmt.Sprintf("this API seems to limit %s by itself: all %d refused jobs of a worker called it, while %d calls of others were accepted; set KEY_BY=%s",
		route, refused, accepted, keyBy)
}
