package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed static
var staticFiles embed.FS

// types of the static files, independent of the system's MIME types.
var assetTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

type asset struct {
	kind string
	data []byte
}

// assets are the static files by their URL, which names their content: they may be kept
// for ever, and a new version is fetched at once.
type assets struct {
	urls  map[string]string // by file name
	files map[string]asset  // by URL
}

func loadAssets() (*assets, error) {
	a := &assets{urls: map[string]string{}, files: map[string]asset{}}
	err := fs.WalkDir(staticFiles, "static", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := staticFiles.ReadFile(name)
		if err != nil {
			return err
		}
		ext := path.Ext(name)
		kind, ok := assetTypes[ext]
		if !ok {
			return fmt.Errorf("%s: no type is known for %s", name, ext)
		}
		sum := sha256.Sum256(data)
		url := "/" + strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(sum[:6]) + ext
		a.urls[path.Base(name)] = url
		a.files[url] = asset{kind: kind, data: data}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("dashboard: static files: %w", err)
	}
	return a, nil
}

// url returns the URL of a file.
func (a *assets) url(name string) (string, error) {
	url, ok := a.urls[name]
	if !ok {
		return "", fmt.Errorf("no static file %s", name)
	}
	return url, nil
}

// ServeHTTP serves the files, without authentication.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := a.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("X-Content-Type-Options", "nosniff")
	w.Write(f.data) //nolint:errcheck // the reader has left
}
