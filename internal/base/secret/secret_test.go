package secret_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/base/secret"
)

func TestOfHeader(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, value string
		want        []string
	}{
		{"X-Key", "abcdef", []string{"abcdef"}},
		{"X-Client", "abcde", nil},
		{"X-Key", "abcd", []string{"abcd"}},
		{"X-Key", "abc", nil},
		{"Accept", "application/json", nil},
		{"user-agent", "shop/1 (ops@example.com)", nil},
		{"Authorization", "Bearer abc-def", []string{"Bearer abc-def", "abc-def"}},
		{"Authorization", "Basic dTpodW50ZXIy", []string{"Basic dTpodW50ZXIy", "dTpodW50ZXIy", "hunter2", "u:hunter2"}},
		{"Cookie", "id=hunter2; a=b", []string{"hunter2", "id=hunter2; a=b"}},
	} {
		got := secret.OfHeader(http.Header{row.name: {row.value}})
		slices.Sort(got)
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", row.name, row.value, diff)
		}
	}
}

// One list: what is taken out of texts is what is masked where a URL is printed.
func TestURLs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		url, masked string
		want        []string
	}{
		{"https://api.example.com/v1/items?v=1&page=100", "https://api.example.com/v1/items?v=1&page=100", nil},
		{"https://h/v1?key=k1", "https://h/v1?key=[redacted]", nil},
		{"https://h/v1?key=k123&sig=abcdef&version=2024-01", "https://h/v1?key=[redacted]&sig=[redacted]&version=[redacted]", []string{"2024-01", "abcdef", "k123"}},
		{"https://h/v1?v=1&%6bey=a%2Fbcdef&flag", "https://h/v1?v=1&%6bey=[redacted]&flag", []string{"a/bcdef"}},
		{"https://ann:hunter2@h/hooks", "https://[redacted]@h/hooks", []string{"ann:hunter2", "hunter2"}},
		{"https://tidegate:hunter2@h/hooks", "https://[redacted]@h/hooks", []string{"hunter2", "tidegate:hunter2"}},
		{"https://ann:x@h/hooks", "https://[redacted]@h/hooks", []string{"ann:x"}},
		{"https://hunter2@h/hooks", "https://[redacted]@h/hooks", []string{"hunter2"}},
		{"https://ann@h/hooks", "https://[redacted]@h/hooks", nil},
		// Long segments of a path.
		{"https://h/services/T00000000/XXXXXXXXXXXXXXXXXXXXXXXX", "https://h/services/T00000000/[redacted]", []string{"XXXXXXXXXXXXXXXXXXXXXXXX", "XXXXXXXXXXXXXXXXXXXXXXXX"}},
		{"https://h/bot123456:ABC-DEF1234ghIkl/send", "https://h/[redacted]/send", []string{"bot123456:ABC-DEF1234ghIkl", "bot123456:ABC-DEF1234ghIkl"}},
		{"https://h/0199a0b1-0000-7000-8000-000000000000", "https://h/[redacted]", []string{"0199a0b1-0000-7000-8000-000000000000", "0199a0b1-0000-7000-8000-000000000000"}},
		{"https://h/aGk3LmhpLmhp%2FaGk3", "https://h/[redacted]", []string{"aGk3LmhpLmhp%2FaGk3", "aGk3LmhpLmhp/aGk3"}},
		// Words.
		{"https://h/api/chat.postMessage", "https://h/api/chat.postMessage", nil},
		{"https://h/notifications-subscriptions/v2", "https://h/notifications-subscriptions/v2", nil},
		{"https://h/2024-01-15_report_of_the_year/", "https://h/2024-01-15_report_of_the_year/", nil},
		{"/only/a/path", "/only/a/path", nil},
		{"https://h/%zz", "[redacted]", nil},
	} {
		if got := secret.MaskURL(row.url); got != row.masked {
			t.Errorf("%s is printed as %s, want %s", row.url, got, row.masked)
		}
		u, err := url.Parse(row.url)
		if err != nil {
			continue
		}
		got := secret.OfURL(u)
		slices.Sort(got)
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.url, diff)
		}
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	const plain, odd = "hunter2", `h/"u&n+t=`
	r := secret.New(plain, odd, "hunter2-and-more", "")
	std := base64.StdEncoding.EncodeToString
	for text, want := range map[string]string{
		"":                              "",
		"nothing":                       "nothing",
		"hunter2hunter2":                "[redacted][redacted]",
		"hunter2-and-more, hunter2-and": "[redacted], [redacted]-and",
		odd:                             "[redacted]",
		`{"a":"h/\"u&n+t="}`:            `{"a":"[redacted]"}`,
		`{"a":"h\/\"u\u0026n+t="}`:      `{"a":"[redacted]"}`,
		`{"a":"h/\"u\u0026n+t\u003d"}`:  `{"a":"[redacted]"}`,
		"/?a=h%2F%22u%26n%2Bt%3D":       "/?a=[redacted]",
		"/?a=h%2f%22u%26n%2bt%3d":       "/?a=[redacted]",
		"h/&#34;u&amp;n+t=":             "[redacted]",
		"Basic " + std([]byte(plain)):   "Basic [redacted]",
		std([]byte(odd)) + ".":          "[redacted].",
		"aHVudGVyMg":                    "[redacted]",
		"?b=" + url.QueryEscape("aHVudGVyMg==") + "&": "?b=[redacted]&",
	} {
		if got := r.Redact(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	with := r.With("hunter2-of-a-call", "")
	if got, want := with.Redact("hunter2-of-a-call hunter2 aHVudGVyMi1vZi1hLWNhbGw="), "[redacted] [redacted] [redacted]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, again := range []*secret.Redactor{r.With(plain), r.With(plain, "hunter2-of-a-call"), with.With(odd)} {
		if got, want := again.Redact("h/&#34;u&amp;n+t= hunter2"), "[redacted] [redacted]"; got != want {
			t.Errorf("%s, want %s: With repeats a known secret", got, want)
		}
	}
	if got, want := r.Redact("hunter2-of-a-call"), "[redacted]-of-a-call"; got != want {
		t.Errorf("%s, want %s: With changed the Redactor", got, want)
	}
	for text, want := range map[string]string{
		"said hunter": "said [redacted]", "said hunte": "said hunte", "said hunter2-and-m": "said [redacted]", "aHVudGV": "[redacted]", "hunter2": "[redacted]",
		"hunter2-of-a": "[redacted]", "": "",
	} {
		if got := with.RedactCut(text); got != want {
			t.Errorf("%s, cut: %s, want %s", text, got, want)
		}
	}
	var none *secret.Redactor
	if got := none.Redact(plain); got != plain {
		t.Errorf("a nil Redactor makes %s", got)
	}
}

// BenchmarkRedact takes 50 secrets out of an answer of 4 kB that holds none, one, or the
// token of the call.
func BenchmarkRedact(b *testing.B) {
	secrets := make([]string, 50)
	for i := range secrets {
		secrets[i] = fmt.Sprintf("s3cr3t/%02d+%x", i, i*7919)
	}
	r := secret.New(secrets...)
	body := strings.Repeat(`{"id":"0199a0b1","title":"a picture","state":"accepted"},`, 74)[:4096]
	for name, text := range map[string]string{"none": body, "one": body[:2000] + secrets[25] + body[2000:], "own": body[:2000] + "the-token-of-the-call" + body[2000:]} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			with := r.With("the-token-of-the-call")
			for b.Loop() {
				_ = with.Redact(text)
			}
		})
	}
}

// Secrets of Add are taken out from then on, also by what With has returned; the latest 20 of each source.
func TestAdd(t *testing.T) {
	t.Parallel()
	r := secret.New("of-new-0")
	with := r.With("of-a-call")
	r.Add("another file", "of-another-file")
	for i := range 150 {
		r.Add("a file", "", fmt.Sprintf("token-%03d", i), "of-new-0")
	}
	for text, want := range map[string]string{
		"of-new-0 of-a-call of-another-file token-149 token-130": "[redacted] [redacted] [redacted] [redacted] [redacted]",
		"token-129": "token-129",
	} {
		if got := with.Redact(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// What writers make of a secret, and of what others have written.
func TestEscapedSecrets(t *testing.T) {
	t.Parallel()
	const token = `k+9/"<T>&=ab\c'd`
	each := func(format string) string {
		var b strings.Builder
		for i := range len(token) {
			fmt.Fprintf(&b, format, token[i])
		}
		return b.String()
	}
	b64 := base64.StdEncoding.EncodeToString
	wide := func(s string, big bool) string {
		var b strings.Builder
		for i := range len(s) {
			if big {
				b.WriteByte(0)
			}
			b.WriteByte(s[i])
			if !big {
				b.WriteByte(0)
			}
		}
		return b.String()
	}
	r := secret.New().With(token)
	known := secret.New(token)
	for name, form := range map[string]string{
		".NET":    strings.NewReplacer("+", `\u002B`, "/", `\u002F`, `"`, `\u0022`, "<", `\u003C`, ">", `\u003E`, "&", `\u0026`, "'", `\u0027`, `\`, `\\`).Replace(token),
		"all \\u": each(`\u%04x`), "all \\U": each(`\u%04X`), "\\u{}": each(`\u{%x}`), "\\x": each(`\x%02x`), "&#x": each("&#x%02X;"), "&#": each("&#%d;"),
		"entities": strings.NewReplacer("+", "&plus;", "&", "&amp;", `"`, "&quot;", "<", "&lt;", ">", "&gt;", "'", "&apos;").Replace(token),
		"percent":  each("%%%02X"), "percent twice": each("%%25%02x"), "percent three times": each("%%2525%02X"), "%u": each("%%u%04x"),
		"query of JSON": url.QueryEscape(each(`\u%04x`)), "JSON of HTML": strings.ReplaceAll(each("&#x%02x;"), "&", `\u0026`),
		"UTF-16": wide(token, false), "UTF-16 big endian": wide(token, true), "UTF-16 with a mark": "\xff\xfe" + wide(token, false),
		"base64 of a header": b64([]byte("Bearer " + token)), "of a user": b64([]byte("tidegate:" + token)), "behind a name": "Basic_" + b64([]byte("x:"+token)),
		"base64 of UTF-16": b64([]byte(wide(token, false))), "base64url": base64.RawURLEncoding.EncodeToString([]byte("Authorization: Bearer " + token + "\n")),
		"octal": each(`\%03o`), "\\U of eight digits": each(`\U%08x`), "&# without a semicolon": each("&#%d") + ";", "hexadecimal": hex.EncodeToString([]byte("Bearer " + token)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(token))),
		"base64 of escapes": b64([]byte(`{"token":"` + each(`\u%04x`) + `"}`)), "base64 of a query": b64([]byte("token=" + url.QueryEscape(token))), "base64 twice": b64([]byte(b64([]byte("Bearer " + token)))),
		"escaped base64 of a header": url.QueryEscape(b64([]byte("?>?>" + token))), "base64 in lines": strings.ReplaceAll(b64([]byte("Authorization: Bearer "+token)), "p", "p\r\n"),
		"base64 in lines of JSON": strings.ReplaceAll(b64([]byte("Authorization: Bearer "+token)), "p", `p\r\n`),
		"escaped base64":          strings.ReplaceAll(url.QueryEscape(b64([]byte(token))), "%", "%25"),
	} {
		for _, redactor := range []*secret.Redactor{r, known} {
			got := redactor.Redact(`{"a":"begin ` + form + ` end"}`)
			if !strings.Contains(got, secret.Mask) || !strings.HasPrefix(got, `{"a":"begin `) || !strings.HasSuffix(got, ` end"}`) || strings.Contains(got, form) {
				t.Errorf("%s: %q", name, got)
			}
		}
		if got := r.RedactCut("begin " + form[:len(form)*9/10]); (strings.Contains(name, "\\u") || strings.HasPrefix(name, "base64")) && !strings.HasSuffix(got, secret.Mask) {
			t.Errorf("%s, cut off: %q", name, got)
		}
	}
	for _, s := range []string{`pa\\ss%2Bword`, "pass word+1", "a%41b&amp;cdef"} { // with escapes, and with a space
		for _, form := range []string{url.QueryEscape(url.QueryEscape(s)), strings.ReplaceAll(fmt.Sprintf("%q", s), "w", `\u0077`)} {
			if got := secret.New(s).Redact(form); strings.Trim(got, `"`) != secret.Mask {
				t.Errorf("%s as %s: %s", s, form, got)
			}
		}
	}
	for _, text := range []string{
		"", "%", "100% \\ &", `C:\users\x`, "a%2Bb%252Bc &amp; &#x2B; \\u002B \\u{zz} \\ud800", "dGhpcyBpcyBub3QgYSBzZWNyZXQgYXQgYWxs", "\x00\x00", strings.Repeat("Zm9v", 100),
	} {
		if got := r.Redact(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// Texts that are made to be slow cost no more than others of their length.
func TestHostileEscapes(t *testing.T) {
	t.Parallel()
	r := secret.New("hunter2-hunter2", "%25%25%25%25")
	for _, unit := range []string{"%25", "%2525", `\\`, `\u005c`, "&amp;", "&", `\u{`, "QUFB", "\x00", "&#x26;#x26;"} {
		text := strings.Repeat(unit, 1<<18/len(unit))
		began := time.Now()
		_ = r.RedactCut(text)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("256 KiB of %q took %v", unit, took)
		}
	}
}
