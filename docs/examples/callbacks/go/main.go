// Command go receives Tidegate's callbacks and verifies them. It needs the standard
// library only.
//
//	WEBHOOK_SECRET=whsec_… PORT=8000 go run .
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// verify returns an error unless the callback was signed with the secret, within the
// last five minutes.
func verify(secret string, header http.Header, body []byte) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return errors.New("the secret is not valid base64")
	}
	id, stamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if age := time.Since(time.Unix(seconds, 0)); err != nil || age.Abs() > 5*time.Minute {
		return errors.New("the timestamp is missing, too old or in the future")
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, stamp, body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for signature := range strings.FieldsSeq(header.Get("webhook-signature")) {
		if hmac.Equal([]byte(signature), []byte(want)) { // in constant time
			return nil
		}
	}
	return errors.New("no signature is by this secret")
}

func receive(w http.ResponseWriter, r *http.Request) {
	// The raw bytes, bounded: callbacks are far shorter, and the sender is not verified yet.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, "too long", http.StatusRequestEntityTooLarge)
		return
	}
	if err := verify(os.Getenv("WEBHOOK_SECRET"), r.Header, body); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	var event struct {
		Type string
		Data struct{ ID, Status string }
	}
	if err := json.Unmarshal(body, &event); err != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	// Here: ignore a webhook-id that was handled before. Otherwise handle the event, or
	// enqueue it, and store the id.
	fmt.Println(r.Header.Get("webhook-id"), event.Type, event.Data.ID)
	w.WriteHeader(http.StatusNoContent)
}

func main() {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err == nil {
		fmt.Println("listening on", listener.Addr())
		server := &http.Server{Handler: http.HandlerFunc(receive), ReadTimeout: 10 * time.Second}
		err = server.Serve(listener)
	}
	panic(err)
}
