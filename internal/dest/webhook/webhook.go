// Package webhook signs webhooks by the Standard Webhooks specification
// (https://www.standardwebhooks.com, symmetric signatures), with one secret or with
// several at once while they are being exchanged.
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// The headers of a signed webhook.
const (
	// HeaderID is the same in each try of one message.
	HeaderID = "webhook-id"
	// HeaderTimestamp is when this try was signed, in unix seconds.
	HeaderTimestamp = "webhook-timestamp"
	// HeaderSignature holds one signature for each secret, separated by spaces.
	HeaderSignature = "webhook-signature"
)

// version stands in front of a signature by HMAC-SHA256.
const version = "v1"

// Sign returns the value of HeaderSignature for a message that is sent at an instant: a
// signature by each of the secrets.
func Sign(secrets []Secret, id string, at time.Time, body []byte) string {
	signed := make([]string, len(secrets))
	for i, s := range secrets {
		signed[i] = version + "," + base64.StdEncoding.EncodeToString(s.sum(id, at, body))
	}
	return strings.Join(signed, " ")
}

// Timestamp returns the value of HeaderTimestamp.
func Timestamp(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

func (s Secret) sum(id string, at time.Time, body []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(id + "." + Timestamp(at) + "."))
	mac.Write(body)
	return mac.Sum(nil)
}
