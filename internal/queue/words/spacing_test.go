package words_test

import (
	"testing"

	"github.com/tidegate/tidegate/internal/queue/words"
)

func TestSpacing(t *testing.T) {
	t.Parallel()
	for breaker, want := range map[string]string{
		"shop":       "this API spaces calls: set RATE, about 120 per 1m",
		"shop/alice": "this API spaces calls: set KEY_RATE, about 120 per 1m",
	} {
		if got := words.Spacing(breaker, "120/1m"); got != want {
			t.Errorf("%s: %q", breaker, got)
		}
	}
}
