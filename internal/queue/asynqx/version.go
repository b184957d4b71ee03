package asynqx

import (
	"fmt"
	"runtime/debug"
)

// CheckVersion fails if this binary was built with another version of asynq than
// AsynqVersion. Without build information it passes: an unknown script stops the Server in any
// case.
func CheckVersion() error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, m := range info.Deps {
		if m.Path != "github.com/hibiken/asynq" {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Version != "" && m.Version != AsynqVersion {
			return fmt.Errorf("asynqx: built with asynq %s, but Tidegate replaces the scripts of %s; require that version", m.Version, AsynqVersion)
		}
	}
	return nil
}
