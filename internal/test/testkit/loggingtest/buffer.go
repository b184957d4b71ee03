// Package loggingtest keeps what tests have logged.
package loggingtest

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"
)

// Buffer keeps what is written to it. Several goroutines may write and read.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends to the text.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns the whole text.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Lines returns the lines that contain all of the texts.
func (b *Buffer) Lines(texts ...string) []string {
	var out []string
next:
	for line := range strings.Lines(b.String()) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		out = append(out, strings.TrimSuffix(line, "\n"))
	}
	return out
}

// Records returns the records of a log in JSON, without their times.
func (b *Buffer) Records(t testing.TB) []map[string]any {
	t.Helper()
	var out []map[string]any
	for dec := json.NewDecoder(strings.NewReader(b.String())); dec.More(); {
		var record map[string]any
		if err := dec.Decode(&record); err != nil {
			t.Fatal(err)
		}
		delete(record, "time")
		out = append(out, record)
	}
	return out
}
