package dashboard

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/tidegate/tidegate/internal/serve/access"
)

const (
	themeCookie = "tidegate-theme"
	flashCookie = "tidegate-flash"
	year        = 365 * 24 * 60 * 60
	// mostFlash bounds the cookie of the message after an action, in bytes.
	mostFlash = 3000
)

// themes; "auto" follows the system.
var themes = []string{"auto", "light", "dark"}

// theme is the theme of the viewer.
func theme(r *http.Request) string {
	if c, err := r.Cookie(themeCookie); err == nil && slices.Contains(themes, c.Value) {
		return c.Value
	}
	return themes[0]
}

// setTheme remembers the next theme and goes back.
func (d *Dashboard) setTheme(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	next := r.FormValue("theme")
	if !slices.Contains(themes, next) {
		return wrong("There is no theme of that name.")
	}
	setCookie(w, themeCookie, next, year)
	redirect(w, r, r.FormValue("back"))
	return nil
}

// setCookie sets a cookie without the attribute Secure: it is not a credential, and a proxy may
// terminate TLS.
func setCookie(w http.ResponseWriter, name, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // see above
		Name: name, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}

// redirect redirects to a page of this site with GET.
func redirect(w http.ResponseWriter, r *http.Request, path string) {
	http.Redirect(w, r, access.LocalPath(path), http.StatusSeeOther) //nolint:gosec // LocalPath is of this site
}

// flash is a message that is shown once, after an action.
type flash struct {
	Text string `json:"t"`
	Bad  bool   `json:"b,omitempty"`
}

// setFlash shows the message on the next page.
func setFlash(w http.ResponseWriter, f flash) {
	for {
		raw, err := json.Marshal(f)
		if err != nil {
			return
		}
		value := base64.RawURLEncoding.EncodeToString(raw)
		if len(value) > mostFlash {
			f.Text = strings.ToValidUTF8(f.Text[:len(f.Text)*2/3], "") + "…"
			continue
		}
		setCookie(w, flashCookie, value, 60)
		return
	}
}

// takeFlash returns the message to show now, nil for none.
func takeFlash(w http.ResponseWriter, r *http.Request) *flash {
	c, err := r.Cookie(flashCookie)
	if err != nil {
		return nil
	}
	setCookie(w, flashCookie, "", -1)
	raw, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return nil
	}
	var f flash
	if json.Unmarshal(raw, &f) != nil || f.Text == "" {
		return nil
	}
	return &f
}
