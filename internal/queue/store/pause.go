package store

import (
	"encoding/json"
	"strconv"
)

// PauseInfo is an operator's pause of a queue. PausedKey holds it as JSON; asynq checks only whether
// this key exists.
type PauseInfo struct {
	Since  int64  `json:"since"` // unix milliseconds; 0: unknown
	By     string `json:"by"`
	Reason string `json:"reason"`
}

// ParsePause reads the value of the key. asynq's own tools write unix seconds.
func ParsePause(value string) PauseInfo {
	var p PauseInfo
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		p.Since = seconds * 1000
	} else if json.Unmarshal([]byte(value), &p) != nil {
		return PauseInfo{}
	}
	return p
}
