package dashboard

import (
	"compress/gzip"
	"net/http"
	"strings"
	"sync"
)

// worthPacking is the least size of a compressed response, in bytes.
const worthPacking = 2 << 10

var packers = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// send writes a whole response, compressed if the client accepts that: pages are fetched often.
// Pages have no secret beside the viewer's input, so their length reveals nothing.
func send(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	if len(body) < worthPacking || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(status)
		w.Write(body) //nolint:errcheck // the reader has left
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z, _ := packers.Get().(*gzip.Writer)
	defer packers.Put(z)
	z.Reset(w)
	z.Write(body) //nolint:errcheck // as above
	z.Close()     //nolint:errcheck // as above
}
