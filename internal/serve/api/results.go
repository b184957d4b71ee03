package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
)

// results streams the result of each line while the request is read, for callers that accept
// lines. It buffers one chunk.
type results struct {
	w       http.ResponseWriter
	control *http.ResponseController
	out     bytes.Buffer
	begun   bool
}

// wantsLines reports whether the caller accepts lines.
func wantsLines(r *http.Request) bool {
	for accepted := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if kind, _, err := mime.ParseMediaType(accepted); err == nil && kind == ndjsonType {
			return true
		}
	}
	return false
}

// newResults streams results to w while its request is still being read.
func newResults(w http.ResponseWriter) *results {
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex() // needed by HTTP/1.1
	return &results{w: w, control: control}
}

// write writes items and flushes them.
func (t *results) write(items []EnqueuedItem) error {
	for i := range items {
		if err := t.add(&items[i]); err != nil {
			return err
		}
	}
	if t.out.Len() == 0 {
		return nil
	}
	return t.send()
}

func (t *results) add(doc any) error {
	b, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("write a result: %w", err)
	}
	t.out.Write(b)
	t.out.WriteByte('\n')
	return nil
}

func (t *results) send() error {
	if !t.begun {
		t.begun = true
		t.w.Header().Set("Content-Type", ndjsonType)
		t.w.WriteHeader(http.StatusOK)
	}
	_, err := t.w.Write(t.out.Bytes())
	t.out.Reset()
	if err == nil {
		err = t.control.Flush()
	}
	if err != nil {
		return &bodyError{err}
	}
	return nil
}

// end writes the last line: the counts, or the problem that ended the stream early. A problem
// before the first result is the whole response.
func (t *results) end(counts *Progress, p *Problem) {
	if p != nil && !t.begun {
		p.write(t.w)
		return
	}
	var last any = counts
	if p != nil {
		last = p
	}
	if t.add(last) == nil {
		_ = t.send() // the caller may have left
	}
}
