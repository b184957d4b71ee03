package httpdest_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// Each key's jobs are sent with its token. The file may change at any time.
func ExampleOpenTokens() {
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println("call with", r.Header.Get("Authorization"))
	}))
	defer api.Close()
	dir, err := os.MkdirTemp("", "tokens")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tokens.json")
	if err := os.WriteFile(path, []byte(`{"alice": "a-token", "bob": "b-token"}`), 0o600); err != nil {
		log.Fatal(err)
	}

	tokens, err := httpdest.OpenTokens(path, httpdest.TokensFileOptions{})
	if err != nil {
		log.Fatal(err) // the file is not there, or not in order
	}
	h, err := httpdest.New(httpdest.Options{URL: api.URL, Tokens: tokens})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	for _, key := range []string{"alice", "bob", "carol"} {
		if err := h.Publish(context.Background(), &jobs.Job{ID: "7", Destination: "shop", Key: key}); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// call with Bearer a-token
	// call with Bearer b-token
	// no token for key "carol" in AUTH_TOKENS_FILE of destination shop: add it (the file is read again by itself), then: tidegate retry 7
}

// Tokens can come from anywhere, such as a program's own store.
func ExampleTokensFunc() {
	store := map[string]string{"alice": "a-token"}
	tokens := httpdest.TokensFunc(func(key string) (string, bool) {
		token, ok := store[key]
		return token, ok
	})
	h, err := httpdest.New(httpdest.Options{URL: "https://api.example.com", Tokens: tokens})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	fmt.Println(h.Publish(context.Background(), &jobs.Job{ID: "7", Destination: "shop", Key: "bob"}))
	// Output: no token for key "bob" of destination shop: add it, then: tidegate retry 7
}
