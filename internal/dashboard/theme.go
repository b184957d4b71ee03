package dashboard

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/tidegate/tidegate/internal/access"
)

const (
	themeCookie = "tidegate-theme"
	flashCookie = "tidegate-flash"
	year        = 365 * 24 * 60 * 60
	// mostFlash bounds what is said after an action, in bytes of its cookie.
	mostFlash = 3000
)

// themes that can be chosen; "auto" follows the system.
var themes = []string{"auto", "light", "dark"}

// theme is what the viewer has chosen.
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
	http.SetCookie(w, &http.Cookie{
		Name: themeCookie, Value: next, Path: "/", MaxAge: year, HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil,
	})
	http.Redirect(w, r, access.LocalPath(r.FormValue("back")), http.StatusSeeOther)
	return nil
}

// flash is what is said once, after an action.
type flash struct {
	Text string `json:"t"`
	Bad  bool   `json:"b,omitempty"`
}

// say has the next page say it.
func say(w http.ResponseWriter, r *http.Request, f flash) {
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
		http.SetCookie(w, &http.Cookie{
			Name: flashCookie, Value: value, Path: "/", MaxAge: 60, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
		})
		return
	}
}

// takeFlash returns what is to be said now, nil for nothing.
func takeFlash(w http.ResponseWriter, r *http.Request) *flash {
	c, err := r.Cookie(flashCookie)
	if err != nil {
		return nil
	}
	http.SetCookie(w, &http.Cookie{Name: flashCookie, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
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
