package record

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/prelude.lua
var prelude string

// Script makes a script of a body that starts with what all scripts share: see
// lua/prelude.lua.
func Script(body string) *redis.Script { return redis.NewScript(prelude + body) }
