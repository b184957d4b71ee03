package callbacks

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// wantBounded checks that a receiver holds little of what anybody sends, waits for
// nothing that has no end, and outlives those who leave in the middle.
func wantBounded(t *testing.T, address string) {
	t.Helper()
	part := "100000\r\n" + strings.Repeat("x", 1<<20) + "\r\n"
	for _, row := range []struct {
		name, request string
		want          []int
	}{
		{"leaves in the middle", "Content-Length: 10\r\n\r\nx", nil},
		{"too long", fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 1<<20+1, strings.Repeat("x", 1<<20+1)), []int{413}},
		{"in parts, too long", "Transfer-Encoding: chunked\r\n\r\n" + part + part, []int{413, 411}},
		{"a length below 0", "Content-Length: -1\r\n\r\n", []int{400, 411}},
		{"no length that is a number", "Content-Length: x\r\n\r\n", []int{400, 411}},
		{"just not too long, and unsigned", fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 1<<20, strings.Repeat("x", 1<<20)), []int{401}},
	} {
		if status := exchange(t, address, row.request, row.want == nil); row.want != nil && !slices.Contains(row.want, status) {
			t.Errorf("%s: answered %d, want one of %v", row.name, status, row.want)
		}
	}
}

// exchange sends what follows the line of a request and its Host, and returns the status
// of the answer: 0 if none comes, or it leaves before one can.
func exchange(t *testing.T, address, rest string, leave bool) int {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	// A receiver may answer, and close, before it has read all.
	_, _ = io.WriteString(c, "POST /hook HTTP/1.1\r\nHost: localhost\r\n"+rest)
	if leave {
		return 0
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Errorf("no answer: %v", err)
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
