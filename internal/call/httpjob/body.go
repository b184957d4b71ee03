package httpjob

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"mime/multipart"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"github.com/tidegate/tidegate/jobs"
)

const octetStream = "application/octet-stream"

// maxFormValues bounds the values of a form.
const maxFormValues = 1000

// Body returns the body of a job's call, and its content type: the payload in the encoding of the request. It is the
// same for each call of the job: fields are in the order of their names, and a multipart form's fields come before
// its files. The error is a *jobs.ValidationError.
func Body(j *jobs.Job) (body []byte, contentType string, err error) {
	switch j.Request.Encoding {
	case "", jobs.EncodingJSON:
		return j.Payload, "application/json", nil
	case jobs.EncodingForm:
		var values []formValue
		if values, err = formValues(j.Payload, false); err == nil {
			form := url.Values{}
			for _, v := range values {
				form.Add(v.name, v.text)
			}
			return []byte(form.Encode()), "application/x-www-form-urlencoded", nil
		}
	case jobs.EncodingMultipart:
		var values []formValue
		if values, err = formValues(j.Payload, true); err == nil {
			return multipartBody(values, boundary(j.ID, j.Payload))
		}
	case jobs.EncodingRaw:
		var f *jobs.File
		if f, err = rawContent(j.Payload); err == nil {
			return f.Content, cmp.Or(f.ContentType, octetStream), nil
		}
	default:
		return nil, "", Validate(&j.Request)
	}
	return nil, "", &jobs.ValidationError{Fields: []jobs.FieldError{{Field: "payload", Message: err.Error()}}}
}

// bodyProblem returns the problem of a payload, which is valid JSON, with an encoding, or "".
func bodyProblem(encoding jobs.Encoding, payload []byte) string {
	var err error
	switch encoding {
	case jobs.EncodingForm, jobs.EncodingMultipart:
		_, err = formValues(payload, encoding == jobs.EncodingMultipart)
	case jobs.EncodingRaw:
		_, err = rawContent(payload)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// formValue is a value of a form: text, or a file.
type formValue struct {
	name, text string
	file       *jobs.File
}

// formValues returns the values of a form in the order in which they are sent.
func formValues(payload []byte, files bool) ([]formValue, error) {
	kinds, encoding := "a string, a number, true or false", jobs.EncodingForm
	if files {
		kinds, encoding = kinds+`, or a file such as {"filename":"a.png","content_type":"image/png","base64":"…"}`, jobs.EncodingMultipart
	}
	dec := json.NewDecoder(bytes.NewReader(payload))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil, fmt.Errorf(`is not an object; with the encoding %s it is one from field to value, such as {"title":"Sunset"}`, encoding)
	}
	var out []formValue
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		name, _ := token.(string)
		var value json.RawMessage
		if err == nil {
			err = dec.Decode(&value)
		}
		if err != nil {
			return nil, fmt.Errorf("is not valid JSON: %w", err)
		}
		if name == "" || strings.ContainsFunc(name, unicode.IsControl) {
			return nil, fmt.Errorf("has a field %q; a name is not empty and has no control characters", clip(name))
		}
		if seen[name] {
			return nil, fmt.Errorf("has the field %q twice; give it a list of values", clip(name))
		}
		seen[name] = true
		values := []json.RawMessage{value}
		if value[0] == '[' {
			if err := json.Unmarshal(value, &values); err != nil {
				return nil, fmt.Errorf("is not valid JSON: %w", err)
			}
		}
		if len(out)+len(values) > maxFormValues {
			return nil, fmt.Errorf("has more than %d values, which is the most that a form may have", maxFormValues)
		}
		for _, value := range values {
			v, err := newFormValue(name, value, files)
			if errors.Is(err, errKind) {
				err = fmt.Errorf("the field %q is %s; with the encoding %s a value is %s, or a list of these", clip(name), kindOf(value), encoding, kinds)
			}
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
	}
	slices.SortStableFunc(out, func(a, b formValue) int {
		if (a.file == nil) != (b.file == nil) {
			if a.file == nil {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	return out, nil
}

// errKind is the error of a value of a kind that a form cannot have.
var errKind = errors.New("wrong kind")

func newFormValue(name string, value json.RawMessage, files bool) (formValue, error) {
	v := formValue{name: name}
	switch value[0] {
	case '"':
		return v, json.Unmarshal(value, &v.text)
	case '{':
		if !files {
			return v, errKind
		}
		f, err := newFile(value)
		if err != nil {
			return v, fmt.Errorf("the file %q %w", clip(name), err)
		}
		v.file = f
		return v, nil
	case '[', 'n':
		return v, errKind
	}
	v.text = string(value) // a number as it is written
	return v, nil
}

func kindOf(value json.RawMessage) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "a list in a list"
	}
	return "null"
}

// newFile decodes a file.
func newFile(value json.RawMessage) (*jobs.File, error) {
	var f jobs.File
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return nil, fmt.Errorf("cannot be read: %s; it has filename, content_type and base64", strings.TrimPrefix(err.Error(), "json: "))
	}
	switch _, _, err := mime.ParseMediaType(f.ContentType); {
	case f.Content == nil:
		return nil, errors.New("has no base64, its content")
	case f.ContentType != "" && (err != nil || !httpguts.ValidHeaderFieldValue(f.ContentType)):
		return nil, fmt.Errorf("has the content_type %q; write one such as image/png", clip(f.ContentType))
	case strings.ContainsFunc(f.Filename, unicode.IsControl):
		return nil, errors.New("has a filename with control characters")
	}
	return &f, nil
}

// rawContent returns the content of a payload with jobs.EncodingRaw.
func rawContent(payload []byte) (*jobs.File, error) {
	payload = bytes.TrimSpace(payload)
	if len(payload) > 0 && payload[0] == '"' {
		var text string
		err := json.Unmarshal(payload, &text)
		return &jobs.File{Content: []byte(text), ContentType: "text/plain; charset=utf-8"}, err
	}
	if len(payload) == 0 || payload[0] != '{' {
		return nil, errors.New(`is not a string or an object; with the encoding raw it is one of them, such as {"content_type":"image/png","base64":"…"}`)
	}
	return newFile(payload)
}

// boundary returns the boundary of a multipart body: the same for each call of a job. The
// payload cannot contain it, because it is a hash of the payload.
func boundary(id string, payload []byte) string {
	sum := sha256.Sum256(append([]byte(id+"\n"), payload...))
	return hex.EncodeToString(sum[:20])
}

func multipartBody(values []formValue, boundary string) (body []byte, contentType string, err error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		return nil, "", fmt.Errorf("body: %w", err)
	}
	for _, v := range values {
		header, content := textproto.MIMEHeader{}, []byte(v.text)
		disposition := multipart.FileContentDisposition(v.name, "")
		if v.file == nil || v.file.Filename == "" {
			disposition = strings.TrimSuffix(disposition, `; filename=""`)
		} else {
			disposition = multipart.FileContentDisposition(v.name, v.file.Filename)
		}
		header.Set("Content-Disposition", disposition)
		if f := v.file; f != nil {
			content = f.Content
			kind := f.ContentType
			if kind == "" && f.Filename != "" {
				kind = octetStream
			}
			if kind != "" {
				header.Set("Content-Type", kind)
			}
		}
		part, err := w.CreatePart(header)
		if err == nil {
			_, err = part.Write(content)
		}
		if err != nil {
			return nil, "", fmt.Errorf("body: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, "", fmt.Errorf("body: %w", err)
	}
	return b.Bytes(), w.FormDataContentType(), nil
}
