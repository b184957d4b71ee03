package dashboard_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// Keys that met a limit once and can be called are counted, not listed, and a recovery without jobs is
// not shown.
func TestKeysThatMetALimitOnce(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	for i := range 60 {
		name := fmt.Sprintf("shop/k%02d", i)
		if _, err := breaker.Trip(t.Context(), s.rdb, name, breaker.TripOptions{For: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if i == 59 {
			break
		}
		if _, err := breaker.Reset(t.Context(), s.rdb, name, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := breaker.Trip(t.Context(), s.rdb, "shop", breaker.TripOptions{For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := breaker.Reset(t.Context(), s.rdb, "shop", "ann"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/destinations/shop", "/breakers/shop"} {
		p := s.get(path)
		p.shows(t, http.StatusOK, "shop/k59", "59 other keys have met a limit and can be called.", "Closed")
		p.hides(t, "shop/k00", "shop/k58", "Recovering")
	}
	s.fill("shop", "a", 1)
	s.age()
	s.get("/").shows(t, http.StatusOK, "Recovering")
}

// The workers of a destination's page have that destination's errors only.
func TestWorkersOfADestination(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop", "stock")
	s.serveUnreached("down:1")
	s.get("/destinations/shop").shows(t, http.StatusOK, "Calls to shop have not left it")
	s.get("/destinations/stock").hides(t, "Calls to shop have not left it")
}
