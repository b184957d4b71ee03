package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A pool of tokens needs KEY_BY=pool, the circuit breaker, and no other tokens.
func TestPoolErrors(t *testing.T) {
	t.Parallel()
	good := writeFile(t, `{"app-1":"hunter1","app-2":"hunter2"}`, 0o600)
	var many []string
	for n := range 101 {
		many = append(many, fmt.Sprintf(`"app-%d":"hunter%d"`, n, n))
	}
	file := "DESTINATION_0_AUTH_POOL_FILE="
	for name, c := range map[string]struct {
		environ []string
		want    string
	}{
		"good":          {[]string{file + good, "DESTINATION_0_KEY_BY=pool"}, ""},
		"no KEY_BY":     {[]string{file + good}, "DESTINATION_0_KEY_BY: is not set, and DESTINATION_0_AUTH_POOL_FILE is; set it to pool"},
		"other KEY_BY":  {[]string{file + good, "DESTINATION_0_KEY_BY=request.path"}, `DESTINATION_0_KEY_BY: is "request.path", and DESTINATION_0_AUTH_POOL_FILE is set, whose tokens are the keys; set it to pool, or take DESTINATION_0_AUTH_POOL_FILE out`},
		"no file":       {[]string{"DESTINATION_0_KEY_BY=pool"}, "DESTINATION_0_AUTH_POOL_FILE: is not set, and DESTINATION_0_KEY_BY is pool; set it to a file with a JSON object of names and tokens, or take DESTINATION_0_KEY_BY out"},
		"another token": {[]string{file + good, "DESTINATION_0_KEY_BY=pool", "DESTINATION_0_AUTH_TOKEN=x"}, "DESTINATION_0_AUTH_TOKEN: is set, and DESTINATION_0_AUTH_POOL_FILE too; take out one of the two"},
		"tokens":        {[]string{file + good, "DESTINATION_0_KEY_BY=pool", "DESTINATION_0_AUTH_TOKENS_FILE=" + good}, "DESTINATION_0_AUTH_TOKENS_FILE: is set, and DESTINATION_0_AUTH_POOL_FILE too; take out one of the two"},
		"no breaker":    {[]string{file + good, "DESTINATION_0_KEY_BY=pool", "DESTINATION_0_CIRCUIT_BREAKER_ENABLED=false"}, "DESTINATION_0_CIRCUIT_BREAKER_ENABLED: is false, and DESTINATION_0_AUTH_POOL_FILE is set: the circuit breaker is what chooses the token; take it out"},
		"empty":         {[]string{file + writeFile(t, "{}", 0o600), "DESTINATION_0_KEY_BY=pool"}, "holds no token; add one"},
		"too many":      {[]string{file + writeFile(t, "{"+strings.Join(many, ",")+"}", 0o600), "DESTINATION_0_KEY_BY=pool"}, "holds 101 tokens; a pool has 100 at most; leave the others out"},
		"twice":         {[]string{file + writeFile(t, `{"a":"hunter2","b":"hunter2"}`, 0o600), "DESTINATION_0_KEY_BY=pool"}, `has the same token under "a" and "b", whose limits would be counted twice; leave one of them`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Load(with(c.environ...))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if strings.HasPrefix(c.want, "DESTINATION_") || c.want == "" {
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			} else if !strings.HasSuffix(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if strings.Contains(got, "hunter") {
				t.Error("the error shows a token")
			}
		})
	}
	// The API calls nothing, and has no tokens.
	if cfg, _, err := LoadForAPI(with("DESTINATION_0_KEY_BY=pool", file+good)); err != nil || !cfg.Destinations[0].Pooled() {
		t.Errorf("for the API: %v", err)
	}
}
