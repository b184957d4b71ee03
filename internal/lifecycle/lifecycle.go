// Package lifecycle moves jobs that no worker has in hand: it cancels, pauses,
// resumes, retries and expires them, tells children how their parents ended, and
// counts. What becomes of a job in a worker's hands is internal/asynqx's.
//
// Each script works on one queue, whose keys share a slot, and changes whole jobs
// only: at any instant a job is in exactly one place.
package lifecycle

import (
	"embed"

	"github.com/tidegate/tidegate/internal/record"
)

//go:embed lua/*.lua
var luaFiles embed.FS

func script(name string) *record.Script {
	src, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // embedded at build time: cannot be missing
	}
	return record.NewScript(string(src))
}
