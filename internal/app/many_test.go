//go:build unix

package app

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// Of 1,500 requests at once, each on a connection of its own that its client keeps, every one has its answer. A machine that
// cannot keep up answers 503 to some; sent again, each job is there once.
func TestManyEnqueuesAtOnce(t *testing.T) {
	t.Parallel()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	many := min(1500, int(limit.Cur/3)) // both ends are here
	a := runTheAPI(t, "REDIS_URL="+redistest.Database(t).URL(), "LISTEN_ADDR=127.0.0.1:0", "DESTINATION_0_NAME=shop", "DESTINATION_0_URL=http://127.0.0.1:1/")
	addr := strings.TrimPrefix(a.url, "http://")
	dialer := net.Dialer{Deadline: time.Now().Add(2 * time.Minute)}
	begin, answers := make(chan struct{}), make(chan string, many)
	job := func(i int) string { return fmt.Sprintf(`{"destination":"shop","id":"many-%d","payload":1}`, i) }
	var refused sync.Map
	var clients sync.WaitGroup
	for i := range many {
		clients.Go(func() {
			<-begin
			c, err := dialer.DialContext(t.Context(), "tcp", addr)
			if err != nil {
				answers <- err.Error()
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			_, _ = fmt.Fprintf(c, "POST /v1/jobs HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", addr, len(job(i)), job(i))
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				answers <- err.Error()
				return
			}
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusServiceUnavailable {
				refused.Store(i, nil)
			}
			answers <- fmt.Sprint(resp.StatusCode, " ", err)
		})
	}
	close(begin)
	clients.Wait()
	got := map[string]int{}
	for range many {
		got[<-answers]++
	}
	if got["201 <nil>"] == 0 || got["201 <nil>"]+got["503 <nil>"] != many {
		t.Errorf("of %d requests: %v", many, got)
	}
	for i := range refused.Range {
		redistest.Eventually(t, "the job is accepted", func() bool {
			status, _ := a.call(http.MethodPost, "/v1/jobs", job(i.(int)), "")
			return status == http.StatusCreated || status == http.StatusOK
		})
	}
	a.await(http.StatusOK, "/v1/stats?destination=shop", "", fmt.Sprintf(`"pending":%d`, many))
}
