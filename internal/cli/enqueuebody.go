package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"path/filepath"
	"strings"

	"github.com/tidegate/tidegate/jobs"
)

// form returns the payload of --form and --file-part, and the encoding that they imply; nil
// without them. bad gets the errors.
func (c *enqueueCmd) form(stdin io.Reader, limit int, bad func(flag string, err error)) (payload json.RawMessage, encoding jobs.Encoding) {
	if len(c.Form)+len(c.FilePart) == 0 {
		return nil, jobs.Encoding(c.Encoding)
	}
	encoding = jobs.EncodingForm
	flag := "--form"
	if len(c.FilePart) > 0 || c.Encoding == string(jobs.EncodingMultipart) {
		encoding = jobs.EncodingMultipart
	}
	if len(c.FilePart) > 0 {
		flag = "--file-part"
	}
	if c.Encoding != "" && c.Encoding != string(encoding) {
		bad(flag, errors.New("makes a form; leave --encoding out"))
	}
	if c.Payload != "{}" {
		bad(flag, errors.New("makes the payload; leave --payload out"))
	}
	values := map[string][]any{}
	add := func(name string, value any) { values[name] = append(values[name], value) }
	for _, field := range c.Form {
		name, value, found := strings.Cut(field, "=")
		if !found {
			bad("--form", errors.New("is not of the form NAME=VALUE")) // not repeated: it may be secret
			continue
		}
		add(name, value)
	}
	for _, part := range c.FilePart {
		name, path, found := strings.Cut(part, "=@")
		if !found {
			bad("--file-part", errors.New("is not of the form NAME=@PATH"))
			continue
		}
		content, err := readPayload(stdin, "@"+path, limit)
		if err != nil {
			bad("--file-part", err)
			continue
		}
		add(name, fileOf(path, content))
	}
	payload, err := json.Marshal(values)
	bad(flag, err)
	return payload, encoding
}

// rawPayload returns a payload for --encoding raw: a file that is not JSON is the body itself.
func (c *enqueueCmd) rawPayload(payload []byte) []byte {
	path, isFile := strings.CutPrefix(c.Payload, "@")
	if c.Encoding != string(jobs.EncodingRaw) || !isFile && c.Payload != "-" || json.Valid(payload) {
		return payload
	}
	wrapped, err := json.Marshal(fileOf(path, payload))
	if err != nil {
		return payload
	}
	return wrapped
}

// fileOf returns a file with the content type of its extension.
func fileOf(path string, content []byte) jobs.File {
	return jobs.File{
		Filename: filepath.Base(path), Content: append([]byte{}, content...),
		ContentType: cmp.Or(mime.TypeByExtension(filepath.Ext(path)), "application/octet-stream"),
	}
}
