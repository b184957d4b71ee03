package dashboard_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/tidegate/tidegate/internal/serve/access"
)

// A limit is set by a form, shown on the destination's page and in the audit, and ended there.
func TestLimitForATime(t *testing.T) {
	t.Parallel()
	s := open(t, access.ScopeOperate, "shop")
	s.post("/destinations/shop", url.Values{"action": {"limit"}, "rate": {"5"}, "for": {"10m"}}).shows(t, http.StatusBadRequest, "The rate cannot be accepted")
	form := url.Values{"action": {"limit"}, "rate": {"5/1s"}, "for": {"10m"}, "reason": {"asked"}}
	s.post("/destinations/shop", form).shows(t, http.StatusOK, "Set the limit of shop to 5/1s?", "For 10 minutes.")
	form.Set("confirm", "1")
	s.post("/destinations/shop", form)
	s.age()
	s.get("/destinations/shop").shows(t, http.StatusOK, "An operator has set its limit", "asked", "End it")
	s.post("/destinations/shop", url.Values{"action": {"unlimit"}})
	s.age()
	s.get("/destinations/shop").hides(t, "An operator has set its limit")
	s.get("/audit?action=set").shows(t, http.StatusOK, "Set limit", "5/1s, for 10m", "asked")
	s.get("/audit?cursor=x").shows(t, http.StatusBadRequest, "damaged")
}
