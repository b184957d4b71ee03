package webhook_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tidegate/tidegate/internal/dest/webhook"
)

// The example that the specification's libraries are tested with, and one that was
// computed with openssl: a secret of 32 bytes, and a body that is not ASCII.
func TestPublishedExamples(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, secret, id, body, want string
		at                           int64
	}{
		{
			"of the specification", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek",
			`{"test": 2432232314}`, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", 1614265330,
		},
		{
			"of ours", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "shop:default:1763762400000-0",
			`{"type":"job.failed","data":{"last_error":"zu spät"}}`, "v1,176sR2vSdoAn6kmvxvGJc2U8MGqg2zZAD8VVTsxR+kM=", 1763762401,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			secret := parse(t, tc.secret)
			at := time.Unix(tc.at, 999)
			if got := webhook.Sign(secret, tc.id, at, []byte(tc.body)); got != tc.want {
				t.Errorf("signature %s, want %s", got, tc.want)
			}
			if got, want := webhook.Timestamp(at), fmt.Sprint(tc.at); got != want {
				t.Errorf("timestamp %s, want %s", got, want)
			}
		})
	}
}

// What we sign is what the specification's own library takes.
func TestItsLibraryVerifies(t *testing.T) {
	t.Parallel()
	first, second := random(t, 24), random(t, 64)
	both := parse(t, first+" "+second)
	body := []byte(`{"type":"job.completed","data":{"id":"a"}}`)
	now := time.Now()
	header := http.Header{}
	header.Set(webhook.HeaderID, "shop:high:1763762400000-3")
	header.Set(webhook.HeaderTimestamp, webhook.Timestamp(now))
	header.Set(webhook.HeaderSignature, webhook.Sign(both, "shop:high:1763762400000-3", now, body))
	for name, text := range map[string]string{"first": first, "second": second} {
		verifier, err := standardwebhooks.NewWebhook(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier.Verify(body, header); err != nil {
			t.Errorf("by the %s secret: %v", name, err)
		}
		if err := verifier.Verify(append([]byte(" "), body...), header); err == nil {
			t.Errorf("by the %s secret: another body is taken, too", name)
		}
	}
	stranger, err := standardwebhooks.NewWebhook(random(t, 32))
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Verify(body, header); err == nil {
		t.Error("another secret verifies it, too")
	}
}

func TestSecretsThatAreNone(t *testing.T) {
	t.Parallel()
	encode := base64.StdEncoding.EncodeToString
	short, long := encode(bytes.Repeat([]byte{7}, 23)), encode(bytes.Repeat([]byte{7}, 65))
	good := "whsec_" + encode(bytes.Repeat([]byte{7}, 24))
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "is empty"},
		{"blank", " \n", "is empty"},
		{"without the prefix", encode(bytes.Repeat([]byte{7}, 32)), "does not begin with whsec_"},
		{"a private key", "whsk_" + encode(bytes.Repeat([]byte{7}, 32)), "does not begin with whsec_"},
		{"no base64", "whsec_correct-horse-battery-staple!!", "is no base64 behind whsec_"},
		{"of a URL's alphabet", "whsec_" + base64.URLEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, 32)), "is no base64 behind whsec_"},
		{"without padding", "whsec_" + base64.RawStdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)), "is no base64 behind whsec_"},
		{"too short", "whsec_" + short, "has 23 bytes behind whsec_, must have 24 to 64"},
		{"too long", "whsec_" + long, "has 65 bytes behind whsec_, must have 24 to 64"},
		{"the second of two", good + ",whsec_" + short, "the secret in place 2 has 23 bytes behind whsec_, must have 24 to 64"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := webhook.ParseSecrets(tc.text)
			if err == nil {
				t.Fatal("it is taken")
			}
			if err.Error() != tc.want {
				t.Errorf("error %q, want %q", err, tc.want)
			}
			for part := range strings.FieldsFuncSeq(tc.text, func(r rune) bool { return r == ',' || r == '_' }) {
				if len(part) > 6 && strings.Contains(err.Error(), part) {
					t.Errorf("error %q repeats what it was given", err)
				}
			}
		})
	}
}

func TestSeveralSecrets(t *testing.T) {
	t.Parallel()
	a, b, c := random(t, 32), random(t, 32), random(t, 32)
	secrets := parse(t, " "+a+", "+b+"\n"+c+",")
	if len(secrets) != 3 {
		t.Fatalf("%d secrets, want 3", len(secrets))
	}
	at := time.Unix(1763762401, 0)
	got := webhook.Sign(secrets, "id", at, nil)
	want := strings.Join([]string{
		webhook.Sign(parse(t, a), "id", at, nil), webhook.Sign(parse(t, b), "id", at, nil), webhook.Sign(parse(t, c), "id", at, nil),
	}, " ")
	if got != want {
		t.Errorf("signatures %s, want %s", got, want)
	}
	if secrets[1].Text() != b {
		t.Error("Text is not what was given")
	}
}

// However it is printed, a secret does not show.
func TestSecretsDoNotShow(t *testing.T) {
	t.Parallel()
	text := random(t, 32)
	secret := parse(t, text)[0]
	var b strings.Builder
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "secret", secret, "group", map[string]any{"s": secret})
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "secret", secret, "all", []webhook.Secret{secret})
	fmt.Fprintf(&b, "%v %+v %#v %s %q %x", secret, secret, secret, secret, secret, secret)
	if err := json.NewEncoder(&b).Encode(map[string]any{"secret": secret}); err != nil {
		t.Fatal(err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{strings.TrimPrefix(text, "whsec_"), string(key), fmt.Sprintf("%x", key), fmt.Sprint(key)} {
		if strings.Contains(b.String(), form) {
			t.Errorf("it shows in %s", b.String())
		}
	}
}

func parse(t *testing.T, text string) []webhook.Secret {
	t.Helper()
	s, err := webhook.ParseSecrets(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func random(t *testing.T, n int) string {
	t.Helper()
	key := make([]byte, n)
	if _, err := rand.Read(key); err != nil {
		t.Fatal(err)
	}
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}
