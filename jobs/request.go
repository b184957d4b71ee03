package jobs

import (
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Encoding is how the payload of a job becomes the body of its call.
type Encoding string

// The encodings.
const (
	// EncodingJSON sends the payload as it is. It is the default.
	EncodingJSON Encoding = "json"
	// EncodingForm sends an object as application/x-www-form-urlencoded. Its values are
	// strings, numbers, true or false, or lists of them.
	EncodingForm Encoding = "form"
	// EncodingMultipart sends an object as multipart/form-data. Each value is one that
	// EncodingForm takes, or a file in the JSON of File.
	EncodingMultipart Encoding = "multipart"
	// EncodingRaw sends the content of a File, or a string as text/plain.
	EncodingRaw Encoding = "raw"
)

// File is a file in a payload with EncodingMultipart, or the body of EncodingRaw.
type File struct {
	// Filename of the part. Without it the part is a field that has a ContentType.
	Filename string `json:"filename,omitempty"`
	// ContentType of the content. Default application/octet-stream, and none for a part
	// without a Filename.
	ContentType string `json:"content_type,omitempty"`
	// Content is base64 in JSON.
	Content []byte `json:"base64"`
}

// maxTimeoutSecs bounds the timeout of a job's call.
const maxTimeoutSecs = 86400

// Validate checks the bounds of what a job adds to the request of its destination. It returns nil or a
// *ValidationError. Whether an HTTP destination can send it is checked by the worker before each call,
// and at the enqueue by the CLI, the HTTP API and clients WithCheck(httpdest.CheckRequest).
func (r *Request) Validate() error {
	var errs fieldErrors
	r.validate(errs.add)
	return errs.err()
}

func (r *Request) validate(bad func(string, string, ...any)) {
	most := func(field string, bytes, most int) {
		if bytes > most {
			bad(field, "has %d bytes, at most %d are accepted", bytes, most)
		}
	}
	if len(r.Method) > store.MaxMethodBytes {
		bad("request.method", "%q is not an HTTP method; write one such as PUT", clip(r.Method))
	}
	switch r.Encoding {
	case "", EncodingJSON, EncodingForm, EncodingMultipart, EncodingRaw:
	default:
		bad("request.encoding", "%q is none of json, form, multipart, raw", clip(string(r.Encoding)))
	}
	if r.TimeoutSecs < 0 || r.TimeoutSecs > maxTimeoutSecs {
		bad("request.timeout_secs", "must be from 1 to %d; leave it out for the destination's timeout", maxTimeoutSecs)
	}
	// asynq's encoding holds UTF-8 only: it could not read other jobs.
	if most("request.path", len(r.Path), store.MaxPathBytes); len(r.Path) <= store.MaxPathBytes && !utf8.ValidString(r.Path) {
		bad("request.path", "is not valid UTF-8; encode it (%%C3%%A9)")
	}
	if most("request.query", len(r.Query), store.MaxQueryBytes); len(r.Query) <= store.MaxQueryBytes && !utf8.ValidString(r.Query) {
		bad("request.query", "is not valid UTF-8; encode it, for instance a=b&c=d%%20e")
	}
	total := 0
	for name, value := range r.Headers {
		total += len(name) + len(value)
	}
	if total > store.MaxHeaderBytes {
		bad("request.headers", "have %d bytes together, at most %d are accepted", total, store.MaxHeaderBytes)
	}
}
