package publisher_test

import (
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

func TestNamespaceOfAPublisher(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	shop, err := jobs.NewClient(rdb, jobs.WithNamespace("shop-eu"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ o, want, problem string }{
		{"", "tidegate", ""},
		{"shop-us", "shop-us", ""},
		{"Shop", "", `"Shop" is not a valid namespace: it must match [a-z0-9][a-z0-9-]{0,30}`},
	} {
		p, err := publisher.New(rdb, publisher.Options{Namespace: row.o})
		if row.problem != "" {
			if err == nil || !strings.Contains(err.Error(), row.problem) {
				t.Errorf("%q: %v", row.o, err)
			}
		} else if err != nil || p.Namespace() != row.want {
			t.Errorf("%q: %v, %v", row.o, p, err)
		}
	}
	if p, err := publisher.New(rdb, publisher.Options{Client: shop}); err != nil || p.Namespace() != "shop-eu" {
		t.Errorf("of its client: %v, %v", p, err)
	}
	if _, err := publisher.New(rdb, publisher.Options{Client: shop, Namespace: "shop-us"}); err == nil ||
		err.Error() != `publisher: new: Namespace is "shop-us", and that of Client is "shop-eu"` {
		t.Errorf("another one than its client: %v", err)
	}
}
